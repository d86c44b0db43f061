"""Overrides in the registry, and the notifications of their changes."""

from __future__ import annotations

from ottla.controller.topic_store import TOPICS, EntityConfigs


def carry_out(world, config):
    """Do what is planned for topic t; whether somebody is to be told."""
    configs = EntityConfigs(world.registry)
    plan = world.run(configs.plan(TOPICS, "t", config))
    world.run(world.registry.multi(plan.operations))
    return plan.has_news


def test_each_change_leaves_a_notification(world):
    """Numbered, with the path of what it is about."""
    configs = EntityConfigs(world.registry)
    for value in ("5", "6"):
        world.run(configs.write(TOPICS, "t", {"retention.ms": value}))

    assert world.run(configs.read(TOPICS, "t")) == {"retention.ms": "6"}
    names = world.run(world.registry.children("/config/changes"))
    assert names == ["config_change_0000000000", "config_change_0000000001"]
    assert world.data(f"/config/changes/{names[0]}") == b'{"version":2,"entity_path":"topics/t"}'


def test_node_of_a_new_topic_is_made_also_without_overrides(world):
    """Kafka's tools of ZooKeeper list the topics that have one; nobody has to be told of it."""
    assert not carry_out(world, {})
    assert world.data("/config/topics/t") == b'{"version":1,"config":{}}'
    assert carry_out(world, {"flush.ms": "9"})
    assert carry_out(world, {})
    assert world.data("/config/topics/t") == b'{"version":1,"config":{}}'


def test_overrides_that_are_taken_away_are_told_of(world):
    """What is gone already may have been taken away by one who did not live to tell of it."""
    assert carry_out(world, None)
    carry_out(world, {"flush.ms": "9"})
    assert carry_out(world, None)
    carry_out(world, {})
    assert not carry_out(world, None)
    assert world.run(world.registry.children("/config/topics")) == []
