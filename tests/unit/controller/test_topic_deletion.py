"""Topics go when all of their replicas have gone, those on dead brokers later."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode
from ottla.registry import paths
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world(make_world):
    """Two brokers that have a partition each, and one together."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (1, 0)}))
    return world


def delete(world):
    return world.run(world.controller.delete_topics(["t"]))


def marked(world):
    return world.run(world.registry.children(paths.DELETE_TOPICS))


def test_topic_waits_for_a_dead_broker(world):
    """Whoever deletes it does not wait; the name is not free before."""
    world.kill(1)
    assert delete(world) == {"t": None}
    again = world.create(RequestedTopic("t"))["t"]

    assert marked(world) == ["t"]
    assert (0, T0, True) in world.orders.stopped
    assert "t" in world.orders.deleted
    assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS
    held_back = world.controller.context.held_back
    assert T0 in {replica.topic_partition for replica in held_back()}
    assert {replica.broker_id for replica in held_back()} == {1}
    world.come(1)
    assert (1, T0, True) in world.orders.stopped
    assert marked(world) == []
    assert held_back() == []
    assert world.run(world.registry.children(paths.TOPICS)) == []


def test_broker_that_dies_before_it_answers_is_waited_for(world):
    """It may have deleted its replica or not."""
    world.orders.silent.add(1)
    task = world.runtime.scheduler.spawn(world.controller.delete_topics(["t"]), "delete")
    world.runtime.advance(0)
    assert not task.done()
    world.kill(1)
    assert task.done()
    assert marked(world) == ["t"]
    world.orders.silent.clear()
    world.come(1)

    assert marked(world) == []


def test_replica_that_cannot_be_deleted_is_tried_again(world):
    """Its log directory has failed; when the broker comes back it may be well."""
    world.orders.refused[1] = ErrorCode.KAFKA_STORAGE_ERROR
    delete(world)
    assert marked(world) == ["t"]
    world.orders.refused.clear()
    world.kill(1)
    world.come(1)

    assert marked(world) == []


def test_tools_mark_topics_by_a_node(world):
    """A mark of what there is not is taken away."""
    world.write(paths.delete_topic("none"), b"")
    world.write(paths.delete_topic("t"), b"")

    assert marked(world) == []
    assert list(world.controller.context.topics) == []


@pytest.mark.parametrize("has_room", [False, True])
def test_deletion_waits_for_a_log_that_is_offline_until_the_broker_can_give_it_up(world, has_room):
    """It tells of it again: the log was never made, or its directory works no more."""
    world.orders.offline[1] = {T0}
    world.run(world.controller.on_log_dir_event(1))
    world.settle()
    assert delete(world) == {"t": None}
    waits = marked(world)
    world.orders.refused[1] = ErrorCode.NONE if has_room else ErrorCode.KAFKA_STORAGE_ERROR
    world.run(world.controller.on_log_dir_event(1))
    world.settle()

    assert waits == ["t"]
    assert (1, T0, True) in world.orders.stopped
    assert marked(world) == ([] if has_room else ["t"])


def test_log_that_is_offline_when_its_deletion_has_begun_is_not_waited_for(world):
    """The broker's answer to an older order says so, and then that it has given the log up."""
    stop_replica, answers = world.orders.stop_replica, []

    def answer_later(controller_epoch, broker_id, partitions, on_answer):
        order = partial(stop_replica, controller_epoch, broker_id, partitions, on_answer)
        answers.append(order) if broker_id == 1 else order()

    world.orders.stop_replica = answer_later
    task = world.runtime.scheduler.spawn(world.controller.delete_topics(["t"]), "delete")
    world.runtime.advance(0)
    world.orders.offline[1] = {T0}
    world.create(RequestedTopic("u", assignment={0: (1,)}))
    world.settle()
    waits = marked(world)
    while answers:
        answers.pop(0)()
        world.settle()

    assert waits == ["t"]
    assert marked(world) == []
    assert task.result() == {"t": None}


def test_log_that_is_made_after_its_deletion_had_to_wait_is_deleted(world):
    """The order to make it was under way; nobody asks for orders once it is there."""
    world.orders.offline[1] = {T0}
    world.run(world.controller.on_log_dir_event(1))
    world.settle()
    answers = []
    world.orders.leader_and_isr = lambda *order: answers.append(order[-1])
    world.run(world.controller.on_log_dir_event(1))
    world.settle()
    assert delete(world) == {"t": None}
    assert marked(world) == ["t"]
    for on_answer in answers:
        on_answer({T0: ErrorCode.NONE})
    world.settle()

    assert (1, T0, True) in world.orders.stopped
    assert marked(world) == []
