"""Copies topics of the first design into topics of today, partition by partition, and follows.

Each record says in a header where copying continues behind it: the id of the next message, or, in
the middle of a compressed set, the id of the set and how many of its messages are copied. So the
copy itself remembers how far it has come. The last header is looked for at a start, and whenever an
append may have failed, or the leader may have changed: no message is left out or copied twice,
whenever the broker is killed. A checkpoint is there for copies whose records retention has deleted.
The header has the id of the broker in its name, since each broker has partitions of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.config.first_design_config import ALL_TOPICS
from ottla.coordinator.coordinator_log import APPEND_TIMEOUT_MS
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.first_design.byte_log import ByteLog, directory_name
from ottla.extensions.first_design.byte_logs import ByteLogs
from ottla.log.log import Log
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType, decompress
from ottla.record.legacy_positional import (
    HEAD_SIZES,
    LENGTH,
    PositionalMessage,
    positional_messages,
)
from ottla.record.record import CorruptRecordError
from ottla.record.record_batch import batches
from ottla.replication.partition import Partition
from ottla.replication.replica_requests import ACKS_ALL
from ottla.runtime import FileRegion
from ottla.runtime.scheduler import pause
from ottla.server.parts import Parts
from ottla.structs import INTERNAL_TOPICS, TopicPartition

logger = logging.getLogger(__name__)

HEADER: Final = "next.id."
"""Before the id of the broker whose message it is."""
READ_BYTES: Final = 1024 * 1024
MOST_RECORDS: Final = 500
MOST_RECORD_BYTES: Final = 256 * 1024
LOOK_BACK: Final = (1, 1_000)
"""In so many of the last records the last header is looked for before whole segments are read."""
MAX_SET_BYTES: Final = 16 * 1024 * 1024
"""A compressed set that becomes more is left out, and told: a few bytes may stand for very many."""
READ_AT_ONCE: Final = 4
"""So many partitions at a time have what they have read, and decompressed, in memory."""
FIRST_RETRY_MS: Final = 20
LAST_RETRY_MS: Final = 1_280
"""While a broker starts it is not the controller yet, and leads nothing."""
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class CopyPlace(NamedTuple):
    """Where copying continues: at a message, behind the first `inside` of those in its set."""

    id: int = 0
    inside: int = 0

    def encode(self) -> bytes:
        return (f"{self.id}/{self.inside}" if self.inside else f"{self.id}").encode()

    @classmethod
    def decode(cls, value: bytes | None) -> CopyPlace | None:
        """The place in a header; None for somebody else's header."""
        first, slash, second = (value or b"").partition(b"/")
        if not first.isdigit() or (slash and not second.isdigit()):
            return None
        return cls(int(first), int(second or 0))


class CopyStep(NamedTuple):
    """A message to be copied, or why one is left out; and where copying continues behind it."""

    place: CopyPlace
    payload: bytes | None = None
    problem: str = ""


