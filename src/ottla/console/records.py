"""Pages of records: the newest of a topic over all partitions, a search, and one by its place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.console.dead_letters import hidden_reason, origin_of
from ottla.console.decoding import (
    LONGEST_WHOLE,
    TEXT,
    Decoders,
    Hiding,
    ShownBytes,
    beginning,
    shown_bytes,
    with_indents,
)
from ottla.console.masks import masks_of
from ottla.console.msgpack_values import msgpack_of
from ottla.console.newest_first import FoundRecords, Limits, NewestFirst, found_by
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.record_query import RecordQuery, cursor_text, record_query
from ottla.console.record_search import search
from ottla.console.record_source import FoundRecord, RecordSource, Span, batches_of
from ottla.console.refusals import NotFound, Refused
from ottla.console.schema_registry import SchemaRegistry
from ottla.console.search_progress import FinishedSearches
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NO_PRODUCER_ID, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.record.record_batch import RecordBatch

AT_ONCE: Final = 50
MOST_AT_ONCE: Final = 500
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
BROWSE: Final = Limits()
MOST_TEXT: Final = 4 * 1024 * 1024
"""Bytes of records that one page decodes; behind them it shows the beginning of each."""
TURN_BYTES: Final = 256 * 1024
"""After so many bytes of masked records others have their turn on the loop."""
HIDE: Final = "This console was started with --hide-records."


class ShownHeader(NamedTuple):
    """A header of a record."""

    name: str
    value: ShownBytes


class ShownRecord(NamedTuple):
    """A record as a page shows it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: ShownBytes
    value: ShownBytes
    headers: list[ShownHeader]

    @property
    def path(self) -> str:
        """The permalink."""
        return f"/t/{self.topic}/{self.partition}/{self.offset}"


class BatchFacts(NamedTuple):
    """How a record is stored: facts of its batch."""

    timestamp_type: str
    compression: str
    base_offset: int
    last_offset: int
    batch_bytes: int
    producer_id: int | None
    producer_epoch: int
    is_transactional: bool
    leader_epoch: int


class Shower:
    """Makes the records of one topic ready for a page: masked, then decoded."""

    def __init__(self, visit: Visit, topic: str) -> None:
        if visit.settings.hide_records:
            raise Refused(HIDE, 403)
        self._topic = topic
        self.hide = Hiding(masks_of(visit.settings.masks, topic))
        self._registry = None
        if visit.settings.schema_registry:
            self._registry = visit.cluster.part(SchemaRegistry)
        framed = self._registry.value_of if self._registry is not None else None
        self._decoders = Decoders(framed, msgpack_of)
        named = [each for each in visit.settings.protobuf if each.topics.fullmatch(topic)]
        known = named[0].value_of if named else None
        self._of_value = self._decoders._replace(known=known)

    async def prepare(self, records: Iterable[FoundRecord]) -> None:
        """Ask for the schemas that `shown` needs of these records."""
        if self._registry is not None:
            await self._registry.prepare(data for each in records for data in each[3:5])

    async def rows(self, records: Sequence[FoundRecord]) -> list[ShownRecord]:
        """The records of a list; once it has 4 MB of them, the beginnings of long ones.

        The loop is let go in between, as masks have to parse them all.
        """
        await self.prepare(records)
        found, decoded, turn = [], 0, TURN_BYTES
        for each in records:
            found.append(self.shown(each, longest=LONGEST_WHOLE if decoded < MOST_TEXT else 0))
            decoded += size_of(each)
            if decoded > turn:
                turn = decoded + TURN_BYTES
                await asyncio.sleep(0)
        return found

    def shown(
        self, record: FoundRecord, is_whole: bool = False, longest: int = LONGEST_WHOLE
    ) -> ShownRecord:
        """The record as text; see `shown_bytes`."""
        record = self.hide(record)
        return ShownRecord(
            self._topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            shown_bytes(record.key, is_whole, longest, self._decoders),
            shown_bytes(record.value, is_whole, longest, self._of_value),
            [
                ShownHeader(beginning(name), shown_bytes(data, longest=longest))
                for name, data in record.headers
            ],
        )


