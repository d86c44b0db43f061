"""Nodes that somebody else has spoilt: what they are about suffers, and nothing beside it."""

from __future__ import annotations

import pytest

from ottla.controller.entity_configs import TOPICS
from ottla.controller.new_topic import NewTopic
from ottla.registry import paths
from ottla.registry.tree import create_or_set
from ottla.structs import NO_LEADER, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(make_world):
    """Two brokers with two partitions, the first of which is broker 0's alone."""
    world = make_world(broker_count=2)
    world.create(NewTopic("t", assignment={0: (0, 1), 1: (1, 0)}))
    return world


def spoil(world, path):
    world.run(create_or_set(world.registry, path, b"{spoilt"))


def test_partition_whose_state_cannot_be_read_has_no_leader(world, caplog):
    """The next controller led nothing at all, and was the controller all the same."""
    spoil(world, paths.partition_state(*T0))
    world.restart()

    assert world.controller.is_active
    assert world.controller.context.state(T0) is None
    assert world.state(T1).leader == 1
    assert "/brokers/topics/t/partitions/0/state is not readable" in caplog.text
    world.kill(1)
    assert world.state(T1).leader == 0


def test_overrides_that_cannot_be_read_keep_nobody_from_leading(world, caplog):
    """An election of one topic asked for them, and those of all others were forgotten with it."""
    world.create(NewTopic("a", assignment={0: (1,)}))
    spoil(world, paths.config(TOPICS, "a"))
    world.kill(1)

    assert world.state(T1).leader == 0
    assert world.state(TopicPartition("a", 0)).leader == NO_LEADER
    assert "no unclean leader of a:" in caplog.text


def test_node_beside_the_brokers_is_no_broker(world):
    """Whatever somebody has put there, brokers come and go."""
    world.write(f"{paths.BROKER_IDS}/notes", b"")
    world.kill(1)

    assert list(world.controller.context.brokers) == [0]
    assert world.state(T1).leader == 0


def test_controller_that_cannot_begin_makes_room(world, monkeypatch, caplog):
    """It stayed what it was, half a controller, and nobody else could be elected."""
    from ottla.controller.topic_changes import TopicChanges
    from ottla.errors import ErrorCode, KafkaError

    async def fail(self):
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot be read")

    monkeypatch.setattr(TopicChanges, "load", fail)
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)
    assert not world.controller.is_active
    assert world.run(world.registry.exists(paths.CONTROLLER)) is None
    monkeypatch.undo()
    world.runtime.advance(2000)

    assert world.controller.is_active
    assert world.state(T1).leader == 1


def test_event_that_fails_is_carried_out_by_the_next_controller(world, monkeypatch):
    """A dead broker was forgotten, and what it led was led by nobody for ever."""
    from ottla.controller.partition_state_machine import PartitionStateMachine
    from ottla.errors import ErrorCode, KafkaError

    async def fail(self, partitions, elect):
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "unforeseen")

    monkeypatch.setattr(PartitionStateMachine, "bring_online", fail)
    world.run(world.registry.delete(paths.broker(1)))
    world.runtime.advance(0)
    monkeypatch.undo()
    world.runtime.advance(2000)

    assert world.state(T1).leader == 0
