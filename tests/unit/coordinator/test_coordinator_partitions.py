"""Partitions that are read in steps, and given up or failed meanwhile."""

from __future__ import annotations

import struct
from itertools import pairwise

import group_world
import pytest
from coordinator_world import TransactionWorld

from ottla.coordinator import coordinator_partitions
from ottla.coordinator.coordinator_partitions import (
    FIRST_RELOAD_MS,
    LAST_RELOAD_MS,
    REPLICATION_POLL_MS,
    CoordinatorPartitions,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime, scheduler
from ottla.runtime.scheduler import Work
from ottla.testing import mock_runtime


class Loader:
    """Takes some steps, the last of which may fail."""

    def __init__(self, partition: int, steps: int = 2, error: Exception | None = None) -> None:
        self.partition = partition
        self.left = steps
        self.error = error

    def step(self) -> bool:
        self.left -= 1
        if self.error is not None and not self.left:
            raise self.error
        return self.left > 0

    def give_up(self) -> Work[None]:
        yield from ()


class Log:
    """How much of partition 3 this broker and its in-sync replicas have."""

    end = 5
    high_watermark = 5
    succeeded_ms = -1
    """Before that time this broker did not run for a while."""

    def end_offset(self, partition: int) -> int:
        return self.end

    def is_committed(self, partition: int, offset: int) -> bool:
        return self.high_watermark > offset

    def may_be_succeeded(self, since_ms: int) -> bool:
        return since_ms < self.succeeded_ms


class World:
    def __init__(self) -> None:
        self.runtime = runtime = mock_runtime()
        self.scheduler = runtime.scheduler
        self.log = Log()
        self.partitions: CoordinatorPartitions[Loader] = CoordinatorPartitions(
            runtime, self.log, "topic"
        )
        self.finished: list[Loader] = []

    def finish(self, loader: Loader) -> Work[None]:
        yield
        self.finished.append(loader)

    def begin(self, loader: Loader) -> Loader:
        self.partitions.load(loader.partition, lambda: loader, self.finish)
        return loader


@pytest.fixture
def world():
    return World()


def test_partition_is_finished_when_all_has_been_read(world):
    """Clients are told to wait until then, and before and after that it is somebody else's."""
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR
    loader = world.begin(Loader(3))
    assert world.partitions.availability(3) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.partitions.is_loading

    world.scheduler.run_ready()

    assert world.finished == [loader]
    assert world.partitions.availability(3) is ErrorCode.NONE
    assert list(world.partitions.last_loads_ms) == [0]
    assert not world.partitions.is_loading
    world.partitions.unload(3)
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR


def test_partition_may_be_somebody_elses_where_this_broker_did_not_run(world):
    """From memory a commit was said to be done that was then aborted, and a healthy member fenced.

    What was loaded since is answered for.
    """
    for partition in (3, 4):
        world.begin(Loader(partition))
    world.runtime.advance(1_000)
    world.log.succeeded_ms = world.runtime.clock.monotonic_ms()
    before = [world.partitions.availability(partition) for partition in (3, 4)]
    world.partitions.unload(3)
    world.begin(Loader(3))
    world.scheduler.run_ready()

    assert before == [ErrorCode.NOT_COORDINATOR] * 2
    assert world.partitions.availability(3) is ErrorCode.NONE
    assert world.partitions.availability(4) is ErrorCode.NOT_COORDINATOR


def test_partition_is_read_when_its_in_sync_replicas_have_it(world):
    """What comes behind, as markers of transactions do, is not waited for."""
    world.log.high_watermark = 4
    loader = world.begin(Loader(3, steps=1))
    world.runtime.advance(60_000)
    assert loader.left == 1
    assert world.partitions.availability(3) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    world.log.end, world.log.high_watermark = 7, 5
    world.runtime.advance(REPLICATION_POLL_MS)

    assert world.finished == [loader]


def test_partition_without_a_record_is_read_at_once(world):
    """There is nothing that others could lack."""
    world.log.end = world.log.high_watermark = 0
    loader = world.begin(Loader(3))
    world.scheduler.run_ready()

    assert world.finished == [loader]


def test_partition_that_is_given_up_before_its_replicas_have_it_is_not_read(world):
    """Another leader does that."""
    world.log.high_watermark = 4
    loader = world.begin(Loader(3))
    world.scheduler.run_ready()
    world.partitions.unload(3)
    world.log.high_watermark = 5
    world.runtime.advance(60_000)

    assert loader.left == 2
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR


def test_partition_is_read_once(world):
    """Whoever asks again, meanwhile or later."""
    loader = world.begin(Loader(3))
    world.begin(Loader(3))
    world.scheduler.run_ready()
    world.begin(Loader(3))
    world.scheduler.run_ready()

    assert world.finished == [loader]


ERRORS = [KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad"), OSError("gone"), struct.error("short")]


@pytest.mark.parametrize("error", ERRORS)
def test_partition_that_cannot_be_read_is_tried_again(world, error):
    """Whatever the error is: no other broker would coordinate it. Others go on."""
    tries = iter([Loader(3, error=error), Loader(3, error=error), last := Loader(3)])
    world.partitions.load(3, lambda: next(tries), world.finish)
    other = world.begin(Loader(4, steps=5))
    world.scheduler.run_ready()
    assert world.finished == [other]
    assert world.partitions.availability(3) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.partitions.availability(4) is ErrorCode.NONE

    world.runtime.advance(FIRST_RELOAD_MS)
    assert world.finished == [other]
    world.runtime.advance(2 * FIRST_RELOAD_MS)

    assert world.finished == [other, last]
    assert world.partitions.availability(3) is ErrorCode.NONE


def test_partition_is_tried_again_every_half_minute_in_the_end(world):
    """A disk that stays broken is not read all the time, and not given up."""
    begun = []

    def new_loader():
        begun.append(world.runtime.clock.monotonic_ms())
        return Loader(3, steps=1, error=OSError("gone"))

    world.partitions.load(3, new_loader, world.finish)
    world.runtime.advance(10 * LAST_RELOAD_MS)
    waits = [after - before for before, after in pairwise(begun)]

    assert waits[:3] == [FIRST_RELOAD_MS, 2 * FIRST_RELOAD_MS, 4 * FIRST_RELOAD_MS]
    assert waits[-1] == LAST_RELOAD_MS
    assert max(waits) == LAST_RELOAD_MS


def test_partition_that_was_given_up_is_not_tried_again(world):
    """Another broker leads it by then."""
    begun = []

    def new_loader():
        begun.append(loader := Loader(3, error=OSError("gone")))
        return loader

    world.partitions.load(3, new_loader, world.finish)
    world.scheduler.run_ready()
    world.partitions.unload(3)
    world.runtime.advance(10 * LAST_RELOAD_MS)

    assert len(begun) == 1
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR


def test_partition_whose_state_cannot_be_taken_over_is_tried_again(world):
    """Nothing is served of a partition that was taken over by halves."""
    seen = []

    def on_finished(loader):
        yield
        seen.append(loader)
        if len(seen) == 1:
            raise ValueError("a bug")

    world.partitions.load(3, lambda: Loader(3), on_finished)
    world.runtime.advance(FIRST_RELOAD_MS)

    assert len(seen) == 2
    assert world.partitions.availability(3) is ErrorCode.NONE


def test_partition_given_up_and_begun_again_is_finished_once(world):
    """By the second loader."""
    world.begin(Loader(3))
    world.partitions.unload(3)
    second = world.begin(Loader(3))
    world.partitions.unload(9)
    world.scheduler.run_ready()

    assert world.finished == [second]


@pytest.mark.parametrize("steps", [1, 2, 50])
@pytest.mark.parametrize("coordinator", ["groups", "transactions"])
def test_what_was_read_of_a_partition_that_is_given_up_is_freed_in_slices(
    monkeypatch, coordinator, steps
):
    """There may be a million offsets, or ids; which take a part of a second."""
    monkeypatch.setattr(scheduler, "FREED_AT_ONCE", 4)
    monkeypatch.setattr(coordinator_partitions, "RECORDS_PER_STEP", 10)
    found: list[Work[None]] = []
    monkeypatch.setattr(Runtime, "begin", lambda self, work, name: found.append(work))
    if coordinator == "groups":
        world = group_world.World()
        for number in range(30):
            world.commit(1, partition=number, group=f"g{number % 7}")
        manager = world.coordinator.manager
    else:
        world = TransactionWorld()
        for number in range(30):
            world.init(transactional_id=f"x{number}")
        manager = world.coordinator.manager
    world.coordinator.on_resignation(0)
    found.clear()
    world.coordinator.on_election(0)
    (loader,) = manager.partitions.loaders
    for _ in range(steps):
        loader.step()
    world.coordinator.on_resignation(0)

    assert sum(1 for _ in found[0]) == min(10 * steps, 30) // 4
    assert not any(loader.tables())
    assert not loader.step()