def size_of(record: FoundRecord) -> int:
    """The bytes of a record's key, value and headers."""
    headers = sum(len(name) + len(data or b"") for name, data in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


async def records(visit: Visit) -> Data:
    """The newest records, or those that a search finds."""
    shower = Shower(visit, str(visit.place["topic"]))
    count = visit.number("count", AT_ONCE, 1, MOST_AT_ONCE)
    query = await record_query(visit)
    if query.condition is None:
        found = await browse(visit, query, count)
    else:
        kept = visit.cluster.part(FinishedSearches).take(visit)
        found = kept or await search(visit.cluster, visit.settings.masks, query, count)
    left = sum(
        end - query.spans[TopicPartition(query.topic.name, each)].start
        for each, end in found.left.items()
    )
    return {
        "topic": query.topic.name,
        "partitions": sorted(query.topic.partitions),
        "records": await shower.rows(found.records),
        "has_letters": any(origin_of(each.headers) is not None for each in found.records),
        "query": form_of(visit),
        "is_search": query.condition is not None,
        "is_words": query.condition is not None and query.condition.is_words,
        "understood": query.condition.words if query.condition is not None else "",
        "key_partition": query.key_partition,
        "next": cursor_text(found.left),
        "total": query.total,
        "left": left,
        "read": found.read_records,
        "read_bytes": found.read_bytes,
        "ms": found.ms,
        "is_spent": found.is_spent,
        "out_of_order": found.out_of_order,
        "errors": query.unreachable | found.errors,
    }


def form_of(visit: Visit) -> dict[str, str]:
    """The fields of the form as they were sent; the page's links carry them along."""
    names = ("q", "from", "to", "partition", "committed", "all", "count", "before")
    return {name: visit.query.get(name, "") for name in names}


async def browse(visit: Visit, query: RecordQuery, count: int) -> FoundRecords:
    """The newest records, without a condition."""
    clock = visit.cluster.runtime.clock
    began_ms = clock.monotonic_ms()
    step = max(4, -(-2 * count // max(1, len(query.spans))))
    walk = NewestFirst(
        record_source(visit, query), clock, query.spans, BROWSE, step=min(step, count)
    )
    taken = await walk.take(count)
    return found_by(walk, taken, clock.monotonic_ms() - began_ms)


def record_source(visit: Visit, query: RecordQuery) -> RecordSource:
    """Where the records of a query come from."""
    topics = visit.cluster.all_topics
    return RecordSource(visit.cluster.client, lambda: topics.cluster, query.isolation)


async def record(visit: Visit) -> Data:
    """One record by its place, with the facts of its batch and its neighbours."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    shower = Shower(visit, topic.name)
    where = TopicPartition(topic.name, int(visit.place["partition"]))
    offset = int(visit.place["offset"])
    batch, found, following = await one_record(visit, where, offset)
    await shower.prepare([found])
    hidden, shown = shower.hide(found), shower.shown(found, visit.query.get("whole") == "1")
    is_key = shown.key.kind == TEXT and not shown.key.is_cut and hidden.key == found.key
    return {
        "record": shown._replace(key=with_indents(shown.key), value=with_indents(shown.value)),
        "facts": facts_of(batch),
        "origin": hidden_reason(origin_of(hidden.headers), visit.settings.masks),
        "previous": f"/t/{topic.name}/{where.partition}/{offset - 1}" if offset else "",
        "following": f"/t/{topic.name}/{where.partition}/{following}",
        "key_query": key_query(found.key) if is_key else "",
    }


def key_query(key: bytes | None) -> str:
    """The condition that finds the records of a key."""
    text = (key or b"").decode("utf-8", "replace").replace("'", "''")
    return f"key = '{text}'"


async def one_record(
    visit: Visit, where: TopicPartition, offset: int
) -> tuple[RecordBatch, FoundRecord, int]:
    """The record at an offset with its batch, and the offset after it.

    NotFound, with the next one, where compaction, retention or a marker has left none there.
    """
    topics = visit.cluster.all_topics
    if topics.cluster.partition(where) is None:
        raise NotFound(f"Topic {where.topic} has no partition {where.partition}.")
    source = RecordSource(visit.cluster.client, lambda: topics.cluster)
    chunk = (await source.fetch({where: Span(offset, offset + 1)}))[where]
    if isinstance(chunk, KafkaError):
        if chunk.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise NotFound(
                f"Partition {where} has no offset {offset}: it was deleted, or is to come."
            )
        if chunk.error in GONE:
            await visit.cluster.changed()
            raise NotFound(f"Partition {where} is not there any more: its topic was deleted.")
        raise chunk
    for batch in batches_of(chunk):
        for each in batch.records():
            if each.offset == offset:
                found = FoundRecord(
                    where.partition, offset, each.timestamp_ms, each.key, each.value, each.headers
                )
                return batch, found, offset + 1
    raise NotFound(
        f"Partition {where} has no record at offset {offset}: compaction has removed it, it is a "
        "marker of a transaction, or it is to come.",
        {f"/t/{where.topic}/records?partition={where.partition}": "the newest records"},
    )


def facts_of(batch: RecordBatch) -> BatchFacts:
    """How a batch is stored."""
    return BatchFacts(
        "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        batch.compression.name.lower(),
        batch.base_offset,
        batch.last_offset,
        batch.size_in_bytes,
        None if batch.producer_id == NO_PRODUCER_ID else batch.producer_id,
        batch.producer_epoch,
        batch.is_transactional,
        batch.partition_leader_epoch,
    )


RECORD_PAGES: Final = (
    ConsolePage(
        "/t/{topic}/records",
        records,
        "records.html",
        "{topic}",
        "Topics",
        "ottla tail {topic} -n 50",
        tab="Records",
    ),
    ConsolePage(
        "/t/{topic}/{partition:number}/{offset:number}",
        record,
        "record.html",
        "{topic}, partition {partition}, offset {offset}",
        "Topics",
        "ottla console-consumer --topic {topic} --partition {partition} --offset {offset} "
        "--max-messages 1",
    ),
)
