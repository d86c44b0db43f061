"""Overrides in the registry, and the notifications of their changes."""

from __future__ import annotations

from ottla.controller.entity_configs import TOPICS, EntityConfigs


def test_each_change_leaves_a_notification(world):
    """Writing and removing; removing what is not there is no change."""
    configs = EntityConfigs(world.registry)
    world.run(configs.write(TOPICS, "t", {"retention.ms": "5"}))
    assert world.run(configs.read(TOPICS, "t")) == {"retention.ms": "5"}
    for _ in range(2):
        world.run(configs.remove(TOPICS, "t"))

    assert world.run(configs.read(TOPICS, "t")) == {}
    names = world.run(world.registry.children("/config/changes"))
    assert names == ["config_change_0000000000", "config_change_0000000001"]
    assert world.data(f"/config/changes/{names[0]}") == b'{"version":2,"entity_path":"topics/t"}'


def test_node_of_a_new_topic_is_made_also_without_overrides(world):
    """Kafka's tools of ZooKeeper list the topics that have one; nobody has to be told of it."""
    configs = EntityConfigs(world.registry)
    world.run(configs.begin(TOPICS, "bare", {}))
    made = world.data("/config/topics/bare")
    world.run(configs.remove(TOPICS, "bare"))
    quiet = world.run(world.registry.children("/config/changes"))
    world.run(configs.begin(TOPICS, "set", {"flush.ms": "9"}))
    world.run(configs.begin(TOPICS, "set", {}))

    assert made == b'{"version":1,"config":{}}'
    assert quiet == []
    assert world.data("/config/topics/set") == made
    assert len(world.run(world.registry.children("/config/changes"))) == 2
