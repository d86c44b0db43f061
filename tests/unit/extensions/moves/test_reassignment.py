"""Partitions move: old and new replicas together, until the new ones are in sync."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pytest
from controller_world import ControllerWorld

from ottla.controller.controller_context import TopicContext
from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode
from ottla.extensions.moves.reassignment import (
    PartitionReassigner,
    alter_reassignments,
    list_reassignments,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import RegistryError, Set
from ottla.registry.znodes import TopicNode, encode_reassignments
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


class World(ControllerWorld):
    """Brokers whose controller moves partitions."""

    features: ClassVar = [PartitionReassigner]


@pytest.fixture
def make_world():
    return World


@pytest.fixture
def world(make_world):
    """Four brokers, and a partition on the first two."""
    world = make_world(broker_count=4)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    return world


def alter(world, target, partition=T0):
    """What the controller answers to the request."""
    results = world.run(alter_reassignments(world.controller, {partition: target}))
    world.settle()
    return results[partition]


def node(world):
    return TopicNode.decode("t", world.data(paths.topic("t")))


def test_old_replicas_stay_until_the_new_ones_are_in_sync(world):
    """Then a new one leads, and what the old ones have is deleted."""
    assert alter(world, (2, 3)) is None
    under_way = node(world)
    epoch = world.state(T0).leader_epoch
    world.report_in_sync(T0, 0, 1, 2)
    assert world.state(T0).leader == 0
    world.report_in_sync(T0, 0, 1, 2, 3)

    assert set(under_way.assignment[0]) == {0, 1, 2, 3}
    assert (set(under_way.adding[0]), set(under_way.removing[0])) == ({2, 3}, {0, 1})
    assert node(world).assignment == {0: (2, 3)}
    assert not node(world).adding.get(0)
    state = world.state(T0)
    assert (state.leader, set(state.isr)) == (2, {2, 3})
    assert state.leader_epoch > epoch
    assert {(broker, deleted) for broker, _, deleted in world.orders.stopped if deleted} == {
        (0, True),
        (1, True),
    }
    assert world.run(list_reassignments(world.controller, None)) == {}


def test_reassignment_is_taken_back(world):
    """New replicas go, and the old ones are as before."""
    alter(world, (2, 0))
    assert alter(world, None) is None

    assert node(world).assignment == {0: (0, 1)}
    assert (2, T0, True) in world.orders.stopped
    assert alter(world, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("target", [(), (1, 1), (-1,), (2, 9)])
def test_impossible_target_is_refused(world, target):
    """Nothing is changed."""
    assert alter(world, target).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert node(world).assignment == {0: (0, 1)}


def test_unknown_partition_is_refused(world):
    """It is named in the answer."""
    refusal = alter(world, (1,), TopicPartition("t", 7))

    assert refusal.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "t-7" in refusal.message


def test_older_tools_ask_by_a_node(world):
    """It is there until the partition has moved; what cannot be moved is dropped from it."""
    targets = {T0: (1, 3), TopicPartition("none", 0): (1,)}
    world.write(paths.REASSIGN_PARTITIONS, encode_reassignments(targets))
    during = world.data(paths.REASSIGN_PARTITIONS)
    world.report_in_sync(T0, 0, 1, 3)

    assert during == encode_reassignments({T0: (1, 3)})
    assert world.run(world.registry.exists(paths.REASSIGN_PARTITIONS)) is None
    assert node(world).assignment == {0: (1, 3)}


def test_next_controller_goes_on(world):
    """What is under way is in the registry."""
    alter(world, (0, 2))
    world.restart()
    world.report_in_sync(T0, 0, 1, 2)

    assert node(world).assignment == {0: (0, 2)}


@pytest.fixture
def full_node(world, monkeypatch):
    """The topic's node has as much as ZooKeeper takes, as one of very many partitions."""
    multi, limit = EmbeddedRegistry.multi, len(world.data(paths.topic("t")))

    async def write_what_fits(self, operations):
        for operation in operations:
            if isinstance(operation, Set) and len(operation.data) > limit:
                raise RegistryError(f"{operation.path}: more than ZooKeeper takes at once")
        return await multi(self, operations)

    monkeypatch.setattr(EmbeddedRegistry, "multi", write_what_fits)
    return world


