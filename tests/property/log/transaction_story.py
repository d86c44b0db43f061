"""The life of a compacted log on a recording disk, written to in transactions that end or not."""

from __future__ import annotations

from cleaner_world import CleanerWorld
from compaction_model import Entry, Model, dictionary_of
from crash_notes import OneLogStory, at_now, recording_runtime

from ottla.record.memory_records import batches
from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.crash_states import CrashPoint

PRODUCERS = (1, 2, 3)
# Of each turn: who writes, and then how the transactions of whom end.
WRITES = [1, 2, 1, 3, 3, 2]
ENDS = [[(1, False), (2, True)], [(3, False), (1, True)], [(2, False), (3, True), (1, False)]]


class TransactionStory(OneLogStory):
    """Three producers overwrite few keys; some transactions are aborted, some stay open long."""

    def __init__(self) -> None:
        super().__init__(CleanerWorld(runtime=recording_runtime()))
        self.model = Model()
        self.world.log().flush()
        self.world.runtime.scheduler.run_ready()
        for turn in range(2 * len(ENDS)):
            self.live(turn)

    def live(self, turn: int) -> None:
        for number, producer_id in enumerate(WRITES):
            entry = Entry(b"%d" % (number % 3), b"%d-%d" % (turn, number), producer_id)
            sequence = turn * WRITES.count(producer_id)
            sequence += WRITES[:number].count(producer_id)
            header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.model.entries.append(entry)
            self.world.put(entry[:2], is_transactional=True, **header)
            self.note()
        for producer_id, is_commit in ENDS[turn % len(ENDS)]:
            if self.model.has_open_transaction(producer_id):
                self.model.entries.append(Entry(None, None, producer_id, is_commit))
                self.world.end_transaction(producer_id, is_commit)
                self.note()
        self.world.roll()
        self.note()
        if turn % 2:
            self.world.clean()
        self.world.manager.checkpoints.write_recovery_points()
        self.world.runtime.advance(6000)
        self.note()

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """Committed records are a dictionary, aborted ones are told of; then all of them end."""
        world = CleanerWorld(runtime=at_now(mock_runtime(disk=disk)))
        log = world.log()
        self.check_end(log, point)
        log.update_high_watermark(log.log_end_offset)
        model = Model()
        model.entries = self.model.entries[: log.log_end_offset]
        assert log.last_stable_offset == first_open(model)
        check_dictionary(world, model)
        check_told(world, model)
        for producer_id in PRODUCERS:
            if model.has_open_transaction(producer_id):
                world.end_transaction(producer_id, commit=False)
                model.entries.append(Entry(None, None, producer_id, is_commit=False))
        world.roll_and_clean()
        assert log.last_stable_offset == log.log_end_offset
        check_dictionary(world, model)
        world.stop()


def first_open(model: Model) -> int:
    """The offset of the first record of a transaction that has not ended; else the end."""
    found = len(model.entries)
    for producer_id in PRODUCERS:
        if model.has_open_transaction(producer_id):
            offsets = [n for n, each in enumerate(model.entries) if each.producer_id == producer_id]
            ends = [n for n in offsets if model.entries[n].key is None]
            found = min(found, next(n for n in offsets if not ends or n > ends[-1]))
    return found


def check_dictionary(world: CleanerWorld, model: Model) -> None:
    last = model.last_records(world.log().last_stable_offset)
    assert dictionary_of(world, model) == {
        key: value for key, (_, value) in last.items() if value is not None
    }


def check_told(world: CleanerWorld, model: Model) -> None:
    """Wherever a reader begins: it is told of exactly the transactions that it must leave out."""
    log = world.log()
    stable = log.last_stable_offset
    for start in range(log.log_start_offset, stable, 2):
        data = log.read(start, 200, max_offset=stable, min_one_message=True)
        if data.records is None:
            continue
        told = log.aborted_transactions(data, stable)
        for batch in batches(data.records.read()):
            for offset in range(batch.base_offset, batch.next_offset):
                if batch.is_control or not batch.record_count:
                    continue
                is_told = any(
                    entry.producer_id == batch.producer_id
                    and entry.first_offset <= offset <= entry.last_offset
                    for entry in told
                )
                assert is_told != model.is_committed(offset)
