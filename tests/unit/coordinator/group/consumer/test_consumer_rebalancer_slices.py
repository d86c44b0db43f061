"""The assignment of a large consumer group: in slices, between which the group may change."""

from __future__ import annotations

import pytest
from consumer_group_world import REVOCATION_MS, ConsumerWorld
from group_world import Reply

from ottla.coordinator.group.consumer import assignors, consumer_rebalancer
from ottla.coordinator.group.consumer.target_assignment import assign_partitions
from ottla.errors import ErrorCode


@pytest.fixture
def world(monkeypatch, core_source) -> ConsumerWorld:
    """Every step is a slice."""
    monkeypatch.setattr(assignors, "SLICE_STEPS", 1)
    return ConsumerWorld({"t": 4})


def begin_join(world: ConsumerWorld, member_id: str) -> Reply:
    """Join the group, whose assignment has only begun then."""
    reply = world.send(
        member_id=member_id,
        subscribed_topic_names=["t"],
        topic_partitions=[],
        rebalance_timeout_ms=REVOCATION_MS,
    )
    assert reply.is_open
    return reply


def test_member_is_answered_after_the_last_slice(world):
    """What was stored in between is what a new coordinator reads."""
    answers = [begin_join(world, member_id) for member_id in "ab"]
    world.advance(1)
    assert [answer.error for answer in answers] == [ErrorCode.NONE] * 2
    group = world.consumers
    world.reload()

    assert world.consumers.group_epoch == group.group_epoch
    assert world.consumers.target == group.target
    assert sorted(len(each) for each in group.target.values()) == [2, 2]


def test_members_that_come_at_the_same_moment_get_one_target(monkeypatch, core_source):
    """A thousand, with one for each, left the broker no time for anything else."""
    made = []

    def assign(changes, default):
        made.append(len(changes.group.members))
        return assign_partitions(changes, default)

    monkeypatch.setattr(consumer_rebalancer, "JOINED_AT_ONCE", 2)
    monkeypatch.setattr(consumer_rebalancer, "assign_partitions", assign)
    world = ConsumerWorld({"t": 8})
    world.members("a", "b")
    made.clear()
    answers = [begin_join(world, member_id) for member_id in "cdefgh"]
    world.advance(1)

    assert [answer.error for answer in answers] == [ErrorCode.NONE] * 6
    assert made == [8]
    assert {len(target) for target in world.consumers.target.values()} == {1}
    assert world.coordinator.manager.differences(0) == []


def test_member_that_is_taken_out_between_two_slices_is_told(world):
    """Its request is over; the group goes on without it."""
    answer = begin_join(world, "a")
    group = world.consumers
    rebalancer = world.coordinator.consumer_rebalancer
    rebalancer.take_out(group, [group.members["a"]], "a test", lambda error: None)
    world.advance(1)

    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not group.members


def test_what_others_store_between_two_slices_is_not_written_over(world):
    """The records of before the pause are not written once more behind it."""
    begin_join(world, "b")
    world.advance(1)
    answer = begin_join(world, "a")
    group = world.consumers
    rebalancer = world.coordinator.consumer_rebalancer
    rebalancer.take_out(group, [group.members["b"]], "a test", lambda error: None)
    world.advance(1)

    assert answer.error is ErrorCode.NONE
    assert world.coordinator.manager.differences(0) == []
    world.reload()
    assert world.consumers.group_epoch == group.group_epoch
    assert list(world.consumers.members) == ["a"]


def test_coordinator_that_ends_between_two_slices_sends_members_elsewhere(world):
    """Another one has the group."""
    answer = begin_join(world, "a")
    world.coordinator.shutdown()
    world.advance(1)

    assert answer.error is ErrorCode.NOT_COORDINATOR


def test_fault_in_a_slice_is_answered(world, monkeypatch):
    """A member does not wait for its time limit."""
    answer = begin_join(world, "a")
    rebalancer = world.coordinator.consumer_rebalancer
    monkeypatch.setattr(rebalancer, "check_present", lambda group, member: 1 / 0)
    world.advance(1)

    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
