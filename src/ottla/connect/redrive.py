"""The way of dead letters back to the topics that they are from.

`Redrive` sends the letters of a queue to those topics, whichever library has written the queue:
`FAMILIES` has the headers of each. They are taken off, and another counts how often a record was
sent back. The letters that were sent are kept by the offsets of the group
`connect-redrive-<queue>`, committed with the records.
"""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.dead_letter_headers import HEADER_PREFIX
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import RecordFuture
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.connect.tolerance import OF_PRODUCER, may_succeed_later
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import INTERNAL_TOPICS, NO_UUID, TopicPartition, encode_uuid

PASSES: Final = "__connect.redriven"
PASSES_DIGITS: Final = 9
"""A number of more digits is no count that this tool has written."""
STEP_MS: Final = 500
METADATA_CHARACTERS: Final = 4096
"""So much may stand beside a committed offset (offset.metadata.max.bytes of a broker)."""
TOO_MANY_RANGES: Final = (
    "so many single letters have no room beside the offset of the group; those before them have "
    "to be sent first"
)
LONGEST_NUMBER: Final = 20
OF_ALL_TOPICS: Final = OF_PRODUCER - {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""What ends the tool: another record would be refused as well."""


class Redrive:
    """Sends back the letters that a queue holds now, and remembers which.

    Each step is a transaction of the records and of what the group remembers, so that a letter is
    sent once however the tool ends; another run for this queue ends this one. A letter that its
    topic does not take is left, and the others go.
    """

    def __init__(self, consumer: Consumer, queue: str, choice: Choice, tell: Tell) -> None:
        """The consumer has the group `group_of(queue)`, and reads only what is committed."""
        self._consumer = consumer
        self._queue = queue
        self._choice = choice
        self._tell = tell
        self._taken = 0
        numbers = consumer.partitions_for(queue)
        self._partitions = [TopicPartition(queue, each.partition) for each in numbers]
        self._topics = consumer.list_topics()
        self._topic_id = ""
        self._sent: dict[TopicPartition, SentOffsets] = {}
        self._after: dict[TopicPartition, int] = {}

    def preview(self) -> None:
        """Tell what `send` would do."""
        for step in self._steps():
            for letter, topic, _ in step:
                self._tell(letter, topic, "")

    def send(self, producer: Producer) -> None:
        """Send them; the producer has a transactional id."""
        producer.init_transactions()  # a run before this one ends here, and leaves nothing open
        for step in self._steps():
            self._deliver(producer, step)

    def _steps(self) -> Iterator[list[Departure]]:
        """The letters that go, as many at a time as one poll returns."""
        ends = self._begin()
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            step = []
            for record in self._consumer.poll(STEP_MS):
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    step += self._judged(DeadLetter(record, self._choice.families))
            yield step
            if self._is_full:
                return

    def _begin(self) -> dict[TopicPartition, int]:
        """Go to the first letters that were not sent; the ends of the partitions."""
        consumer = self._consumer
        consumer.assign(self._partitions)
        begins = consumer.beginning_offsets(self._partitions)
        ends = consumer.end_offsets(self._partitions)
        committed = consumer.committed(self._partitions)
        topic_id = consumer.topic_id(self._queue) or NO_UUID
        self._topic_id = "" if topic_id == NO_UUID else encode_uuid(topic_id)
        for place, begin in begins.items():
            sent = SentOffsets.read(committed.get(place), begin, ends[place], self._topic_id)
            self._sent[place] = sent
            self._after[place] = begin if self._choice.again else sent.first_unsent
            consumer.seek(place, self._after[place])
        return ends

    @property
    def _is_full(self) -> bool:
        return self._taken == self._choice.at_most

    def _judged(self, letter: DeadLetter) -> list[Departure]:
        """The letter, if it goes; why another stays is told."""
        place = TopicPartition(letter.record.topic, letter.record.partition)
        after, self._after[place] = self._after[place], letter.record.offset + 1
        if self._is_full:
            return []
        if not self._choice.again and letter.record.offset in self._sent[place]:
            self._tell(letter, Left.SENT_BEFORE, "")
            return []
        topic = self._choice.to or letter.topic or self._choice.otherwise or ""
        reason = self._reason_to_leave(letter, topic)
        if reason is not None:
            self._tell(letter, reason, "")
            return []
        self._taken += 1
        return [Departure(letter, topic, after)]

    def _reason_to_leave(self, letter: DeadLetter, topic: str) -> Left | None:
        choice = self._choice
        reasons = {
            Left.NOT_WANTED: not choice.is_wanted(letter),
            Left.TRIES: choice.max_tries is not None and letter.tries >= choice.max_tries,
            Left.AMBIGUOUS: letter.is_ambiguous and choice.to is None,
            Left.NO_TOPIC: not topic,
            Left.PARTIAL: letter.is_partial,
            Left.FORBIDDEN: topic in INTERNAL_TOPICS or topic == self._queue,
            Left.ABSENT: topic not in self._topics,
            Left.NO_PARTITION: choice.keeps_partition
            and not 0 <= (letter.partition or 0) < len(self._topics.get(topic, ())),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), None)

    def _deliver(self, producer: Producer, step: list[Departure]) -> None:
        """Send a step, in halves where a letter of it is not taken."""
        if not step:
            return
        error = self._transact(producer, step)
        if error is not None and len(step) > 1:
            middle = len(step) // 2
            self._deliver(producer, step[:middle])
            self._deliver(producer, step[middle:])
            return
        for letter, topic, _ in step:
            if error is None:
                self._tell(letter, topic, "")
            else:
                self._tell(letter, Left.REFUSED, f"{topic}: {error.message}")

    def _transact(self, producer: Producer, step: list[Departure]) -> KafkaError | None:
        """Send all of them and remember it, or neither; the error if a letter is to blame."""
        sent = self._sent_with(step)
        offsets = {place: each.to_commit(self._topic_id) for place, each in sent.items()}
        try:
            with producer.transaction():
                self._send_all(producer, step)
                producer.send_offsets_to_transaction(offsets, group_of(self._queue))
        except NotTakenError as error:
            return error.cause
        self._sent |= sent
        return None

    def _sent_with(self, step: list[Departure]) -> dict[TopicPartition, SentOffsets]:
        """What is sent of the partitions of a step once that has gone."""
        found: dict[TopicPartition, SentOffsets] = {}
        for letter, _, after in step:
            place = TopicPartition(letter.record.topic, letter.record.partition)
            found.setdefault(place, self._sent[place].copy()).add(after, letter.record.offset + 1)
        return found

    def _send_all(self, producer: Producer, step: list[Departure]) -> None:
        try:
            futures = [self._send(producer, letter, topic) for letter, topic, _ in step]
            producer.flush()
            for future in futures:
                future.result()
        except KafkaError as error:
            if may_succeed_later(error) or error.error in OF_ALL_TOPICS:
                raise
            raise NotTakenError(error) from error

    def _send(self, producer: Producer, letter: DeadLetter, topic: str) -> RecordFuture:
        choice, record = self._choice, letter.record
        has_time = choice.keeps_timestamp and letter.timestamp_ms >= 0
        return producer.send(
            topic,
            record.value,
            key=record.key,
            headers=letter.headers(choice.keeps_headers),
            partition=letter.partition if choice.keeps_partition else None,
            timestamp_ms=letter.timestamp_ms if has_time else None,
        )


MOST_TRIES: Final = 10
"""A record that was sent back so often, and came again, is left."""
READING: Final = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
    "isolation.level": "read_committed",
}
"""The settings of a consumer of letters, beside its group."""


def writing(queue: str) -> dict[str, str]:
    """The settings of a producer that sends the letters of a queue."""
    return {"transactional.id": group_of(queue), "acks": "all"}


def group_of(queue: str) -> str:
    """The group, and the transactional id, by which is known what was sent back."""
    return f"connect-redrive-{queue}"


class HeaderFamily(NamedTuple):
    """The headers by which one library tells where a dead letter is from, and what failed.

    `prefixes` are those of all headers that it adds, in lower case. They are taken from every
    letter if they are `reserved`, names that no application gives to headers of its own; others
    only from letters of this family. Of several headers with one name the last counts, which the
    queue has put behind those of the record; `first_counts` is for the library that puts its own
    before them.
    """

    name: str
    prefixes: tuple[str, ...]
    topic: str
    partition: str = ""
    offset: str = ""
    timestamp: str = ""
    error: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    stage: str = ""
    connector: str = ""
    reserved: bool = True
    first_counts: bool = False


SHARE_GROUPS: Final = HeaderFamily(
    "share-groups",
    ("__dlq.errors.",),
    topic="__dlq.errors.topic",
    partition="__dlq.errors.partition",
    offset="__dlq.errors.offset",
    message=("__dlq.errors.message",),
    connector="__dlq.errors.group",
)
PIPELINES: Final = HeaderFamily(
    "pipelines",
    ("source.topic", "source.partition", "source.offset", "reason", "length"),
    topic="source.topic",
    partition="source.partition",
    offset="source.offset",
    message=("reason",),
    reserved=False,
)
FAMILIES: Final = (
    HeaderFamily(
        "connect",
        (HEADER_PREFIX,),
        topic="__connect.errors.topic",
        partition="__connect.errors.partition",
        offset="__connect.errors.offset",
        error=("__connect.errors.exception.class.name",),
        message=("__connect.errors.exception.message",),
        stage="__connect.errors.stage",
        connector="__connect.errors.connector.name",
    ),
    HeaderFamily(
        "streams",
        ("__streams.errors.",),
        topic="__streams.errors.topic",
        partition="__streams.errors.partition",
        offset="__streams.errors.offset",
        error=("__streams.errors.exception",),
        message=("__streams.errors.message",),
    ),
    HeaderFamily(
        "spring",
        ("kafka_dlt-", "springdeserializerexception"),
        topic="kafka_dlt-original-topic",
        partition="kafka_dlt-original-partition",
        offset="kafka_dlt-original-offset",
        timestamp="kafka_dlt-original-timestamp",
        error=("kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"),
        message=("kafka_dlt-exception-message", "kafka_dlt-key-exception-message"),
        connector="kafka_dlt-original-consumer-group",
    ),
    HeaderFamily(
        "spring-retry",
        ("kafka_original-", "kafka_exception-", "retry_topic-"),
        topic="kafka_original-topic",
        partition="kafka_original-partition",
        offset="kafka_original-offset",
        timestamp="kafka_original-timestamp",
        error=("kafka_exception-cause-fqcn", "kafka_exception-fqcn"),
        message=("kafka_exception-message",),
        connector="kafka_dlt-original-consumer-group",
    ),
    SHARE_GROUPS,
    HeaderFamily(
        "smallrye",
        ("dead-letter-",),
        topic="dead-letter-topic",
        partition="dead-letter-partition",
        offset="dead-letter-offset",
        error=("dead-letter-cause-class-name", "dead-letter-exception-class-name"),
        message=("dead-letter-reason",),
        reserved=False,
        first_counts=True,
    ),
    HeaderFamily(
        "x",
        ("x-original-", "x-exception-", "x-error"),
        topic="x-original-topic",
        partition="x-original-partition",
        offset="x-original-offset",
        timestamp="x-original-timestamp",
        error=("x-exception-fqcn", "x-exception-class", "x-exception-type", "x-error-type"),
        message=("x-exception-message", "x-error-message", "x-error"),
        reserved=False,
    ),
    PIPELINES,
)
"""Kafka Connect (KIP-298) and Ottla's connectors and mirrors; Kafka Streams (KIP-1034); Spring
Kafka, and its retry topics; share groups (KIP-1191); SmallRye; Spring Cloud Stream and the
middlewares of FastStream and others, which have this convention; pipelines of Ottla."""
RESERVED: Final = tuple(p for family in FAMILIES if family.reserved for p in family.prefixes)


class Left(StrEnum):
    """Why a letter stays in its queue."""

    SENT_BEFORE = "sent before"
    NOT_WANTED = "not among those that are asked for"
    NO_TOPIC = "it does not say where it is from"
    AMBIGUOUS = "headers of two libraries name two topics"
    FORBIDDEN = "it is from this queue, or from a topic that only brokers write"
    ABSENT = "its topic is not there, or may not be described"
    NO_PARTITION = "its topic has no such partition"
    PARTIAL = "it has not the whole record"
    TRIES = "it was sent back as often as --max-tries allows"
    REFUSED = "its topic does not take it"

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to do something before it can be sent."""
        return self not in (Left.SENT_BEFORE, Left.NOT_WANTED, Left.TRIES)


class DeadLetter:
    """A record of a queue, whose headers say where it is from and what failed."""

    def __init__(self, record: ConsumerRecord, families: Sequence[HeaderFamily] = FAMILIES) -> None:
        self.record = record
        last = {name.lower(): value for name, value in record.headers}
        first = {name.lower(): value for name, value in reversed(record.headers)}
        found = {each: first if each.first_counts else last for each in families}
        topics = {each: _text(headers.get(each.topic)) for each, headers in found.items()}
        naming = [each for each in families if topics[each]]
        self.is_ambiguous = len({topics[each] for each in naming}) > 1
        self.family = naming[0] if naming and not self.is_ambiguous else None
        self._headers = found[self.family] if self.family else {}
        self.topic = topics[self.family] if self.family else ""

    @property
    def partition(self) -> int | None:
        return self._number("partition")

    @property
    def offset(self) -> int | None:
        return self._number("offset")

    @property
    def timestamp_ms(self) -> int:
        """When the record was written that has failed, as far as that is known."""
        found = self._number("timestamp")
        return self.record.timestamp_ms if found is None or found < 0 else found

    @property
    def error(self) -> str:
        """The class of the error; empty where no header has it."""
        found = self._first_of(self.family.error if self.family else ())
        return found.partition(":")[0]  # some have the message in the same header

    @property
    def message(self) -> str:
        return self._first_of(self.family.message if self.family else ())

    @property
    def stage(self) -> str:
        return self._first_of([self.family.stage] if self.family else ())

    @property
    def connector(self) -> str:
        """The connector, or the group, that could not use the record."""
        return self._first_of([self.family.connector] if self.family else ())

    @property
    def tries(self) -> int:
        """How often it was sent back before."""
        passes = [value or b"" for name, value in self.record.headers if name == PASSES]
        counts = [int(value) for value in passes if value.isdigit() and len(value) <= PASSES_DIGITS]
        return max(counts, default=0)

    @property
    def is_partial(self) -> bool:
        """Whether the queue keeps less of the record than its topic had."""
        if self.family is SHARE_GROUPS:
            return self.record.key is None and self.record.value is None
        return self.family is PIPELINES and "length" in self._headers

    def headers(self, keeps_errors: bool = False) -> list[tuple[str, bytes | None]]:
        """The headers that the record had, and how often it was sent back."""
        own = self.family.prefixes if self.family else ()
        dropped = () if keeps_errors else (*RESERVED, *own)
        kept = [
            (name, value)
            for name, value in self.record.headers
            if not name.lower().startswith(dropped) and name != PASSES
        ]
        return [*kept, (PASSES, str(self.tries + 1).encode())]

    def _first_of(self, names: Sequence[str]) -> str:
        return next((text for name in names if (text := _text(self._headers.get(name)))), "")

    def _number(self, field: str) -> int | None:
        name = getattr(self.family, field) if self.family else ""
        return _number_of(self._headers.get(name) or b"")


def _text(value: bytes | None) -> str:
    """What a header says; nothing where its bytes are no text."""
    try:
        return (value or b"").decode()
    except ValueError:
        return ""


def _number_of(value: bytes) -> int | None:
    """A number as text, or as the 4 or 8 bytes that Java has for it.

    Those of a partition, an offset or a time that exists are not all digits of ASCII.
    """
    if value.removeprefix(b"-").isdigit() and len(value) <= LONGEST_NUMBER:
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else None


def target_of(record: ConsumerRecord) -> str | None:
    """The topic that a dead letter is from, if its headers say so; no internal topic."""
    topic = DeadLetter(record).topic
    return None if topic in INTERNAL_TOPICS else topic or None


class SentOffsets:
    """The letters of one partition that were sent back: ranges of offsets, in order and apart.

    A group remembers them: its committed offset is the first letter that was not sent, and beside
    it stand the ranges behind that one, and the id of the topic, since another topic of this name
    begins with letters that nobody has sent.
    """

    def __init__(self, begin: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self._begin = begin
        self._ranges = list(ranges)

    @classmethod
    def read(
        cls, committed: OffsetAndMetadata | None, begin: int, end: int, topic_id: str
    ) -> SentOffsets:
        """What the group has committed for the partition whose letters begin and end there."""
        found = cls(begin)
        if committed is None or committed.offset > end:
            return found
        known_id, is_ours, packed = committed.metadata.partition(":")
        if is_ours and known_id != topic_id:
            return found
        found.add(begin, committed.offset)
        place = committed.offset
        steps = json.loads(zlib.decompress(b64decode(packed))) if packed else []
        for gap, length in zip(steps[::2], steps[1::2], strict=True):
            found.add(place + gap, place + gap + length)
            place += gap + length
        return found

    def copy(self) -> SentOffsets:
        return SentOffsets(self._begin, self._ranges)

    @property
    def first_unsent(self) -> int:
        """Where the first letter is, or will be, that was not sent."""
        start, end = self._ranges[0] if self._ranges else (self._begin, self._begin)
        return max(self._begin, end) if start <= self._begin else self._begin

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._ranges, (offset, math.inf)) - 1
        return at >= 0 and offset < self._ranges[at][1]

    def add(self, start: int, end: int) -> None:
        """Count the letters from `start` to before `end` as sent."""
        if start >= end:
            return
        at = bisect_right(self._ranges, (start, math.inf))
        if at and self._ranges[at - 1][1] >= start:
            at -= 1
            start = self._ranges[at][0]
        after = at
        while after < len(self._ranges) and self._ranges[after][0] <= end:
            end = max(end, self._ranges[after][1])
            after += 1
        self._ranges[at:after] = [(start, end)]

    def to_commit(self, topic_id: str) -> OffsetAndMetadata:
        """What the group shall remember; KafkaError if that is too much for it."""
        place = first = self.first_unsent
        steps = []
        for start, end in self._ranges:
            if start > first:
                steps += [start - place, end - start]
                place = end
        text = json.dumps(steps, separators=(",", ":")).encode()
        packed = b64encode(zlib.compress(text, 9)).decode() if steps else ""
        metadata = f"{topic_id}:{packed}"
        if len(metadata) > METADATA_CHARACTERS:
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, TOO_MANY_RANGES)
        return OffsetAndMetadata(first, metadata)


class Choice(NamedTuple):
    """The letters to send, their topics, and the parts that they keep."""

    is_wanted: Callable[[DeadLetter], bool] = lambda letter: True
    to: str | None = None
    """The topic of all of them, wherever they are from."""
    otherwise: str | None = None
    """The topic of those that do not say where they are from."""
    families: Sequence[HeaderFamily] = FAMILIES
    again: bool = False
    max_tries: int | None = None
    at_most: int | None = None
    keeps_headers: bool = False
    keeps_timestamp: bool = False
    keeps_partition: bool = False


class Departure(NamedTuple):
    """A letter that is sent to a topic; `after` is the end of the letter before it."""

    letter: DeadLetter
    topic: str
    after: int


Tell = Callable[[DeadLetter, "str | Left", str], object]
"""Hears of each letter the topic that it goes to, or why it is left and its topic's error."""


class NotTakenError(Exception):
    """A topic refuses a record whatever else is sent."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(cause.message)
        self.cause = cause