class TopicCopies:
    """The copies of a broker: one for each partition of the topics that the setting names."""

    def __init__(self, broker: Parts, logs: ByteLogs, wanted: Mapping[str, str]) -> None:
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self._broker = broker
        self._logs = logs
        self._wanted = wanted
        self._kept = {*INTERNAL_TOPICS, broker.config.ottla_audit_topic}
        """Topics that the broker alone writes."""
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin with the partitions that are there; others are copied from their first message."""
        for log in self._logs.logs.values():
            self.on_flushed(log)
        self._logs.on_flushed.append(self.on_flushed)

    def on_flushed(self, log: ByteLog) -> None:
        """A log has more messages that may be copied."""
        copy = self.copies.get(log.topic_partition)
        if copy is not None:
            copy.news.set()
            return
        topic, number = log.topic_partition
        target = self._wanted.get(topic, topic if ALL_TOPICS in self._wanted else None)
        if target is None or target in self._kept:
            return
        where = TopicPartition(target, number)
        copy = PartitionCopy(self._broker, self._logs, log, where, self._reading)
        self.copies[log.topic_partition] = copy
        name = f"copy {directory_name(log.topic_partition)}"
        self._tasks.append(self._broker.runtime.scheduler.spawn(copy.run(), name))

    def stop(self) -> None:
        """Copy no more; the next start continues where each has come to."""
        if self.on_flushed in self._logs.on_flushed:
            self._logs.on_flushed.remove(self.on_flushed)
        for task in self._tasks:
            task.cancel()


class PartitionCopy:
    """One partition on its way into one of today."""

    def __init__(
        self,
        broker: Parts,
        logs: ByteLogs,
        source: ByteLog,
        target: TopicPartition,
        reading: asyncio.Semaphore,
    ) -> None:
        self.news = asyncio.Event()
        self.left_out = 0
        """Messages that cannot be copied, and ids that were deleted before they were."""
        self._broker = broker
        self._logs = logs
        self._source = source
        self._target = target
        self._name = directory_name(source.topic_partition)
        self._header = f"{HEADER}{broker.broker_id}"
        self._reading = reading
        self._said = ""
        self._retry_ms = FIRST_RETRY_MS
        self._read_bytes = READ_BYTES

    async def run(self) -> None:
        """Copy until the broker stops; a failed step is tried again."""
        while True:
            try:
                partition = await self._lead()
                place = await self._find(partition.log)
                await self._follow(partition, partition.leader_epoch, place)
            except (KafkaError, OSError) as error:
                self._say(error)
            await pause(self._broker.runtime.scheduler, self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)

    def _say(self, error: Exception) -> None:
        """Warn once of the reason why the copy waits, unless it has only begun to wait."""
        if str(error) != self._said and self._retry_ms == LAST_RETRY_MS:
            self._said = str(error)
            logger.warning("the copy into %s waits: %s", self._target, error)

    def _note_progress(self) -> None:
        self._said, self._retry_ms = "", FIRST_RETRY_MS

    # The target

    async def _lead(self) -> Partition:
        """The partition of today, which this broker must lead; its topic is made."""
        broker = self._broker
        if broker.cache.topic(self._target.topic) is None:
            await self._make_topic()
        partition = broker.replica_manager.partitions.get(self._target)
        if partition is None or not partition.is_leader:
            raise KafkaError.of(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker does not lead {self._target}, or the topic has not got it; ottla "
                "leader-election and reassign-partitions change leaders",
            )
        return partition

    async def _make_topic(self) -> None:
        """Make the topic of today; among several brokers, this one leads all of its partitions."""
        broker, topic, own = self._broker, self._target.topic, self._broker.broker_id
        others = [each for each in broker.cache.brokers if each != own]
        followers = broker.config.default_replication_factor - 1
        if broker.link is None or len(others) < followers:
            await broker.create_topic(topic)
            return
        assignment = {
            number: (own, *(others[(number + place) % len(others)] for place in range(followers)))
            for number in range(self._logs.partition_count(self._source.topic_partition.topic))
        }
        await broker.link.create_topic(topic, assignment)

    async def _find(self, log: Log) -> CopyPlace:
        """Where copying continues: by the last header, else the checkpoint, else the beginning."""
        end = log.log_end_offset
        starts = [each.base_offset for each in log.segments.items]
        spans = [(end - count, end) for count in LOOK_BACK]
        spans += [*zip(starts, [*starts[1:], end], strict=True)][::-1]
        for first, last in spans:
            place = await self._last_place(log, max(first, log.log_start_offset), last)
            if place is not None:
                return place
        begin = self._source.start
        if end:  # else it is a new one: earlier copies went into another
            begin = self._logs.copied.get(self._source.topic_partition, begin)
        return CopyPlace(begin)

    async def _last_place(self, log: Log, offset: int, end: int) -> CopyPlace | None:
        """The last place in the records between two offsets."""
        found: CopyPlace | None = None
        while offset < end:
            read = log.read(offset, READ_BYTES, max_offset=end, min_one_message=True)
            if read.records is None:
                break
            job = partial(last_place, read.records, offset, self._header)
            place, offset = await self._broker.runtime.background.run(job)
            found = place or found
        return found

    # Copying

    async def _follow(self, partition: Partition, epoch: int, place: CopyPlace) -> None:
        """Copy all that is there, and new records, for as long as this broker leads."""
        self._read_bytes = READ_BYTES
        while True:
            self.news.clear()
            place = self._in_range(place)
            region = self._logs.read(self._source.topic_partition, place.id, self._read_bytes)
            if region is None:
                self._note_progress()
                await self.news.wait()
                continue
            self._read_bytes = await self._bytes_to_read(region)
            async with self._reading:
                place = await self._copy(partition, epoch, region, place)

    async def _copy(
        self, partition: Partition, epoch: int, region: FileRegion, place: CopyPlace
    ) -> CopyPlace:
        """Copy the messages of a region that begins at a place; returns the place behind them."""
        steps = steps_of(region, place)
        run = self._broker.runtime.background.run
        while found := await run(partial(some_of, steps)):
            await self._append(partition, epoch, found)
            place = found[-1].place
            self._note_progress()
            if not place.inside:
                self._logs.copied[self._source.topic_partition] = place.id
        return place

    async def _bytes_to_read(self, region: FileRegion) -> int:
        """How many bytes the next read has: more where the first message has more.

        Raises:
            KafkaError: there is no whole message, although all that there is was read.
        """
        job = partial(region.file.pread, LENGTH.size, region.position)
        head = await self._broker.runtime.background.run(job)
        needed = LENGTH.size
        if len(head) == LENGTH.size:
            needed += max(0, LENGTH.unpack(head)[0])
        if needed > region.size and region.size < self._read_bytes:
            raise KafkaError.of(ErrorCode.CORRUPT_MESSAGE, f"{self._name}: no whole message")
        return max(READ_BYTES, needed)

    def _in_range(self, place: CopyPlace) -> CopyPlace:
        """Continue at the oldest message where those before it were deleted."""
        start = self._source.start
        if place.id >= start:
            return place
        self._leave_out(f"the ids from {place.id} to {start} were deleted before they were copied")
        return CopyPlace(start)

    def _leave_out(self, problem: str) -> None:
        self.left_out += 1
        logger.error("%s: %s", self._name, problem)

    async def _append(self, partition: Partition, epoch: int, steps: list[CopyStep]) -> None:
        """Append messages in one batch, or in smaller ones where it is too large.

        Raises:
            KafkaError: it is not known whether all of them are in the log.
        """
        for step in steps:
            if step.problem:
                self._leave_out(step.problem)
        copied = [step for step in steps if step.payload is not None]
        if copied:
            await self._append_all(partition, epoch, copied)

    async def _append_all(self, partition: Partition, epoch: int, steps: list[CopyStep]) -> None:
        current = self._broker.replica_manager.partitions.get(self._target)
        if current is not partition or partition.leader_epoch != epoch:
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH, f"{self._target} has a new leader")
        now_ms = self._broker.runtime.clock.now_ms()
        batch = build_batch(
            [(now_ms, None, each.payload, ((self._header, each.place.encode()),)) for each in steps]
        )
        error = await self._appended(batch)
        if error is ErrorCode.NONE:
            return
        if error not in TOO_LARGE:
            raise KafkaError.of(error, f"{self._target}: {error.sentence}")
        if len(steps) == 1:
            where = steps[0].place.encode().decode()
            size = len(steps[0].payload or b"")
            self._leave_out(
                f"the message before {where} has {size} bytes: {self._target} refuses it"
            )
            return
        middle = len(steps) // 2
        await self._append_all(partition, epoch, steps[:middle])
        await self._append_all(partition, epoch, steps[middle:])

    async def _appended(self, batch: bytes) -> ErrorCode:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def respond(results: Mapping[TopicPartition, Any]) -> None:
            if not done.done():
                done.set_result(results[self._target].error)

        manager = self._broker.replica_manager
        records = {self._target: memoryview(bytearray(batch))}
        manager.append_records(APPEND_TIMEOUT_MS, ACKS_ALL, records, respond)
        manager.complete_delayed()  # those that wait for records need not wait longer
        return await done


def last_place(region: FileRegion, offset: int, header: str) -> tuple[CopyPlace | None, int]:
    """The last place in the headers of some batches, and the offset behind the batches."""
    found: CopyPlace | None = None
    for batch in batches(region.read()):
        offset = batch.next_offset
        for record in () if batch.is_control else batch.records():
            for key, value in record.headers:
                if key == header:
                    found = CopyPlace.decode(value) or found
    return found, offset


def some_of(steps: Iterator[CopyStep]) -> list[CopyStep]:
    """The next steps: as many as one batch may have."""
    found: list[CopyStep] = []
    size = 0
    for step in steps:
        found.append(step)
        size += len(step.payload or b"")
        if len(found) == MOST_RECORDS or size >= MOST_RECORD_BYTES:
            break
    return found


def steps_of(region: FileRegion, place: CopyPlace) -> Iterator[CopyStep]:
    """The messages of a region that begins at a place, up to one that is cut off by its end."""
    data = memoryview(region.read())
    position, skipped = 0, place.inside
    while position + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, position)
        end = position + LENGTH.size + length
        if end > len(data):
            return
        if length < HEAD_SIZES[0]:
            if position:
                return  # those before it are copied first
            raise CorruptRecordError(f"no message begins at {place.id}")
        following = CopyPlace(place.id + end)
        try:
            for entry in positional_messages(data[position:end], place.id + position):
                yield from steps_inside(entry, following, skipped)
        except CorruptRecordError as error:
            yield CopyStep(
                following, problem=f"id {place.id + position} is left out: {error.message}"
            )
        position, skipped = end, 0


def steps_inside(
    entry: PositionalMessage, following: CopyPlace, skipped: int
) -> Iterator[CopyStep]:
    """The message of an entry, or those of its compressed set but the first, which are skipped."""
    if entry.codec is CompressionType.NONE:
        yield CopyStep(following, entry.payload)
        return
    data = decompress(entry.codec, entry.payload, MAX_SET_BYTES)
    last: bytes | None = None
    count = end = 0
    for message in positional_messages(data):
        if message.codec is not CompressionType.NONE:
            break
        if last is not None and count > skipped:
            yield CopyStep(CopyPlace(entry.position, count), last)
        last, end, count = message.payload, message.next_position, count + 1
    is_whole = end == len(data)
    if last is not None and count > skipped:
        yield CopyStep(following if is_whole else CopyPlace(entry.position, count), last)
    if not is_whole:
        raise CorruptRecordError(f"the set at {entry.position} is not one of messages")
    if last is None:
        yield CopyStep(following)
