"""A compacted log against a dictionary: written to, compacted, killed and cut off in any order."""

from __future__ import annotations

import random

from cleaner_world import CleanerWorld
from compaction_model import Entry, Model, dictionary_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.record.compression import CompressionType

PRODUCERS = (1, 2)
DELETE_RETENTION_MS = 5000
FOREVER = 1_000_000
OPERATIONS = ["open", "pwrite", "rename", "unlink", "replace", "fsync", "fsync_dir"]


class CompactionMachine(RuleBasedStateMachine):
    """Produces with and without transactions, rolls, compacts, lets time pass, kills."""

    def __init__(self) -> None:
        super().__init__()
        self.world = CleanerWorld()
        self.model = Model()
        self.flushed = 0
        self.counter = 0

    @initialize(segment_bytes=st.sampled_from([300, 1000, 100_000]))
    def configure(self, segment_bytes: int) -> None:
        self.world.configure(segment_bytes=segment_bytes, index_interval_bytes=100)

    @property
    def log(self):
        return self.world.log()

    # -- writing

    def _value(self, is_tombstone: bool) -> bytes | None:
        self.counter += 1
        return None if is_tombstone else b"%d" % self.counter

    @rule(
        records=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4),
        codec=st.sampled_from(CompressionType),
        producer_id=st.sampled_from([None, None, *PRODUCERS]),
    )
    def produce(self, records, codec: CompressionType, producer_id: int | None) -> None:
        entries = [
            Entry(b"%d" % key, self._value(is_tombstone), producer_id)
            for key, is_tombstone in records
        ]
        header = {}
        if producer_id is not None:
            state = self.log.producer_state_manager.producers.get(producer_id)
            sequence = 0 if state is None else state.last_sequence + 1
            header = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        self.world.put(*(entry[:2] for entry in entries), compression=codec, **header)
        self.model.entries += entries

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        if self.model.has_open_transaction(producer_id):
            self.world.end_transaction(producer_id, is_commit)
            self.model.entries.append(Entry(None, None, producer_id, is_commit))

    @rule()
    def roll(self) -> None:
        self.world.roll()
        self.flushed = self.log.recovery_point

    @rule(ms=st.sampled_from([1000, DELETE_RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.world.runtime.advance(ms)

    # -- compacting

    @rule()
    def compact(self) -> None:
        """What has been compacted holds the last record of each key, and nothing else."""
        self.world.clean()
        end = self.log.cleaned_offset
        assert not self.world.cleaner.uncleanable
        last = self.model.last_records(end)
        expected = {offset for offset, value in last.values() if value is not None}
        tombstones = {offset for offset, value in last.values() if value is None}
        found = {record.offset for record in self.world.records() if record.offset < end}
        assert expected <= found <= expected | tombstones

    @rule(
        operation=st.sampled_from(OPERATIONS),
        skip=st.integers(0, 40),
        seed=st.none() | st.integers(0, 100),
    )
    def die_while_compacting(self, operation: str, skip: int, seed: int | None) -> None:
        """The disk stops working at some call; then the process or the power ends."""
        self.world.runtime.scheduler.run_ready()
        faults = [
            self.world.disk.fail(name, times=FOREVER, skip=skip if name == operation else FOREVER)
            for name in OPERATIONS
        ]
        self.world.clean()
        if all(fault.times == FOREVER for fault in faults):
            self.world.disk.faults.clear()
            return
        for fault in faults:
            fault.skip = 0
        self.world.runtime.advance(2000)
        self.world.disk.faults.clear()
        if seed is None:
            self._restart()
        else:
            self._lose_power(seed)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self._restart(clean=clean)

    @rule(seed=st.integers(0, 100))
    def lose_power(self, seed: int) -> None:
        self._lose_power(seed)

    def _restart(self, *, clean: bool = False) -> None:
        producers = self._producers()
        log = self.world.restart(clean=clean)
        log.update_high_watermark(log.log_end_offset)
        self.flushed = log.recovery_point
        assert log.log_end_offset == len(self.model.entries)
        assert self._producers() == producers

    def _lose_power(self, seed: int) -> None:
        self.world.manager.checkpoint_recovery_points()
        self.world.runtime.scheduler.run_ready()
        self.world.disk.crash(random.Random(seed))
        log = self.world.restart()
        log.update_high_watermark(log.log_end_offset)
        assert log.log_end_offset >= self.flushed
        del self.model.entries[log.log_end_offset :]
        self.flushed = log.recovery_point

    def _producers(self) -> dict[int, tuple[int, int]]:
        """What makes a retry harmless, and who has a transaction open."""
        return {
            producer_id: (state.last_sequence, state.current_txn_first_offset)
            for producer_id, state in self.log.producer_state_manager.producers.items()
        }

    # -- reading

    @invariant()
    def records_are_the_last_ones(self) -> None:
        """Each is what was appended there, in order; committed ones make up the dictionary."""
        expected = self.model.last_records(self.log.last_stable_offset)
        assert dictionary_of(self.world, self.model) == {
            key: value for key, (_, value) in expected.items() if value is not None
        }

    @invariant()
    def no_file_is_left_over(self) -> None:
        assert not self.world.leftovers()


CompactionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestCompaction = CompactionMachine.TestCase
