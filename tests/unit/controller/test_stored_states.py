"""The states of partitions in the registry: written with their versions, read again where not."""

from __future__ import annotations

import json

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.controller_context import PartitionReplica
from ottla.controller.controller_election import ControllerMovedError
from ottla.controller.entity_configs import TOPICS
from ottla.controller.requested_topic import RequestedTopic
from ottla.controller.statuses import PartitionStatus, ReplicaStatus
from ottla.registry import paths
from ottla.registry.tree import create_or_set
from ottla.registry.znodes import TopicNode
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_LEADER, TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world(make_world):
    """Two brokers with a partition that is on both."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    return world


def core(world):
    return world.controller._active.core


def write_state(world, **changes):
    """Somebody else writes the state of the partition."""
    path = paths.partition_state(*T0)
    state = json.loads(world.data(path)) | changes
    world.run(world.registry.set(path, json.dumps(state).encode(), -1))


def test_state_that_others_have_written_is_changed_as_it_is_now(world):
    """A tool took a replica out of the ISR; nothing of that is undone."""
    write_state(world, isr=[0], leader_epoch=7)
    changed = world.run(
        core(world).states.change((T0,), lambda _, state: state._replace(leader_epoch=8))
    )

    assert changed == [T0]
    assert (world.state(T0).isr, world.state(T0).leader_epoch) == ((0,), 8)
    assert json.loads(world.data(paths.partition_state(*T0)))["isr"] == [0]


def test_state_that_others_write_again_and_again_is_not_said_to_be_changed(
    world, monkeypatch, caplog
):
    """It stays as they have it, and is left for the next event."""
    states = core(world).states
    write, path = states.store.write_states, paths.partition_state(*T0)
    write_state(world, isr=[1])
    theirs = world.data(path)

    async def write_after_others(wanted):
        await world.registry.set(path, theirs, -1)
        return await write(wanted)

    monkeypatch.setattr(states.store, "write_states", write_after_others)
    changed = world.run(states.change((T0,), lambda _, state: state._replace(leader_epoch=8)))

    assert changed == []
    assert (world.state(T0).isr, world.state(T0).leader_epoch) == ((1,), 0)
    assert "somebody else writes their states again and again" in caplog.text


@pytest.mark.parametrize(("later", "is_over"), [(0, False), (1, True)])
def test_state_of_a_later_controller_ends_the_epoch(world, later, is_over):
    """One of the same epoch is this controller's own, whose answer was lost."""
    write_state(world, controller_epoch=world.controller.context.epoch + later, leader_epoch=5)
    read = core(world).states.read_again((T0,))
    if is_over:
        with pytest.raises(ControllerMovedError):
            world.run(read)
    else:
        world.run(read)
        assert world.state(T0).leader_epoch == 5


def test_first_state_that_is_there_already_is_taken(world):
    """An earlier attempt wrote it: the context has what the registry has."""
    write_state(world, leader_epoch=9)
    del world.controller.context.topics["t"].states[0]
    wanted = world.run(core(world).store.read_states((T0,)))[T0].state._replace(leader_epoch=0)
    world.run(core(world).states.create({T0: wanted}))

    assert world.state(T0).leader_epoch == 9


def test_replicas_that_are_lost_leave_the_isr_and_the_others_are_told(world):
    """Not the lost ones: they are stopped."""
    world.orders.leader_and_isr_calls.clear()
    world.orders.metadata.clear()
    machine = core(world).replicas
    world.run(machine.take_offline([PartitionReplica(T0, 1)]))
    at_once(core(world).batch.send())
    world.settle()

    assert world.state(T0).isr == (0,)
    assert {broker for broker, _ in world.orders.leader_and_isr_calls} == {0}
    assert world.orders.stopped == [(1, T0, False)]
    assert world.orders.metadata[T0].leader_and_isr.isr == (0,)


def test_replica_that_is_lost_and_not_in_sync_is_told_to_clients_all_the_same(world):
    """Nothing is written, and the list of offline replicas has changed."""
    world.report_in_sync(T0, 0)
    version = world.state(T0).version
    world.orders.metadata.clear()
    world.run(core(world).replicas.take_offline([PartitionReplica(T0, 1)]))
    at_once(core(world).batch.send())
    world.settle()

    assert world.state(T0).version == version
    assert set(world.orders.metadata) == {T0}


def test_new_replica_of_a_partition_that_is_led_follows_at_once(world):
    """One of a partition that has no state waits until it is led."""
    replica, other = PartitionReplica(T0, 1), PartitionReplica(TopicPartition("t", 1), 1)
    context = world.controller.context
    del context.replica_statuses[replica]
    world.orders.leader_and_isr_calls.clear()
    core(world).replicas.start_new([replica, other])
    at_once(core(world).batch.send())
    world.settle()

    assert [
        (broker, [state.topic_partition for state in states], states[0].is_new)
        for broker, states in world.orders.leader_and_isr_calls
    ] == [(1, [T0], True)]
    assert context.replica_statuses[replica] is ReplicaStatus.NEW


def test_forgotten_partition_must_be_begun_anew(world, caplog):
    """Nothing leads what does not exist."""
    partitions = core(world).partitions
    partitions.take_offline([T0])
    partitions.forget([T0])
    led = world.run(partitions.bring_back_online())

    assert led == []
    assert world.controller.context.partition_statuses[T0] is PartitionStatus.NON_EXISTENT
    partitions.take_offline([T0])
    assert "t-0 is in" in caplog.text
    assert "cannot go to" in caplog.text
    caplog.clear()


def test_partition_without_a_live_replica_is_named_and_has_no_leader(world):
    """It begins when a broker comes that has a replica; until then, brokers hear that it exists."""
    lost = TopicPartition("u", 0)
    node = TopicNode({0: (7,)}, world.controller.context.topics["t"].topic_id)
    world.write(paths.topic("u"), node.encode())
    left = world.run(core(world).partitions.bring_back_online())
    world.come(2)
    known_before = world.orders.metadata[lost]
    world.restart()
    known_after_restart = world.orders.metadata[lost]
    world.come(7)

    assert left == [lost]
    assert known_before.leader == known_after_restart.leader == NO_LEADER
    assert (world.state(lost).leader, world.orders.metadata[lost].leader) == (7, 7)


def test_replica_that_another_writer_has_taken_in_is_elected_cleanly(world):
    """The state that the controller knew had nobody left in sync; the one that it read has."""
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.report_in_sync(T0, 0)
    write_state(world, isr=[0, 1])
    world.kill(0)

    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1,))
    assert world.controller.unclean_elections == 0


@pytest.mark.parametrize(("isr", "leader"), [((0,), NO_LEADER), ((0, 1), 1)])
def test_unreadable_overrides_forbid_unclean_leaders_and_no_others(world, caplog, isr, leader):
    """They are read only where nobody in sync lives, whatever the brokers' settings allow."""
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.report_in_sync(T0, *isr)
    world.run(create_or_set(world.registry, paths.config(TOPICS, "t"), b"{spoilt"))
    world.kill(0)

    assert world.state(T0).leader == leader
    assert ("no unclean leader of t" in caplog.text) is (leader == NO_LEADER)
