"""The way of dead letters back to the topics that they are from.

`Redrive` sends the letters of a queue to those topics, whichever library has written the queue:
`letter_families` has the headers of each. They are taken off, and another counts how often a record
was sent back. The letters that were sent are kept by the offsets of the group
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
from ottla.clients.consumer.polls import polls_up_to
from ottla.clients.dead_letter_headers import REDRIVE_GROUP
from ottla.clients.letter_families import (
    FAMILIES,
    PIPELINES,
    SHARE_GROUPS,
    HeaderFamily,
    LetterOrigin,
)
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import RecordFuture
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.connect.tolerance import OF_PRODUCER, may_succeed_later
from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import ConsumerRecord
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
        """Report the plan of `send`, without sending."""
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
        for records in polls_up_to(self._consumer, ends, STEP_MS):
            step = []
            for record in records:
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
        self._topic_id = topic_id_of(consumer, self._queue)
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
        """The letter, if it is to be sent; the reason is reported if not."""
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


def topic_id_of(consumer: Consumer, queue: str) -> str:
    """The id of the queue, as text; empty where brokers give topics none."""
    topic_id = consumer.topic_id(queue) or NO_UUID
    return "" if topic_id == NO_UUID else encode_uuid(topic_id)


def group_of(queue: str) -> str:
    """The group, and the transactional id, by which is known what was sent back."""
    return REDRIVE_GROUP + queue


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


class DeadLetter(LetterOrigin):
    """A record of a queue, whose headers say where it is from and what failed."""

    def __init__(self, record: ConsumerRecord, families: Sequence[HeaderFamily] = FAMILIES) -> None:
        super().__init__(record.headers, families)
        self.record = record

    @property
    def timestamp_ms(self) -> int:
        """When the record was written that has failed, as far as that is known."""
        found = self.number("timestamp")
        return self.record.timestamp_ms if found is None or found < 0 else found

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
        return self.family is PIPELINES and self.has("length")

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
