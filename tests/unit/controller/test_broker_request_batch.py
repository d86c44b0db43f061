"""The orders of one event: each broker gets what it needs once, with the final state."""

from __future__ import annotations

import pytest

from ottla.controller.controller_context import PartitionReplica
from ottla.controller.requested_topic import RequestedTopic
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_EPOCH, BrokerEndPoints, EndPoint, Node, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Orders:
    """What was sent, by kind."""

    def __init__(self, world) -> None:
        self.world = world
        self.batch = world.controller._active.core.batch
        self.epochs: list[tuple[int, TopicPartition, int]] = []
        stop = world.orders.stop_replica

        def note(controller_epoch, broker_id, partitions, on_answer):
            self.epochs += [
                (broker_id, each.topic_partition, each.leader_epoch) for each in partitions
            ]
            stop(controller_epoch, broker_id, partitions, on_answer)

        world.orders.stop_replica = note

    def send(self) -> list[str]:
        self.world.orders.order.clear()
        self.world.orders.metadata.clear()
        self.world.orders.stopped.clear()
        at_once(self.batch.send())
        sent = list(self.world.orders.order)
        self.world.settle()  # answers of brokers queue events
        return sent


@pytest.fixture
def orders(make_world) -> Orders:
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0, 1), 1: (1, 0)}))
    return Orders(world)


def test_empty_batch_sends_nothing(orders):
    """Most events change nothing."""
    assert orders.send() == []


def test_list_of_brokers_goes_to_all_also_without_partitions(orders):
    """A broker has changed its address."""
    orders.batch.add_metadata()

    assert orders.send() == ["changed metadata 0", "changed metadata 1"]
    assert orders.send() == []


def test_deleted_topic_goes_to_all(orders):
    """A deleted topic goes to all brokers, also where nothing else has changed."""
    orders.batch.add_deleted_topic("t")

    assert orders.send() == ["changed metadata 0", "changed metadata 1"]
    assert orders.world.orders.deleted == ["t", "t"]


def test_full_metadata_go_to_those_that_need_them_alone(orders):
    """The others know it all."""
    orders.batch.add_full_metadata((1,))

    assert orders.send() == ["all metadata 1"]
    assert set(orders.world.orders.metadata) == {T0, T1}


def test_replica_that_is_given_up_is_not_led_in_the_same_breath(orders):
    """The last order for a replica is the one that counts."""
    orders.batch.add_leader_and_isr((0, 1), T0)
    orders.batch.add_stop_replica(PartitionReplica(T0, 1), delete=False)
    sent = orders.send()

    assert "LeaderAndIsr 0" in sent
    assert "LeaderAndIsr 1" not in sent
    assert orders.world.orders.stopped == [(1, T0, False)]
    assert orders.epochs == [(1, T0, orders.world.state(T0).leader_epoch)]


def test_replica_that_is_wanted_again_is_not_given_up(orders):
    """The other way round."""
    orders.batch.add_stop_replica(PartitionReplica(T0, 1), delete=True)
    orders.batch.add_leader_and_isr((1,), T0)
    sent = orders.send()

    assert "LeaderAndIsr 1" in sent
    assert orders.world.orders.stopped == []


def test_deletion_that_was_asked_for_is_not_taken_back_by_a_stop(orders):
    """A stop takes back no deletion, and a new replica that is named again stays new."""
    orders.batch.add_stop_replica(PartitionReplica(T0, 1), delete=True)
    orders.batch.add_stop_replica(PartitionReplica(T0, 1), delete=False)
    orders.batch.add_leader_and_isr((0,), T1, is_new=True)
    orders.batch.add_leader_and_isr((0,), T1)
    orders.send()

    assert orders.world.orders.stopped == [(1, T0, True)]
    assert orders.world.orders.leader_and_isr_calls[-1][1][0].is_new


def test_replica_without_a_state_is_stopped_in_no_epoch(orders):
    """Nobody has ever led it."""
    del orders.world.controller.context.topics["t"].states[0]
    orders.batch.add_stop_replica(PartitionReplica(T0, 1), delete=False)
    orders.send()

    assert orders.epochs == [(1, T0, NO_EPOCH)]


def test_broker_that_is_away_gets_no_orders(orders):
    """It gets all of them when it comes."""
    orders.batch.add_leader_and_isr((7,), T0)
    orders.batch.add_stop_replica(PartitionReplica(T0, 7), delete=False)

    assert orders.send() == ["changed metadata 0", "changed metadata 1"]


def test_controller_that_has_resigned_sends_nothing_any_more(orders):
    """A successor may have said otherwise."""
    orders.batch.add_leader_and_isr((0,), T0)
    orders.batch.is_over = True

    assert orders.send() == []


def test_brokers_learn_where_the_leaders_are_that_they_follow(orders):
    """By the listener that brokers use among themselves; one without it cannot be reached."""
    context = orders.world.controller.context
    orders.batch.add_leader_and_isr((0,), T0)
    orders.batch.add_leader_and_isr((0,), T1)
    orders.send()
    both = orders.world.orders.leaders[0]
    other = EndPoint("OTHER", "PLAINTEXT", "host-1", 9093)
    context.brokers[1] = BrokerEndPoints(1, context.brokers[1].epoch, (other,))
    orders.batch.add_leader_and_isr((0,), T0)
    orders.batch.add_leader_and_isr((0,), T1)
    orders.send()

    assert both == [Node(0, "host-0", 9092), Node(1, "host-1", 9092)]
    assert orders.world.orders.leaders[0] == [Node(0, "host-0", 9092)]