def test_reassignment_that_the_node_of_the_topic_cannot_hold_is_refused(full_node):
    """The controller gave up, and nobody heard why."""
    before = full_node.data(paths.topic("t"))
    error = alter(full_node, (2, 3))

    assert error is not None
    assert error.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "/brokers/topics/t: more than ZooKeeper takes" in error.message
    assert full_node.controller.is_active
    assert full_node.controller.context.epoch == 1
    assert full_node.run(list_reassignments(full_node.controller, None)) == {}
    assert full_node.data(paths.topic("t")) == before


def test_older_tool_that_asks_for_too_much_is_answered(full_node, caplog):
    """One controller after the other gave up, as long as the tool's node was there."""
    full_node.write(paths.REASSIGN_PARTITIONS, encode_reassignments({T0: (2, 3)}))
    full_node.runtime.advance(5_000)

    assert full_node.controller.is_active
    assert full_node.controller.context.epoch == 1
    assert full_node.run(full_node.registry.exists(paths.REASSIGN_PARTITIONS)) is None
    assert "t-0 is not reassigned to (2, 3)" in caplog.text
    assert "/brokers/topics/t: more than ZooKeeper takes" in caplog.text


def told(world, broker_id):
    """The partitions whose leader the broker was told since the calls were cleared."""
    return {
        state.topic_partition: state
        for to, states in world.orders.leader_and_isr_calls
        if to == broker_id
        for state in states
    }


def test_all_replicas_learn_of_a_reassignment_and_of_its_end(world):
    """The leader must know whom to wait for; the others whom to follow."""
    world.orders.leader_and_isr_calls.clear()
    alter(world, (0, 2))
    begun = {broker: told(world, broker).get(T0) for broker in (0, 1, 2)}
    world.orders.leader_and_isr_calls.clear()
    world.report_in_sync(T0, 0, 1, 2)
    ended = {broker: told(world, broker).get(T0) for broker in (0, 2)}

    assert {state.replicas for state in begun.values()} == {(0, 2, 1)}
    assert begun[2].is_new
    assert {state.replicas for state in ended.values()} == {(0, 2)}
    assert world.orders.metadata[T0].replicas == (0, 2)
    assert world.controller.context.assignment(T0).replicas == (0, 2)


def test_no_trace_of_a_replica_that_has_moved_away_is_kept(world):
    """Its broker may die and come back: it is told nothing of the partition."""
    alter(world, (0, 2))
    world.report_in_sync(T0, 0, 1, 2)
    known = {
        replica.broker_id
        for replica in world.controller.context.replica_statuses
        if replica.topic_partition == T0
    }
    world.orders.leader_and_isr_calls.clear()
    world.kill(1)
    world.come(1)

    assert known == {0, 2}
    assert told(world, 1) == {}


def test_reassignment_that_would_leave_no_replica_in_sync_is_refused(world):
    """Only the ones being added are: to take it back would lose what they alone have."""
    alter(world, (2, 3))
    world.report_in_sync(T0, 0, 2)
    world.kill(0)
    refusal = alter(world, None)

    assert refusal.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "only replicas [2] are in sync" in refusal.message
    assert world.state(T0).leader == 2


def test_leader_that_is_not_wanted_by_a_new_target_gives_way_at_once(world):
    """A reassignment that replaces another one drops the replicas that only that one added."""
    alter(world, (2, 3))
    world.report_in_sync(T0, 0, 2)
    world.kill(0)
    led_by = world.state(T0).leader
    world.come(0)
    world.report_in_sync(T0, 2, 0)
    assert alter(world, (0, 3)) is None

    assert led_by == 2
    assert world.state(T0).leader == 0
    assert (2, T0, True) in world.orders.stopped


