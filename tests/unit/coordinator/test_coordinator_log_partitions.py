"""Partitions that are read in steps, and given up or failed meanwhile."""

from __future__ import annotations

import pytest

from ottla.coordinator.coordinator_log import CoordinatorPartitions
from ottla.errors import ErrorCode, KafkaError
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


class World:
    def __init__(self) -> None:
        runtime = mock_runtime()
        self.scheduler = runtime.scheduler
        self.partitions: CoordinatorPartitions[Loader] = CoordinatorPartitions(runtime, "topic")
        self.finished: list[Loader] = []

    def begin(self, loader: Loader) -> Loader:
        self.partitions.load(loader.partition, lambda: loader, self.finished.append)
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
    assert not world.partitions.is_loading
    world.partitions.unload(3)
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR


def test_partition_is_read_once(world):
    """Whoever asks again, meanwhile or later."""
    loader = world.begin(Loader(3))
    world.begin(Loader(3))
    world.scheduler.run_ready()
    world.begin(Loader(3))
    world.scheduler.run_ready()

    assert world.finished == [loader]


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad"), OSError("gone")])
def test_partition_that_cannot_be_read_is_never_finished(world, error):
    """Others go on."""
    world.begin(Loader(3, error=error))
    other = world.begin(Loader(4, steps=5))
    world.scheduler.run_ready()

    assert world.finished == [other]
    assert world.partitions.availability(3) is ErrorCode.NOT_COORDINATOR
    assert world.partitions.availability(4) is ErrorCode.NONE


def test_partition_given_up_and_begun_again_is_finished_once(world):
    """By the second loader."""
    world.begin(Loader(3))
    world.partitions.unload(3)
    second = world.begin(Loader(3))
    world.partitions.unload(9)
    world.scheduler.run_ready()

    assert world.finished == [second]
