"""A topic's overrides come and go with it: nobody else's topic of the name gets or loses them."""

from __future__ import annotations

import pytest

from ottla.controller.entity_configs import TOPICS
from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import REGISTRY_RETRY_MS, RegistryFailedError
from ottla.registry.znodes import TopicNode, decode_config, encode_config, encode_epoch
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)
PATH = paths.config(TOPICS, "t")


def overrides(world):
    return decode_config(PATH, world.data(PATH))


def test_overtaken_controller_leaves_the_overrides_of_a_topic_made_again(world):
    """It was cut off while it deleted the topic: its successor has done so, and a new one lives."""
    answers = []
    world.orders.stop_replica = lambda *told: answers.append(told[-1])
    world.create(RequestedTopic("t", config={"retention.ms": "5"}))
    world.runtime.scheduler.spawn(world.controller.delete_topics(["t"]), "delete")
    world.settle()
    world.run(world.registry.set(paths.CONTROLLER_EPOCH, encode_epoch(2)))
    world.run(world.registry.set(PATH, encode_config({"cleanup.policy": "compact"})))
    answers[-1]({T0: ErrorCode.NONE})
    world.runtime.advance(0)

    assert overrides(world) == {"cleanup.policy": "compact"}


def test_creation_that_comes_too_late_leaves_the_overrides_of_the_other(world):
    """A tool has just made the topic, and the controller has not heard of it yet."""
    node = TopicNode({0: (0,)})

    async def make_it_first():
        await world.registry.create(PATH, encode_config({"cleanup.policy": "compact"}))
        await world.registry.create(paths.topic("t"), node.encode())

    world.controller.events.put("a tool", make_it_first)
    refused = world.create(RequestedTopic("t", config={"retention.ms": "5"}))["t"]

    assert refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert overrides(world) == {"cleanup.policy": "compact"}


def test_overrides_left_behind_are_not_those_of_a_new_topic(world):
    """Somebody wrote them for a topic that was being deleted."""
    world.write(PATH, encode_config({"cleanup.policy": "compact"}))
    world.create(RequestedTopic("t"))

    assert overrides(world) == {}


def die_at_the_notification(world, monkeypatch):
    """The controller fails just when it would tell of overrides; another one follows it."""
    create, failures = world.registry.create, [RegistryFailedError("died")]

    async def fail_once(path, data, **kind):
        if path == paths.CONFIG_CHANGE_PREFIX and failures:
            raise failures.pop()
        return await create(path, data, **kind)

    monkeypatch.setattr(world.registry, "create", fail_once)


def notifications(world):
    return len(world.run(world.registry.children(paths.CONFIG_CHANGES)))


def test_overrides_of_a_new_topic_are_told_though_its_controller_died(world, monkeypatch):
    """Brokers would compact or delete as they do by default, until they are started again."""
    die_at_the_notification(world, monkeypatch)
    with pytest.raises(KafkaError):
        world.create(RequestedTopic("t", config={"cleanup.policy": "compact"}))
    assert notifications(world) == 0
    world.runtime.advance(2 * REGISTRY_RETRY_MS)

    assert world.state(T0).leader == 0
    assert notifications(world) == 1


def test_end_of_overrides_is_told_though_the_controller_died(world, monkeypatch):
    """Brokers would keep them, and delete by them what is in the next topic of the name."""
    world.create(RequestedTopic("t", config={"retention.ms": "5"}))
    before = notifications(world)
    die_at_the_notification(world, monkeypatch)
    with pytest.raises(KafkaError):
        world.run(world.controller.delete_topics(["t"]))
    world.runtime.advance(2 * REGISTRY_RETRY_MS)

    assert world.run(world.registry.children(paths.TOPICS)) == []
    assert notifications(world) == before + 1
