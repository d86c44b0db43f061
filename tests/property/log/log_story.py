"""The life of a broker's logs on a recording disk, and what must hold after a crash."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from uuid import UUID

from crash_notes import Notes, at_now, recording_runtime
from log_world import NOW_MS, LogWorld, new_batch, read_all

from ottla.log.log import Log
from ottla.log.log_dir import MetaProperties
from ottla.record.memory_records import batches
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.crash_states import CrashPoint, Fate, RecordingDisk


@dataclass(frozen=True)
class Promise:
    """What holds of a partition: its incarnation, what is acknowledged and flushed, its start."""

    incarnation: int
    acknowledged: int = 0
    flushed: int = 0
    start: int = 0
    is_deleted: bool = False


def topic_id(incarnation: int) -> UUID:
    return UUID(int=incarnation + 1000)


class LogStory:
    """Appends to several partitions, rolls, flushes, checkpoints, retention, truncation, topics
    made and deleted, clean stops, kills and losses of power, in an order that a seed decides.

    A value says where it was written: incarnation of the partition, turn of the story, offset.
    """

    def __init__(self, seed: int, steps: int) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.world = LogWorld(recording_runtime(), **{"log.retention.ms": "-1"})
        self.world.manager.claim(0, "story")
        self.disk: RecordingDisk = self.world.disk
        self.promises: dict[TopicPartition, Promise] = {}
        self.written: set[bytes] = set()
        self.turn = 0
        self.notes: Notes[dict[TopicPartition, Promise]] = Notes()
        self.note()
        for _ in range(3):
            self.create()
        actions = [self.append] * 24 + [self.flush] * 4 + [self.roll] * 3 + [self.checkpoint] * 3
        actions += [self.shorten] * 2 + [self.truncate, self.create, self.delete, self.wait] * 2
        actions += [self.truncate_at_start] * 2
        actions += [self.stop, self.kill, self.lose_power]
        for self.turn in range(steps):
            self.chance.choice(actions)()
            self.world.runtime.scheduler.run_ready()
            self.observe()

    @property
    def trace(self):
        return self.disk.trace

    def note(self) -> None:
        self.notes.add(len(self.disk.trace), dict(self.promises))

    def observe(self) -> None:
        """Promise what the logs themselves do."""
        for partition, promise in self.promises.items():
            log = self.world.manager.get_log(partition)
            if log is not None:
                self.promises[partition] = replace(
                    promise,
                    acknowledged=log.log_end_offset,
                    flushed=log.recovery_point,
                    start=log.log_start_offset,
                )
        self.note()

    def some_log(self) -> Log | None:
        logs = list(self.world.manager.all_logs())
        return self.chance.choice(logs) if logs else None

    # -- what happens

    def append(self) -> None:
        log = self.some_log()
        if log is None:
            return
        incarnation = self.promises[log.topic_partition].incarnation
        start = log.log_end_offset
        count = self.chance.choice([1, 1, 2, 5])
        texts = [b"%d %d %d" % (incarnation, self.turn, start + i) for i in range(count)]
        texts = [text + b" " * self.chance.choice([0, 0, 60]) for text in texts]
        self.written.update(texts)
        header = {}
        if self.chance.random() < 0.6:
            producer_id = self.chance.choice([7, 8])
            state = log.producer_state_manager.producers.get(producer_id)
            sequence = 0 if state is None else state.last_sequence + 1
            header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = new_batch(*texts, timestamp_ms=NOW_MS + start, **header)
        epoch = max(0, log.leader_epoch_cache.latest_epoch)
        log.append_as_leader(memoryview(bytearray(batch)), epoch, now_ms=NOW_MS)
        log.update_high_watermark(log.log_end_offset)

    def flush(self) -> None:
        if log := self.some_log():
            log.flush()

    def roll(self) -> None:
        if log := self.some_log():
            log.roller.roll()

    def checkpoint(self) -> None:
        self.world.manager.checkpoints.write_recovery_points()
        self.world.manager.checkpoints.write_log_start_offsets()
        self.world.manager.checkpoints.write_high_watermarks()

    def shorten(self) -> None:
        """Records are deleted, and retention takes the segments."""
        if log := self.some_log():
            log.update_high_watermark(log.log_end_offset)
            offset = self.chance.randint(log.log_start_offset, log.log_end_offset)
            self.promise(log, start=offset)
            log.maybe_increment_log_start_offset(offset)
            at_once(self.world.manager.delete_old_segments())

    def truncate(self) -> None:
        if log := self.some_log():
            offset = self.chance.randint(log.log_start_offset, log.log_end_offset)
            data = log.read(offset, 1, max_offset=log.log_end_offset, min_one_message=True)
            if data.records is None:
                return
            offset = next(batches(data.records.read())).base_offset  # or it would leave a gap
            if offset < log.log_start_offset:
                return
            self._truncate(log, offset)

    def truncate_at_start(self) -> None:
        """A leader without the records before which this replica has deleted all has others."""
        if log := self.some_log():
            start = log.log_start_offset
            self._truncate(log, self.chance.randint(max(0, start - 4), start))

    def _truncate(self, log: Log, offset: int) -> None:
        known = self.promises[log.topic_partition]
        end = offset if offset > log.log_start_offset else 0  # nothing is left of it
        self.promise(
            log, acknowledged=min(end, known.acknowledged), flushed=min(end, known.flushed)
        )
        self.world.runtime.scheduler.run(self.world.manager.truncate(log, offset))
        log.leader_epoch_cache.assign(log.leader_epoch_cache.latest_epoch + 1, offset)

    def promise(self, log: Log, **changes) -> None:
        known = self.promises[log.topic_partition]
        self.promises[log.topic_partition] = replace(known, **changes)
        self.note()

    def create(self) -> None:
        free = [
            p for p in range(5) if self.world.manager.get_log(TopicPartition("topic", p)) is None
        ]
        if free:
            partition = TopicPartition("topic", self.chance.choice(free))
            self.promises[partition] = Promise(len(self.notes.lengths), is_deleted=True)
            self.note()
            incarnation = self.promises[partition].incarnation
            self.world.manager.get_or_create_log(partition, topic_id(incarnation))
            self.promises[partition] = Promise(incarnation)

    def delete(self) -> None:
        log = self.some_log()
        if log is not None and self.chance.random() < 0.5:
            known = self.promises[log.topic_partition]
            self.promises[log.topic_partition] = Promise(known.incarnation, is_deleted=True)
            self.note()
            self.world.manager.delete_log(log.topic_partition)

    def wait(self) -> None:
        self.world.runtime.advance(1500)

    def stop(self) -> None:
        self._begin_again(clean=True)

    def kill(self) -> None:
        self._begin_again(clean=False)

    def _begin_again(self, *, clean: bool) -> None:
        if clean:
            self.world.stop()
        else:
            self.world.kill()
        self.world.start()
        self._forget_strays()

    def lose_power(self) -> None:
        self.world.kill()
        self.promises = {
            partition: replace(known, acknowledged=known.flushed)
            for partition, known in self.promises.items()
        }
        self.note()
        self.disk.lose_power(self.chance.randrange(1 << 30))
        self.world.start()
        self._forget_strays()

    def _forget_strays(self) -> None:
        """As the controller does: what was deleted is deleted again."""
        for log in list(self.world.manager.all_logs()):
            known = self.promises[log.topic_partition]
            if known.is_deleted or log.topic_id not in (topic_id(known.incarnation), UUID(int=0)):
                self.world.manager.delete_log(log.topic_partition)

    # -- what must hold

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """Start on the disk: all that was promised is there; then it can go on, and stop."""
        promises = self.notes.at(point.length)
        world = LogWorld(at_now(mock_runtime(disk=disk)), **{"log.retention.ms": "-1"})
        owner = world.manager.dirs[0].read_meta_properties()
        assert owner in (None, MetaProperties(0, "story"))
        assert not world.manager._unusable
        held = {}
        for partition, promise in promises.items():
            log = world.manager.get_log(partition)
            if log is None:
                needed = promise.acknowledged if point.fate is Fate.KEPT else promise.flushed
                assert not needed, f"{partition} is gone, with {needed} records"
            elif not promise.is_deleted:
                held[partition] = self.check_log(log, promise, point)
        self.check_future(world, held)

    def check_log(self, log: Log, promise: Promise, point: CrashPoint) -> list[bytes]:
        if log.topic_id == UUID(int=0) or point.fate is Fate.KEPT:
            is_current = True
        else:
            is_current = log.topic_id == topic_id(promise.incarnation)
        needed = promise.acknowledged if point.fate is Fate.KEPT else promise.flushed
        assert log.log_end_offset >= needed, f"{log} lost {needed}"
        assert log.log_start_offset <= promise.start or log.log_start_offset <= needed
        records = read_all(log)
        assert [record.offset for record in records] == list(
            range(log.log_start_offset, log.log_end_offset)
        )
        turns = []
        for record in records:
            assert record.value in self.written
            incarnation, turn, offset = map(int, record.value.split())
            assert offset == record.offset
            turns.append(turn)
            if needed or (is_current and log.topic_id != UUID(int=0)):
                assert incarnation == promise.incarnation, f"{log} has records of a deleted topic"
        assert turns == sorted(turns), f"{log} holds what was truncated behind what was not"
        check_producers(log)
        check_lookups(log)
        return [record.value for record in records]

    def check_future(self, world: LogWorld, held: dict[TopicPartition, list[bytes]]) -> None:
        for partition in held:
            log = world.manager.get_log(partition)
            epoch = max(0, log.leader_epoch_cache.latest_epoch)
            batch = memoryview(bytearray(new_batch(b"new", timestamp_ms=NOW_MS + 9999)))
            log.append_as_leader(batch, epoch, now_ms=NOW_MS)
        world.stop()
        world.start()
        for partition, values in held.items():
            log = world.manager.get_log(partition)
            assert [record.value for record in read_all(log)] == [*values, b"new"]
        world.stop()


def check_producers(log: Log) -> None:
    """The last batch of each idempotent producer is known, so that it is not taken again."""
    last = {}
    for segment in log.segments:
        for batch in batches(segment.file.pread(segment.size, 0)):
            if batch.producer_id >= 0:
                last[batch.producer_id] = (batch.last_sequence, batch.last_offset)
    producers = log.producer_state_manager.producers
    known = {
        producer_id: (state.last_sequence, state.batches[-1].last_offset)
        for producer_id, state in producers.items()
        if state.batches and state.batches[-1].last_offset >= log.segments.first.base_offset
    }
    assert known == last


def check_lookups(log: Log) -> None:
    """Every offset and every time is found through the indexes."""
    for segment in log.segments:
        borders = {}
        position = 0
        for batch in batches(segment.file.pread(segment.size, 0)):
            borders[position] = batch
            position += batch.size_in_bytes
        assert position == segment.size
        for entry in segment.offset_index.entries():
            assert entry.position in borders
            assert borders[entry.position].base_offset <= entry.offset or not entry.position
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        data = log.read(offset, 1, max_offset=log.log_end_offset, min_one_message=True)
        first = next(batches(data.records.read()))
        assert first.base_offset <= offset <= first.last_offset
        timestamp_ms = first.base_timestamp
        found = at_once(log.fetch_offset_by_timestamp(timestamp_ms))
        assert found is not None
        assert found[1] == max(first.base_offset, log.log_start_offset)
