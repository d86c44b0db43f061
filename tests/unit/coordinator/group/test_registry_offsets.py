"""Offsets of clients of before 0.8.1, in the registry."""

import pytest

from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.registry_offsets import RegistryOffsets
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import RegistryError
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class InRegistry:
    """Offsets of old clients over a registry in memory."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.registry = EmbeddedRegistry(self.runtime, "/registry")
        self.run(self.registry.start())
        self.offsets = RegistryOffsets(self.registry, metadata_max_bytes=4)

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def commit(self, group="g", **values):
        partitions = {T0: CommittedOffset(5, **values), U0: CommittedOffset(6)}
        return self.run(self.offsets.commit(group, partitions))

    def fetch(self, group="g"):
        return self.run(self.offsets.fetch(group, [T0, T1, U0]))


def test_offsets_of_old_clients_are_numbers_in_the_registry():
    """Where Kafka 0.8 has them; a second commit takes the place of the first."""
    world = InRegistry()
    for _ in range(2):
        assert world.commit() == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
    data, _ = world.run(world.registry.get("/consumers/g/offsets/t/0"))

    assert data == b"5"
    assert world.fetch() == {T0: 5, T1: None, U0: 6}


@pytest.mark.parametrize(("metadata", "kept"), [("four", True), ("fives", False), ("ééé", False)])
def test_metadata_of_old_clients_is_measured_in_bytes(metadata, kept):
    """It is not kept; a partition with too much of it fails alone."""
    world = InRegistry()
    error = ErrorCode.NONE if kept else ErrorCode.OFFSET_METADATA_TOO_LARGE

    assert world.commit(metadata=metadata) == {T0: error, U0: ErrorCode.NONE}
    assert world.fetch() == {T0: 5 if kept else None, T1: None, U0: 6}


@pytest.mark.parametrize("group", ["", "a/b", "/"])
def test_group_that_can_be_no_node_has_no_offsets_in_the_registry(group):
    """A slash would make its name the path of another one."""
    world = InRegistry()
    invalid = ErrorCode.INVALID_GROUP_ID

    assert world.commit(group) == {T0: invalid, U0: invalid}
    assert {p: found.error for p, found in world.fetch(group).items()} == dict.fromkeys(
        (T0, T1, U0), invalid
    )
    assert world.run(world.registry.children("/")) == []


def test_offset_that_cannot_be_written_fails_alone(monkeypatch):
    """The client hears of it, and what was committed before stays."""
    world = InRegistry()
    world.commit()
    write = world.registry.set

    async def forbid(path, data, *version):
        if path == "/consumers/g/offsets/t/0":
            raise RegistryError(f"{path}: ZooKeeper's ACLs do not permit it")
        return await write(path, data, *version)

    monkeypatch.setattr(world.registry, "set", forbid)
    committed = world.run(
        world.offsets.commit("g", {T0: CommittedOffset(8), U0: CommittedOffset(9)})
    )

    assert committed == {T0: ErrorCode.UNKNOWN_SERVER_ERROR, U0: ErrorCode.NONE}
    assert world.fetch() == {T0: 5, T1: None, U0: 9}


def test_offset_that_cannot_be_read_fails_alone():
    """Somebody has written something else there."""
    world = InRegistry()
    world.commit()
    world.run(world.registry.set("/consumers/g/offsets/t/0", b"five", -1))
    found = world.fetch()

    assert isinstance(found[T0], KafkaError)
    assert (found[T1], found[U0]) == (None, 6)
