"""Sends one record: a new one, one like another, or the same bytes once more."""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit, whole_number
from ottla.console.record_source import FoundRecord
from ottla.console.records import Shower, one_record
from ottla.console.refusals import Refused
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.record.consumer_record import ConsumerRecord

CHECKSUM_KEY: Final = token_bytes(32)
"""The key of this process: a checksum without one would give away records that are hidden."""
PLACE: Final = re.compile(r"(\d{1,9}):(\d{1,18})")
PRODUCER: Final = {"max.block.ms": "10000", "delivery.timeout.ms": "10000", "linger.ms": "0"}
NOT_OF_PRODUCERS: Final = ("default.api.timeout.ms",)
NOT_ACCEPTED: Final = (
    *(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    *(ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.POLICY_VIOLATION),
)
"""Errors of a record that another one, or another topic, would not have."""
NEW_LINES: Final = re.compile("\r\n?")


class NewRecord(NamedTuple):
    """A record to send; without a partition its key chooses one."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


async def form(visit: Visit) -> Data:
    """An empty form, or one with the parts of the record at `like`."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    place = visit.query.get("like", "")
    fields: Data = {"is_text": True, "key": "", "value": "", "headers": "", "is_null": False}
    if place:
        record = await record_at(visit, topic.name, place)
        fields = fields_of(Shower(visit, topic.name).hide(record))
        fields["same"] = f"{place}:{checksum_of(record)}"
    partitions = sorted(topic.partitions)
    return {"topic": topic.name, "partitions": partitions, "like": place, **fields}


def fields_of(record: FoundRecord) -> Data:
    """The fields of the form for a record like this one; empty where it is no text."""
    key, value = record.key or b"", record.value or b""
    headers = [(name, data or b"") for name, data in record.headers]
    fields: Data = {"is_text": True, "is_null": record.value is None}
    if not all(map(_is_text, (key, value, *(data for _, data in headers)))):
        return {**fields, "is_text": False, "key": "", "value": "", "headers": ""}
    lines = "\n".join(f"{name}: {data.decode()}" for name, data in headers)
    return {**fields, "key": key.decode(), "value": value.decode(), "headers": lines}


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


async def record_at(visit: Visit, topic: str, place: str) -> FoundRecord:
    """The record at `PARTITION:OFFSET`."""
    found = PLACE.fullmatch(place)
    if found is None:
        raise Refused(f"like={place[:40]}: must be PARTITION:OFFSET")
    return (await one_record(visit, TopicPartition(topic, int(found[1])), int(found[2])))[1]


def checksum_of(record: ConsumerRecord | FoundRecord) -> str:
    """16 digits for all that a record has; they tell nobody whether a guess of it is right."""
    frame = repr((record.timestamp_ms, record.headers, record.key, record.value is None))
    found = blake2b(frame.encode(), digest_size=8, key=CHECKSUM_KEY)
    found.update(record.value or b"")
    return found.hexdigest()


async def send(visit: Visit) -> ChangeOutcome:
    """Send the record of the form; the browser goes to its page.

    The metadata are asked for before: a producer creates a topic that was deleted.
    """
    await visit.cluster.changed()
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    same, _, checksum = visit.form.get("same", "").rpartition(":")
    if visit.form.get("same"):
        record = await record_at(visit, topic.name, same)
        if checksum != checksum_of(record):
            raise Refused(f"the record at {same} is another one than was shown")
        new = NewRecord(record.key, record.value, record.headers, None)
    else:
        new = record_of(visit.form, len(topic.partitions))
    settings = producer_settings(visit.cluster.client_settings) | PRODUCER
    try:
        place = await visit.cluster.runtime.background.run(
            partial(send_now, settings, topic.name, new)
        )
    except KafkaError as error:
        if error.error in NOT_ACCEPTED:
            raise Refused(f"The record is not sent: {error.message}") from None
        raise
    sent = {"offset": place.offset, "bytes": len(new.value or b""), "like": same or None}
    return ChangeOutcome(
        f"/t/{topic.name}/{place.partition}/{place.offset}",
        f"The record is in partition {place.partition}, offset {place.offset}.",
        "console-producer",
        f"{topic.name}-{place.partition}",
        new=sent,
    )


def producer_settings(common: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of all clients of a console, as far as producers have them."""
    return {name: value for name, value in common.items() if name not in NOT_OF_PRODUCERS}


def record_of(fields: Mapping[str, str], partition_count: int) -> NewRecord:
    """The record that the fields of the form describe; Refused where they do not fit."""
    partition = fields.get("partition", "")
    number = whole_number(partition, partition_count - 1)
    if partition and number is None:
        raise Refused(f"partition={partition[:20]}: there is none with this number")
    is_null = fields.get("null") == "1"
    value = NEW_LINES.sub("\n", fields.get("value", ""))
    if is_null and value:
        raise Refused("a tombstone has no value: empty the field, or uncheck the box")
    return NewRecord(
        fields["key"].encode() if fields.get("key") else None,
        None if is_null else value.encode(),
        headers_of(fields.get("headers", "")),
        number,
    )


def headers_of(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of lines as `name: value`."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise Refused(f"headers: “{line[:40]}” is no line of the form name: value")
        found.append((name.strip(), value.strip().encode()))
    return tuple(found)


def send_now(settings: Mapping[str, Any], topic: str, record: NewRecord) -> Any:
    """The place of the record, once it is written; on a thread that may wait."""
    from ottla.clients.producer.producer import Producer  # most consoles only look

    with Producer(settings) as producer:
        key, value, headers, partition = record
        sent = producer.send(topic, value, key=key, headers=headers, partition=partition)
        return sent.result()


PRODUCE_PAGES: Final = (
    ConsolePage(
        "/t/{topic}/produce",
        form,
        "produce.html",
        "{topic}: send a record",
        "Topics",
        "ottla console-producer --topic {topic}",
    ),
)
PRODUCE_CHANGES: Final = (ConsoleChange("/t/{topic}/produce", send),)
