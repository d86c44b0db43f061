"""Leaders say who is in sync; the controller believes those that know the latest state."""

from __future__ import annotations

import pytest

from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.structs import NO_EPOCH, LeaderAndIsr, TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world(make_world):
    """A partition on three brokers, led by the first of them."""
    world = make_world(broker_count=3)
    world.create(RequestedTopic("t", assignment={0: (0, 1, 2)}))
    return world


def ask(world, broker_id=0, broker_epoch=NO_EPOCH, epochs=None, partition=T0, **changes):
    """The answer to a change of the present state."""
    wanted = world.state(T0)._replace(**changes)
    outcomes = world.run(
        world.controller.alter_partitions(
            broker_id, broker_epoch, {partition: wanted}, {partition: epochs or {}}
        )
    )
    return outcomes[partition]


def test_change_is_written_and_told(world):
    """The answer has the version for the next change; a repetition has the same answer."""
    before = world.state(T0)
    changed = ask(world, isr=(0, 2))
    again = ask(world, isr=(0, 2), version=before.version)

    assert changed == before._replace(isr=(0, 2), version=changed.version)
    assert changed.version > before.version
    assert again == changed == world.state(T0)
    assert b'"isr":[0,2]' in world.data(paths.partition_state("t", 0))
    assert world.orders.metadata[T0].leader_and_isr == changed


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"partition": TopicPartition("t", 5)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"version": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"version": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"broker_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 2)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (0, 7)}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_change_of_another_state_is_refused(world, request_, error):
    """Each of them changes nothing."""
    before = world.state(T0)
    refusal = ask(world, **{"isr": (0,), **request_})

    assert refusal.error is error
    assert world.state(T0) == before


def test_leader_that_missed_a_state_is_told_again(world):
    """It would go on asking in vain."""
    ask(world, isr=(0, 1))
    world.orders.leader_and_isr_calls.clear()
    ask(world, isr=(0,), version=0)

    ((broker_id, (state,)),) = world.orders.leader_and_isr_calls
    assert (broker_id, state.leader_and_isr) == (0, world.state(T0))


def test_replica_comes_back_as_the_process_that_was_in_sync(world):
    """Another process of the broker has to be in sync itself (KIP-903)."""
    ask(world, isr=(0, 1))
    epoch = world.controller.context.brokers[2].epoch
    other = ask(world, isr=(0, 1, 2), epochs={2: epoch - 1})
    same = ask(world, isr=(0, 1, 2), epochs={2: epoch})

    assert other.error is ErrorCode.INELIGIBLE_REPLICA
    assert isinstance(same, LeaderAndIsr)


def test_replica_on_a_broker_that_goes_is_not_taken_in(world):
    """It would have to be removed again at once."""
    world.run(world.controller.controlled_shutdown(2, NO_EPOCH))

    assert ask(world, isr=(0, 1, 2)).error is ErrorCode.INELIGIBLE_REPLICA


def test_replaced_process_of_a_leader_is_refused_as_a_whole(world):
    """Its registration is not the present one."""
    with pytest.raises(KafkaError, match="broker 0 is registered in epoch"):
        ask(world, broker_epoch=0, isr=(0,))


def test_change_by_a_broker_that_is_not_registered_is_refused_as_a_whole(world):
    """No epoch is asked for, and there is none."""
    with pytest.raises(KafkaError, match="broker 9 is not registered") as refusal:
        ask(world, broker_id=9, isr=(0,))

    assert refusal.value.error is ErrorCode.STALE_BROKER_EPOCH


def test_change_of_a_state_that_somebody_else_has_written_is_refused_and_read(world):
    """Nothing is written over it; with the state as it is now the leader may ask again."""
    path = paths.partition_state(*T0)
    world.run(world.registry.set(path, world.data(path).replace(b"[0,1,2]", b"[0,1]"), -1))
    refusal = ask(world, isr=(0, 2))

    assert refusal.error is ErrorCode.INVALID_UPDATE_VERSION
    assert world.state(T0).isr == (0, 1)
    assert ask(world, isr=(0,)) == world.state(T0)
    assert b'"isr":[0]' in world.data(path)


def test_only_replicas_that_come_in_have_to_show_their_epoch(world):
    """One that was in sync before is there by the controller's own word."""
    stale = world.controller.context.brokers[1].epoch - 1

    assert isinstance(ask(world, isr=(0, 1), epochs={1: stale}), LeaderAndIsr)
    assert world.state(T0).isr == (0, 1)
