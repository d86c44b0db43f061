"""A log against a list: whatever is done to it, it holds what the list holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from breadth import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_world import NOW_MS, LogWorld, read_all

from ottla.log.log_retention import delete_old_segments
from ottla.log.log_truncation import truncate_to
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.memory_records import batches
from ottla.runtime.scheduler import at_once


@dataclass
class Model:
    """What the log must hold: (offset, timestamp, value) of each record, and its edges."""

    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    batch_starts: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    flushed: int = 0

    def visible(self) -> list[tuple[int, int, bytes]]:
        return [record for record in self.records if record[0] >= self.start]

    def cut(self, offset: int) -> None:
        """Drop the batch that holds an offset and those behind it."""
        holding = [start for start in self.batch_starts if start <= offset]
        border = holding[-1] if holding and offset < self.end else offset
        self.records = [record for record in self.records if record[0] < border]
        self.batch_starts = [start for start in self.batch_starts if start < border]


class LogMachine(RuleBasedStateMachine):
    """Appends, rolls, truncations, deletions, flushes, crashes and clean stops in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LogWorld()
        self.model = Model()
        self.counter = 0
        self.sequence = 0

    @initialize(segment_bytes=st.sampled_from([200, 1000, 100_000]), interval=st.integers(0, 500))
    def configure(self, segment_bytes: int, interval: int) -> None:
        self.world.configure(
            segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1
        )

    @property
    def log(self):
        return self.world.log()

    @rule(
        ages=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
        codec=st.sampled_from(CompressionType),
        epoch=st.integers(0, 3),
    )
    def append(self, ages: list[int], codec: CompressionType, epoch: int) -> None:
        records = []
        for age in ages:
            records.append((NOW_MS - age, b"k", b"%d" % self.counter, ()))
            self.counter += 1
        batch = build_batch(
            records, codec, producer_id=1, producer_epoch=0, base_sequence=self.sequence
        )
        epoch = max(epoch, self.log.leader_epoch_cache.latest_epoch)
        for is_duplicate in (False, True):
            info = self.log.append_as_leader(
                memoryview(bytearray(batch)), epoch, now_ms=self.world.runtime.clock.now_ms()
            )
            assert (info.first_offset, info.is_duplicate) == (self.model.end, is_duplicate)
        self.model.batch_starts.append(self.model.end)
        for timestamp_ms, _, value, _ in records:
            self.model.records.append((self.model.end, timestamp_ms, value))
            self.model.end += 1
        self.sequence += len(records)
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roller.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.world.runtime.scheduler.run_ready()
        self.model.flushed = self.log.recovery_point
        assert self.model.flushed == self.model.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Down to a border of batches, or to the end, as leaders and followers agree on."""
        borders = [start for start in self.model.batch_starts if start >= self.model.start]
        offset = [*borders, self.model.end][int(share * len(borders))]
        truncate_to(self.log, offset)
        self._cut(offset)
        # A power loss could undo this; followers find that out by the leader's epochs.
        self.world.disk.sync_all()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.model.start + int(share * (self.model.end - self.model.start))
        self.log.maybe_increment_log_start_offset(offset)
        self.model.start = offset
        delete_old_segments(self.log, NOW_MS)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """The end of the process loses nothing but a log start that was not checkpointed."""
        log = self.world.restart(clean=clean)
        log.update_high_watermark(log.log_end_offset)
        if clean:
            assert self.log.log_start_offset == self.model.start
        self.model.start = self.log.log_start_offset
        self.model.flushed = self.log.recovery_point

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        """What was flushed is there; behind it the log may end anywhere."""
        self.world.manager.checkpoints.write_recovery_points()
        self.world.runtime.scheduler.run_ready()
        self.world.disk.crash(random.Random(seed))
        log = self.world.restart()
        log.update_high_watermark(log.log_end_offset)
        assert log.log_end_offset >= self.model.flushed
        self.model.start = log.log_start_offset
        self._cut(log.log_end_offset)
        self.model.flushed = log.recovery_point

    def _cut(self, offset: int) -> None:
        self.model.cut(offset)
        self.model.end = offset
        self.model.flushed = min(self.model.flushed, offset)
        state = self.log.producer_state_manager.producers.get(1)
        self.sequence = 0 if state is None else state.last_sequence + 1

    @invariant()
    def edges_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(share=st.floats(0, 0.999), max_bytes=st.integers(1, 2000))
    def read(self, share: float, max_bytes: int) -> None:
        """From any offset, with any limit: whole batches, and all of them from the right one on."""
        start = self.model.start + int(share * (self.model.end - self.model.start))
        records = read_all(self.log, start, max_bytes)
        expected = [record for record in self.model.visible() if record[0] >= start]
        assert [(r.offset, r.timestamp_ms, r.value) for r in records] == expected

        data = self.log.read(start, max_bytes, max_offset=self.model.end, min_one_message=True)
        read = list(batches(data.records.read()))
        assert read[0].base_offset <= start
        assert read[-1].position + read[-1].size_in_bytes == data.records.size
        assert data.records.size <= max_bytes or len(read) == 1

    @rule(age=st.integers(-5, 1005))
    def find_by_time(self, age: int) -> None:
        found = at_once(self.log.fetch_offset_by_timestamp(NOW_MS - age))
        late = [record for record in self.model.visible() if record[1] >= NOW_MS - age]
        assert (None if found is None else (found[1], found[0])) == (late[0][:2] if late else None)

    @rule()
    def find_latest(self) -> None:
        found = at_once(self.log.fetch_offset_by_timestamp(-3))
        visible = self.model.visible()
        latest = max(visible, key=lambda record: (record[1], -record[0]), default=None)
        assert (None if found is None else (found[1], found[0])) == (latest[:2] if latest else None)


LogMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestLogModel = LogMachine.TestCase
