"""Overrides in the registry, and the notifications of their changes."""

from __future__ import annotations

from ottla.controller.entity_configs import CLIENT_METRICS, TOPICS, EntityConfigs
from ottla.controller.requested_topic import RequestedTopic
from ottla.registry import paths
from ottla.registry.tree import Create, create_or_set
from ottla.registry.znodes import TopicNode, encode_config
from ottla.structs import ClientEntity, TopicPartition


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


def test_client_entities_are_found_wherever_they_lie(world):
    """Users, clients, clients of a user, and addresses; a parent without values is one as well."""
    configs = EntityConfigs(world.registry)
    pair, default_ip = ClientEntity("alice", ""), ClientEntity(ip="")
    for entity in (pair, ClientEntity(client_id="app"), default_ip):
        world.run(configs.change_client(entity, lambda before: before | {"k": "1"}))

    assert set(world.run(configs.client_entities())) == {
        ClientEntity("alice"),
        pair,
        ClientEntity(client_id="app"),
        default_ip,
    }
    assert world.run(configs.read_client(pair)) == {"k": "1"}
    assert world.run(configs.read_client(ClientEntity("alice"))) == {}
    names = world.run(world.registry.children("/config/changes"))
    told = world.data(f"/config/changes/{names[0]}")
    assert told == b'{"version":2,"entity_path":"users/alice/clients/<default>"}'


class Rival:
    """The registry, with another broker that always writes between our read and our write."""

    def __init__(self, registry, *rivals):
        self.registry = registry
        self.rivals = list(rivals)

    def __getattr__(self, name):
        return getattr(self.registry, name)

    async def create(self, path, data, **options):
        await self.write(path)
        return await self.registry.create(path, data, **options)

    async def set(self, path, data, version):
        await self.write(path)
        return await self.registry.set(path, data, version)

    async def write(self, path):
        if self.rivals and path == "/config/users/alice":
            config = {self.rivals.pop(0): "x"}
            await create_or_set(self.registry, path, encode_config(config))


def test_change_of_a_client_keeps_what_another_writes_meanwhile(world):
    """Quotas and credentials share the node of a user: neither writer may undo the other's."""
    configs = EntityConfigs(Rival(world.registry, "SCRAM-SHA-256", "SCRAM-SHA-512"))
    alice = ClientEntity("alice")
    world.run(configs.change_client(alice, lambda before: before | {"producer_byte_rate": "5"}))

    found = world.run(configs.read_client(alice))
    assert found == {"SCRAM-SHA-512": "x", "producer_byte_rate": "5"}


def test_subscription_of_clients_metrics_has_its_node_made_with_the_one_above(world):
    """A registry that Kafka has used on ZooKeeper has neither, and keeps it so otherwise."""
    configs = EntityConfigs(world.registry)
    world.run(configs.write(TOPICS, "t", {"retention.ms": "5"}))
    before = world.run(world.registry.exists("/config/client-metrics"))
    world.run(configs.write(CLIENT_METRICS, "m", {"interval.ms": "1000"}))

    assert before is None
    assert world.run(configs.subscriptions()) == ["m"]


def test_partition_whose_node_was_made_alone_is_begun(world):
    """A predecessor has died between the node and its state."""
    lost = TopicPartition("u", 0)
    world.create(RequestedTopic("t"))
    node = TopicNode({0: (0,), 1: (0,)}, world.controller.context.topics["t"].topic_id)
    world.run(
        world.registry.multi(
            [
                Create(paths.topic("u"), node.encode()),
                Create(paths.topic_partitions("u"), b""),
                Create(paths.partition(*lost), b""),
            ]
        )
    )
    world.settle()

    assert world.orders.metadata[lost].leader == 0
    assert world.orders.metadata[TopicPartition("u", 1)].leader == 0
    assert b'"leader":0' in world.data(paths.partition_state(*lost))
