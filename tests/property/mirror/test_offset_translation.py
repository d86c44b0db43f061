"""Translation of offsets over a thousand random histories of a partition."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right

import pytest
from breadth import examples

from ottla.clients.mirror_records import OffsetSync
from ottla.mirror.checkpoint import GroupCheckpoints
from ottla.mirror.failback import backwards
from ottla.mirror.offset_sync import (
    SLOTS,
    OffsetSyncQueue,
    OffsetSyncStore,
    SyncedPartition,
    is_apart,
    is_near,
)
from ottla.structs import TopicPartition

SOURCE, TARGET = TopicPartition("pages", 0), TopicPartition("a.pages", 0)
HISTORIES = 10 * examples(100)
LAGS = (0, 1, 10, 100)


def runs_of(chance: random.Random):
    """Runs of records (upstream, downstream, count), with gaps on both sides."""
    upstream, downstream = chance.choice((0, 5_000)), chance.choice((0, 70))
    for _ in range(chance.randint(1, 30)):
        count = chance.choice((1, 2, 7, 150, 1000))
        yield upstream, downstream, count
        upstream += count + chance.choice((0, 0, 0, 1, 40))
        downstream += count + chance.choice((0, 0, 0, 1, 3))


class Copied:
    """Runs of records that were copied: for an offset on one side, the offset on the other."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.runs: list[tuple[int, int, int]] = []

    def add(self, here: int, there: int, count: int) -> None:
        self.ends.append(here + count)
        self.runs.append((here, there, count))

    @property
    def end(self) -> tuple[int, int]:
        """Behind the last record, on both sides."""
        here, there, count = self.runs[-1]
        return here + count, there + count

    def other_side(self, position: int) -> int:
        """Where the first record from `position` on is, or what comes behind the last one."""
        index = bisect_right(self.ends, position)
        if index == len(self.runs):
            return self.end[1]
        here, there, _ = self.runs[index]
        return there + max(0, position - here)


def test_other_side_is_that_of_the_record():
    """The runs give what a list of all records would."""
    for seed in range(50):
        copied, records = Copied(), []
        for upstream, downstream, count in runs_of(random.Random(seed)):
            copied.add(upstream, downstream, count)
            records += [(upstream + each, downstream + each) for each in range(count)]
        assert copied.end == (records[-1][0] + 1, records[-1][1] + 1)
        for position in range(records[0][0] - 3, copied.end[0] + 3, 13):
            index = bisect_left(records, (position, -1))
            expected = records[index][1] if index < len(records) else copied.end[1]
            assert copied.other_side(position) == expected


@pytest.mark.parametrize("block", range(10))
def test_no_translation_is_above_the_true_offset_or_goes_backwards(block):
    """However syncs were thinned, lost in a restart, or late: a group skips nothing."""
    for seed in range(block * HISTORIES // 10, (block + 1) * HISTORIES // 10):
        chance = random.Random(seed)
        copied = Copied()  # from upstream to downstream
        written: list[OffsetSync] = []
        queue = OffsetSyncQueue(chance.choice(LAGS))
        groups = GroupCheckpoints()
        store = OffsetSyncStore()
        store.finish_loading()
        position = 0
        emitted = -1
        for upstream, downstream, count in runs_of(chance):
            copied.add(upstream, downstream, count)
            queue.on_copied(SOURCE, upstream, downstream, count)
            if chance.random() < 0.3:
                queue.on_commit()
            for sync in queue.take() if chance.random() < 0.8 else []:
                written.append(sync)
                store.add(sync)
            if chance.random() < 0.1:  # a task that starts again, with its checkpoints
                store = OffsetSyncStore()
                for sync in written:
                    store.add(sync)
                store.finish_loading()
            end = upstream + count
            position = chance.choice((position, chance.randint(position, end), end))
            for checkpoint in groups.next("g", {SOURCE: (position, "")}, {SOURCE: TARGET}, store):
                groups.add(checkpoint)
                assert checkpoint.downstream <= copied.other_side(position), f"seed {seed}"
                assert checkpoint.downstream >= emitted, f"seed {seed}"
                emitted = checkpoint.downstream


def test_no_translation_back_is_above_the_true_offset():
    """A group that returns to the source skips nothing, wherever it was in the copy."""
    translated = 0
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        copied = Copied()  # from downstream to upstream
        written: list[OffsetSync] = []
        queue = OffsetSyncQueue(chance.choice(LAGS))
        for upstream, downstream, count in runs_of(chance):
            copied.add(downstream, upstream, count)
            queue.on_copied(SOURCE, upstream, downstream, count)
            if chance.random() < 0.3:
                queue.on_commit()
            written += queue.take() if chance.random() < 0.8 else []
        store = backwards(written)
        for _ in range(20):
            position = chance.randint(0, copied.end[0])
            found = store.translate(SOURCE, position)
            if found is not None and found >= 0:
                assert found <= copied.other_side(position), f"seed {seed}"
                translated += 1
    assert translated > HISTORIES * 5


@pytest.mark.parametrize("lag", LAGS)
def test_runs_are_judged_as_record_by_record(lag):
    """The arithmetic for a batch gives what Kafka's rule gives for each of its records."""
    for seed in range(200):
        chance = random.Random(seed)
        fast = SyncedPartition(lag)
        synced = upstream_before = downstream_before = -1
        for upstream, downstream, count in runs_of(chance):
            if chance.random() < 0.1:
                downstream = max(0, downstream - 500)
            due = []
            for index in range(count):
                up, down = upstream + index, downstream + index
                if (
                    synced == -1
                    or down - (synced + 1) >= lag
                    or up != upstream_before + 1
                    or down < downstream_before
                ):
                    due.append(index)
                    synced = down
                upstream_before, downstream_before = up, down
            assert fast.advance(upstream, downstream, count) == due, f"seed {seed}"


def test_slots_keep_their_distances():
    """Invariants B and C hold after every sync, whatever the distances."""
    for seed in range(50):
        chance = random.Random(seed)
        store, upstream = OffsetSyncStore(), 0
        for _ in range(300):
            upstream += chance.choice((1, 1, 2, 100, 10_000))
            store.add(OffsetSync(SOURCE, upstream, upstream))
            slots = store._slots[SOURCE]
            for i in range(SLOTS - 1):
                assert is_near(slots[i], slots[i + 1], i, i + 1), f"seed {seed}, slot {i}"
                assert is_apart(slots[i], slots[i + 1], i), f"seed {seed}, slot {i}"
