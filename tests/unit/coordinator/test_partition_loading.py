"""Partitions that are read in steps, and given up or failed meanwhile."""

from __future__ import annotations

import pytest

from ottla.coordinator.partition_loading import PartitionLoading
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
        self.scheduler = mock_runtime().scheduler
        self.loading: PartitionLoading[Loader] = PartitionLoading(self.scheduler, "topic")
        self.finished: list[Loader] = []

    def begin(self, loader: Loader) -> Loader:
        self.loading.begin(loader, self.finished.append)
        return loader


@pytest.fixture
def world():
    return World()


def test_partition_is_finished_when_all_has_been_read(world):
    """And is among those that are loading until then."""
    loader = world.begin(Loader(3))
    assert 3 in world.loading
    assert world.loading

    world.scheduler.run_ready()

    assert world.finished == [loader]
    assert 3 not in world.loading
    assert not world.loading


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad"), OSError("gone")])
def test_partition_that_cannot_be_read_is_never_finished(world, error):
    """Others go on."""
    world.begin(Loader(3, error=error))
    other = world.begin(Loader(4, steps=5))
    world.scheduler.run_ready()

    assert world.finished == [other]
    assert not world.loading


def test_partition_given_up_and_begun_again_is_finished_once(world):
    """By the second loader."""
    world.begin(Loader(3))
    world.loading.give_up(3)
    second = world.begin(Loader(3))
    world.loading.give_up(9)
    world.scheduler.run_ready()

    assert world.finished == [second]
