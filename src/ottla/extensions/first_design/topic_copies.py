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
from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import UUID

from ottla.config.first_design_config import ALL_TOPICS
from ottla.coordinator.coordinator_log import APPEND_TIMEOUT_MS
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.first_design.byte_log import ByteLog, directory_name
from ottla.extensions.first_design.byte_logs import ByteLogs
from ottla.extensions.first_design.copied_ids import CopiedId
from ottla.extensions.first_design.copy_steps import (
    CopyPlace,
    CopyStep,
    last_place,
    some_of,
    steps_of,
)
from ottla.log.log import Log
from ottla.record.batch_builder import build_batch
from ottla.record.legacy_positional import LENGTH
from ottla.replication.append_results import ACKS_ALL, PartitionAppendResult
from ottla.replication.partition import Partition
from ottla.runtime import FileRegion, Timer
from ottla.runtime.scheduler import pause
from ottla.server.parts import Parts
from ottla.structs import INTERNAL_TOPICS, NO_EPOCH, NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

HEADER: Final = "next.id."
"""The beginning of a header's key; the id of the broker with the message follows."""
READ_BYTES: Final = 1024 * 1024
LOOK_BACK: Final = (1, 1_000)
"""In so many of the last records the last header is looked for before whole segments are read."""
READ_AT_ONCE: Final = 4
"""The partitions that have decompressed messages in memory at a time."""
TARGET_CHECK_MS: Final = 1_000
FIRST_RETRY_MS: Final = 20
LAST_RETRY_MS: Final = 1_280
"""While a broker starts it is not the controller yet, and leads nothing."""
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class TopicCopies:
    """The copies of a broker: one for each partition of the topics that the setting names."""

    def __init__(self, broker: Parts, logs: ByteLogs, wanted: Mapping[str, str]) -> None:
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self._broker = broker
        self._logs = logs
        self._wanted = wanted
        self._kept = {*INTERNAL_TOPICS, broker.config.ottla_audit_topic}
        """Topics that the broker alone writes."""
        self._refused: set[str] = set()
        """Topics that the log has named as not copied."""
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin with the partitions that are there; others are copied from their first message."""
        for log in self._logs.logs.values():
            self.on_flushed(log)
        self._logs.on_flushed.append(self.on_flushed)
        self._timer = self._broker.runtime.scheduler.call_every(TARGET_CHECK_MS, self.look)

    def look(self) -> None:
        """Wake copies whose partitions of today were deleted, or have other leaders."""
        for copy in self.copies.values():
            copy.look()

    def on_flushed(self, log: ByteLog) -> None:
        """A log has more messages that may be copied."""
        copy = self.copies.get(log.topic_partition)
        if copy is not None:
            copy.news.set()
            return
        topic, number = log.topic_partition
        target = self._target_of(topic)
        if target is None:
            return
        where = TopicPartition(target, number)
        copy = PartitionCopy(self._broker, self._logs, log, where, self._reading)
        self.copies[log.topic_partition] = copy
        name = f"copy {directory_name(log.topic_partition)}"
        self._tasks.append(self._broker.runtime.scheduler.spawn(copy.run(), name))

    def _target_of(self, topic: str) -> str | None:
        """The topic of today for one of the first design; None if it is not copied."""
        target = self._wanted.get(topic, topic if ALL_TOPICS in self._wanted else None)
        if target is None or target in self._kept:
            return None
        if topic not in self._wanted and topic in self._wanted.values():
            if topic not in self._refused:
                self._refused.add(topic)
                logger.error(
                    "%s is not copied: another topic is copied into the one of this name; give it "
                    "another name in first.design.copied.topics",
                    topic,
                )
            return None
        return target

    def stop(self) -> None:
        """Copy no more; the next start continues where each has come to."""
        if self.on_flushed in self._logs.on_flushed:
            self._logs.on_flushed.remove(self.on_flushed)
        if self._timer is not None:
            self._timer.cancel()
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
        self._partition: Partition | None = None
        """The partition of today, while it is copied into, in the epoch in which it is led."""
        self._epoch = NO_EPOCH
        self._begun: tuple[UUID, int] | None = None
        """The id of the topic, and the offset before which its headers are an earlier log's."""

    async def run(self) -> None:
        """Copy until the broker stops; a failed step is tried again."""
        while True:
            try:
                partition = await self._lead()
                # Before the search: a place that is found in one epoch may be cut off in the next.
                self._partition, self._epoch = partition, partition.leader_epoch
                await self._follow(await self._find(partition.log))
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

    def look(self) -> None:
        """Wake a copy that has nothing to do, where its topic is another one, or led by others."""
        if self._epoch != NO_EPOCH and not self._is_led:
            self.news.set()

    # The target

    @property
    def _is_led(self) -> bool:
        """Whether the partition of today is the one that was found, led in the same epoch."""
        found = self._broker.replica_manager.partitions.get(self._target)
        return found is self._partition and found is not None and found.leader_epoch == self._epoch

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
        if broker.link is None:
            await broker.create_topic(topic)
            return
        if len(others) < followers:  # the controller may know more, and would let any of them lead
            problem = f"{topic} needs {followers} other brokers, and {len(others)} are known"
            raise KafkaError.of(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        assignment = {
            number: (own, *(others[(number + place) % len(others)] for place in range(followers)))
            for number in range(self._logs.partition_count(self._source.topic_partition.topic))
        }
        await broker.link.create_topic(topic, assignment)

    async def _find(self, log: Log) -> CopyPlace:
        """Where copying continues: by the last header, else the checkpoint, else the beginning.

        A log that was made again begins at its start: what is known is of another of its name.
        """
        source, end = self._source, log.log_end_offset
        is_begun = self._begun is not None and self._begun[0] == log.topic_id
        place = await self._last_header(log, end) or self._noted(log)
        is_unknown = source.is_new and not is_begun
        if place is not None and (is_unknown or place.id > source.flushed):
            logger.error(
                "%s was made again: %s has messages of an earlier one, up to its id %d, and all "
                "of this one are copied behind them",
                self._name,
                self._target,
                place.id,
            )
            place, is_unknown = None, True
        if is_unknown:
            self._begun = (log.topic_id, end)
            self._logs.copied.pop(source.topic_partition, None)
        return place or CopyPlace(source.start)

    async def _last_header(self, log: Log, end: int) -> CopyPlace | None:
        """The place in the last header of this log's copy; others may have written behind it."""
        begun_id, begun = self._begun or (None, 0)
        first_of_all = max(log.log_start_offset, begun if begun_id == log.topic_id else 0)
        starts = [each.base_offset for each in log.segments.items]
        spans = [(end - count, end) for count in LOOK_BACK]
        spans += [*zip(starts, [*starts[1:], end], strict=True)][::-1]
        for first, last in spans:
            place = await self._last_place(log, max(first, first_of_all), last)
            if place is not None:
                return place
        return None

    def _noted(self, log: Log) -> CopyPlace | None:
        """The place in the checkpoint, if retention has deleted the records before it.

        Otherwise they would be there: the topic is another one, or a power loss took them.
        """
        noted = self._logs.copied.get(self._source.topic_partition)
        if (
            noted is None
            or noted.topic_id not in (log.topic_id, NO_UUID)
            or noted.offset > log.log_start_offset
        ):
            return None
        return CopyPlace(noted.id)

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

    async def _follow(self, place: CopyPlace) -> None:
        """Copy all that is there, and new records, for as long as this broker leads."""
        self._read_bytes = READ_BYTES
        while True:
            self._led()
            self.news.clear()
            place = self._in_range(place)
            region = self._logs.read(self._source.topic_partition, place.id, self._read_bytes)
            if region is None:
                self._note_progress()
                await self.news.wait()
                continue
            self._read_bytes = await self._bytes_to_read(region)
            async with self._reading:
                place = await self._copy(region, place)

    def _led(self) -> Partition:
        """The partition of today; KafkaError where it is another one, or led by others."""
        if self._partition is None or not self._is_led:
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH, f"{self._target} has a new leader")
        return self._partition

    async def _copy(self, region: FileRegion, place: CopyPlace) -> CopyPlace:
        """Copy the messages of a region that begins at a place; returns the place behind them."""
        steps = steps_of(region, place)
        run = self._broker.runtime.background.run
        while found := await run(partial(some_of, steps)):
            await self._append(found)
            place = found[-1].place
            self._note_progress()
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

    async def _append(self, steps: list[CopyStep]) -> None:
        """Append messages in one batch, or in smaller ones where it is too large.

        Raises:
            KafkaError: it is not known whether all of them are in the log.
        """
        for step in steps:
            if step.problem:
                self._leave_out(step.problem)
        copied = [step for step in steps if step.payload is not None]
        if copied:
            await self._append_all(copied)

    async def _append_all(self, steps: list[CopyStep]) -> None:
        topic_id = self._led().topic_id
        now_ms = self._broker.runtime.clock.now_ms()
        batch = build_batch(
            [(now_ms, None, each.payload, ((self._header, each.place.encode()),)) for each in steps]
        )
        result = await self._appended(batch)
        place = steps[-1].place
        if result.error is ErrorCode.NONE:
            if not place.inside:
                noted = CopiedId(place.id, topic_id, result.last_offset + 1)
                self._logs.copied[self._source.topic_partition] = noted
            return
        if result.error not in TOO_LARGE:
            raise KafkaError.of(result.error, f"{self._target}: {result.error.sentence}")
        if len(steps) == 1:
            size = len(steps[0].payload or b"")
            self._leave_out(
                f"the message before {place.encode().decode()} has {size} bytes: {self._target} "
                "refuses it"
            )
            return
        middle = len(steps) // 2
        await self._append_all(steps[:middle])
        await self._append_all(steps[middle:])

    async def _appended(self, batch: bytes) -> PartitionAppendResult:
        done: asyncio.Future[PartitionAppendResult] = asyncio.get_running_loop().create_future()

        def respond(results: Mapping[TopicPartition, PartitionAppendResult]) -> None:
            if not done.done():
                done.set_result(results[self._target])

        manager = self._broker.replica_manager
        records = {self._target: memoryview(bytearray(batch))}
        manager.append_records(APPEND_TIMEOUT_MS, ACKS_ALL, records, respond)
        manager.complete_delayed()  # those that wait for records need not wait longer
        return await done
