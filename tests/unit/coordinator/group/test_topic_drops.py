"""Offsets in deleted topics go a slice at a time, and before anybody asks for them."""

from __future__ import annotations

from uuid import UUID

import pytest
from group_world import World

from ottla.coordinator.group import topic_drops
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> World:
    return World()


def test_offsets_of_deleted_topics_are_dropped_in_slices(world, monkeypatch):
    """A group that is asked for is attended first: it may commit in a new topic of the name."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 2)
    for group in "abc":
        world.commit(5, group=group)
        world.commit(6, group=group, topic="kept")
    world.coordinator.manager.drop_topics({"t"})
    before = {each.group_id: T0 in each.offsets for each in world.coordinator.manager.groups()}
    assert before == {"a": False, "b": True, "c": True}
    assert world.committed(group="c") is None
    world.commit(1, group="c")
    world.advance(0)

    assert [world.committed(group=each) for each in "abc"] == [None, None, 1]
    assert world.coordinator.manager.differences(0) == []


def test_group_that_a_deleted_topic_was_the_last_of_is_gone_for_who_asks_first(world, monkeypatch):
    """And another one of its id has nothing to do with that topic."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 1)
    world.commit(5, group="a")
    world.commit(5)
    world.coordinator.manager.drop_topics({"t"})
    assert world.coordinator.manager.group("g") is None
    world.commit(2)
    world.advance(0)

    assert (world.committed(group="a"), world.committed()) == (None, 2)
    assert world.coordinator.manager.differences(0) == []


def test_groups_are_compared_with_the_topics_in_slices(world, monkeypatch):
    """A topic that is made meanwhile exists, whatever was committed in it."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 1)
    world.commit(5, group="a")
    world.commit(5, group="b", topic="made")
    world.topics.is_complete = True
    world.coordinator.manager.drop_deleted_topics()
    assert [len(each.offsets) for each in world.coordinator.manager.groups()] == [0, 1]
    made = TopicPartition("made", 0)
    state = PartitionState(made, UUID(int=1), 1, LeaderAndIsr(0, 0, (0,)), (0,))
    world.topics.update([state], [])
    world.advance(0)

    assert world.committed(group="b", topic="made") == 5
    assert world.coordinator.manager.differences(0) == []


def test_group_that_comes_back_keeps_the_offsets_of_the_new_topic(world, monkeypatch):
    """Another broker may have coordinated it since the topic was deleted."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 1)
    world.commit(5, group="a")
    world.commit(5, group="b")
    world.coordinator.manager.drop_topics({"t"})
    world.coordinator.on_resignation(0)
    after = World(log=world.log)
    after.commit(1, group="b")
    world.coordinator.on_election(0)
    world.advance(0)

    assert world.committed(group="b") == 1
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_offsets_of_a_large_group_are_dropped_in_slices(world, monkeypatch, is_asked_for):
    """Whoever asks for it in a pause finds none of them, and keeps what is committed then."""
    monkeypatch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 2)
    for partition in range(5):
        world.commit(5, partition=partition)
        world.commit(6, topic="kept", partition=partition)
    world.coordinator.manager.drop_topics({"t"})
    (group,) = world.coordinator.manager.groups()
    assert len(group.offsets) == 10
    if is_asked_for:
        assert world.committed(partition=4) is None
        world.commit(1, partition=0)
    world.advance(0)

    found = [world.committed(partition=each) for each in range(5)]
    assert found == [1 if is_asked_for else None, None, None, None, None]
    assert [world.committed(topic="kept", partition=each) for each in range(5)] == [6] * 5
    assert world.coordinator.manager.differences(0) == []