def test_leader_that_stays_is_not_elected_again(world):
    """Its epoch rises once, for the new replicas, and not for an election."""
    before = world.state(T0)
    alter(world, (0, 1, 2))

    after = world.state(T0)
    assert (after.leader, after.leader_epoch) == (0, before.leader_epoch + 1)


def test_replicas_that_are_only_added_are_the_target_as_soon_as_they_are_in_sync(world):
    """There is nobody to remove: those in sync are exactly those that were asked for."""
    alter(world, (0, 1, 2))
    world.report_in_sync(T0, 0, 1, 2)

    assert world.run(list_reassignments(world.controller, None)) == {}
    assert node(world).assignment == {0: (0, 1, 2)}
    assert not node(world).adding


def test_target_that_is_asked_for_again_is_written_once(world):
    """Tools may repeat their request until the partition has moved."""
    alter(world, (2, 3))
    _, before = world.run(world.registry.get(paths.topic("t")))
    assert alter(world, (2, 3)) is None
    _, after = world.run(world.registry.get(paths.topic("t")))

    assert after.version == before.version


def test_reassignments_of_some_partitions_can_be_asked_for(world):
    """Those of others are left out, and so are partitions that stay where they are."""
    world.create(RequestedTopic("u", assignment={0: (0, 1), 1: (1, 0)}))
    moving = TopicPartition("u", 0)
    alter(world, (2, 3))
    alter(world, (1, 2), moving)
    listed = partial(list_reassignments, world.controller)
    some = world.run(listed([moving, TopicPartition("u", 1), TopicPartition("none", 0)]))

    assert {each: found.target for each, found in some.items()} == {moving: (1, 2)}
    assert set(world.run(listed(None))) == {T0, moving}


def test_node_of_an_older_tool_does_not_begin_again_what_is_on_its_way(world):
    """The next controller finds the node, and the topic's node that says it has begun."""
    world.write(paths.REASSIGN_PARTITIONS, encode_reassignments({T0: (0, 2)}))
    epoch = world.state(T0).leader_epoch
    world.controller.resign()
    world.run(world.registry.delete(paths.CONTROLLER))
    world.run(world.controller.startup())
    under_way = world.run(list_reassignments(world.controller, None))

    assert under_way[T0].target == (0, 2)
    assert world.state(T0).leader_epoch == epoch + 1, "it tells the replicas of it once"


def test_partitions_are_looked_at_without_all_others(world, monkeypatch):
    """Else the next controller, with very many in the node of an older tool, would never begin."""
    world.create(RequestedTopic("many", assignment=dict.fromkeys(range(40), (0, 1))))
    targets = {TopicPartition("many", index): (0, 2) for index in range(40)}
    world.write(paths.REASSIGN_PARTITIONS, encode_reassignments(targets))
    looks, look = [], TopicContext.full_assignment

    def counted(self, index):
        looks.append(index)
        return look(self, index)

    monkeypatch.setattr(TopicContext, "full_assignment", counted)
    world.controller.resign()
    world.run(world.registry.delete(paths.CONTROLLER))
    world.run(world.controller.startup())
    count = len(looks)
    assert len(world.run(list_reassignments(world.controller, [*targets][:5]))) == 5

    assert count < 20 * len(targets)
    assert len(looks) - count == 5


def test_deletion_ends_a_reassignment(world):
    """The tool that waits for the end of it need not wait for ever."""
    world.write(paths.REASSIGN_PARTITIONS, encode_reassignments({T0: (0, 2)}))
    assert world.run(world.registry.exists(paths.REASSIGN_PARTITIONS)) is not None
    world.run(world.controller.delete_topics(["t"]))
    world.settle()

    assert world.run(world.registry.exists(paths.REASSIGN_PARTITIONS)) is None
