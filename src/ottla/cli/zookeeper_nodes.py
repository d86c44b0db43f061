"""What Kafka 2.3's tools read and write in ZooKeeper itself: brokers, settings, topics, elections.

Those tools wrote into ZooKeeper what the controller should do. Today the brokers change topics and
replicas, with the same outcome and with an answer: they are found in ZooKeeper and asked. What the
tools only read needs no live broker here either, so that topics are shown that are marked for
deletion, and entities whose settings were all removed. Settings of users, client ids and addresses
are written into the nodes, and preferred elections are started by one, without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import Terminal
from ottla.cli.zookeeper_session import child_names, node_data, session
from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.registry import paths
from ottla.registry.znodes import (
    BrokerNode,
    TopicNode,
    decode_config,
    decode_partition_state,
    decode_preferred_elections,
    encode_config,
    encode_config_change,
    encode_preferred_elections,
)
from ottla.structs import ClientEntity, TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

PLACES: Final = {"user": "users", "client_id": "clients", "ip": "ips"}
"""Where the components of a client entity lie."""

DEPRECATED: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)


# The brokers


def registered_brokers(text: str, security_protocol: str, log_level: str) -> str:
    """The addresses of the live brokers' listeners that speak the protocol, as host:port,..."""
    with session(text, log_level) as client:
        nodes = dict(_broker_nodes(client))
    if not nodes:
        raise CommandError(f"no brokers are registered in ZooKeeper at {text}")
    found = [
        listener for node in nodes.values() if (listener := _listener(node, security_protocol))
    ]
    if not found:
        raise CommandError(
            f"the brokers {', '.join(map(str, nodes))} registered in ZooKeeper at {text} have no "
            f"listener for security.protocol={security_protocol}"
        )
    return ",".join(found)


def _broker_nodes(client: KazooClient) -> Iterator[tuple[int, BrokerNode]]:
    for broker_id in sorted(map(int, child_names(client, paths.BROKER_IDS))):
        data = node_data(client, paths.broker(broker_id))
        if data is not None:  # else the node was deleted between the two calls
            yield broker_id, BrokerNode.decode(broker_id, data)


def _listener(node: BrokerNode, security_protocol: str) -> str | None:
    for end_point in node.endpoints:
        name, _, host_and_port = end_point.partition("://")
        if node.protocols.get(name, name) == security_protocol:
            return host_and_port
    return None


# Settings


def configured(client: KazooClient, entity_type: str) -> list[str]:
    """The names of the entities of this type that have a node; "" stands for their default."""

    names = sorted(map(paths.desanitize, child_names(client, paths.configs(entity_type))))
    return ["" if name == paths.DEFAULT_ENTITY else name for name in names]


def stored_settings(client: KazooClient, entity_type: str, name: str) -> dict[str, str] | None:
    """The settings of one entity, in the order in which they are kept; None without a node."""

    path = paths.config(entity_type, name or paths.DEFAULT_ENTITY)
    data = node_data(client, path)
    return None if data is None else decode_config(path, data)


def settings_of(client: KazooClient, entity_type: str, name: str) -> Mapping[str, str]:
    """The settings of the entity that was asked for; a topic has to be there."""

    stored = stored_settings(client, entity_type, name)
    if stored is None and entity_type == "topics" and client.exists(paths.topic(name)) is None:
        raise CommandError(f"there is no topic '{name}'")
    return stored or {}


def client_entities(
    client: KazooClient, components: Mapping[str, str | None]
) -> Iterator[ClientEntity]:
    """The entities with these components, in the order of their names; None stands for each."""

    attributes = [attribute for attribute in ClientEntity._fields if attribute in components]
    found = [ClientEntity()]
    for attribute in attributes:
        name, place = components[attribute], PLACES[attribute]
        longer = []
        for entity in found:
            names: list[str | None] = [name]
            if name is None:
                below = "/".join(filter(None, ("/config", paths.client_entity(entity), place)))
                nodes = sorted(map(paths.desanitize, child_names(client, below)))
                names = ["" if each == paths.DEFAULT_ENTITY else each for each in nodes]
            longer += [entity._replace(**{attribute: each}) for each in names]
        found = longer
    yield from found


def client_settings(client: KazooClient, entity: ClientEntity) -> dict[str, str]:
    """The quotas and credentials of a user, client id or address."""

    path = f"/config/{paths.client_entity(entity)}"
    return decode_config(path, node_data(client, path) or b"")


def change_client(
    client: KazooClient,
    entity: ClientEntity,
    change: Callable[[dict[str, str]], Mapping[str, str]],
) -> None:
    """Write what `change` makes of the settings of an entity, and have the brokers read them."""
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    entity_path = paths.client_entity(entity)
    path = f"/config/{entity_path}"
    while True:
        try:
            data, stat = client.get(path)
            after = encode_config(change(decode_config(path, data or b"")))
            client.set(path, after, version=stat.version)
            break
        except NoNodeError:
            try:
                client.create(path, encode_config(change({})), makepath=True)
                break
            except NodeExistsError:
                continue  # a broker was faster
        except BadVersionError:
            continue  # likewise
    notice = encode_config_change(entity_path)
    client.create(paths.CONFIG_CHANGE_PREFIX, notice, sequence=True, makepath=True)


# Topics


class ZooKeeperTopics:
    """Reads the nodes of topics; where there are none, no cluster has ever been here."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def list_topics(self) -> set[str]:
        """All topics, also those that are marked for deletion."""
        return set(child_names(self.client, paths.TOPICS))

    def marked_for_deletion(self) -> set[str]:
        """The topics that are deleted as soon as all brokers with replicas of them are live."""
        return set(child_names(self.client, paths.DELETE_TOPICS))

    def live_brokers(self) -> set[int]:
        return set(map(int, child_names(self.client, paths.BROKER_IDS)))

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """Those of the topics that exist; the leader is -1 where there is none."""
        described = {}
        for name in names:
            data = node_data(self.client, paths.topic(name))
            if data is not None:
                replicas = sorted(TopicNode.decode(name, data).assignment.items())
                infos = [self._partition(name, index, ids) for index, ids in replicas]
                described[name] = TopicDescription(name, partitions=infos)
        return described

    def settings(self, name: str) -> dict[str, str]:
        """The settings of this topic's own, in the order in which they are stored."""
        return stored_settings(self.client, "topics", name) or {}

    def _partition(self, topic: str, index: int, replicas: tuple[int, ...]) -> TopicPartitionInfo:
        path = paths.partition_state(topic, index)
        data = node_data(self.client, path)
        if data is None:  # the controller has not begun with it yet
            return TopicPartitionInfo(index, -1, -1, replicas, ())
        state, _ = decode_partition_state(path, data, 0)
        return TopicPartitionInfo(index, state.leader, state.leader_epoch, replicas, state.isr)


# Preferred elections


def start_preferred_election(
    zookeeper: str, log_level: str, partitions: Sequence[TopicPartition] | None, terminal: Terminal
) -> None:
    """Ask for the preferred leaders of these partitions, or of all there are."""
    terminal.print(DEPRECATED)
    with session(zookeeper, log_level) as client:
        nodes = ZooKeeperTopics(client)
        names = sorted({each.topic for each in partitions or ()} or nodes.list_topics())
        # A dict keeps the order, and each wanted partition is looked up in it.
        existing = dict.fromkeys(
            TopicPartition(name, info.partition)
            for name, topic in nodes.describe_topics(names).items()
            for info in topic.partitions
        )
        started = list(existing) if partitions is None else [p for p in partitions if p in existing]
        _write_election(client, zookeeper, started)
    terminal.print(f"Created preferred replica election path with {_joined(started, ',')}")
    terminal.print(
        "Successfully started preferred replica election for partitions "
        f"Set({_joined(started, ', ')})"
    )
    for partition in partitions or ():
        if partition not in existing:
            terminal.print(
                f"Skipping preferred replica leader election for partition {partition} since it "
                "doesn't exist."
            )


def _write_election(
    client: KazooClient, zookeeper: str, partitions: Iterable[TopicPartition]
) -> None:
    from kazoo.exceptions import NodeExistsError, NoNodeError

    path = paths.PREFERRED_REPLICA_ELECTION
    try:
        client.create(path, encode_preferred_elections(partitions))
    except NodeExistsError:
        under_way = decode_preferred_elections(client.get(path)[0] or b"")
        raise CommandError(
            "Preferred replica leader election currently in progress for "
            f"{_joined(under_way, ', ')}. Aborting operation"
        ) from None
    except NoNodeError:
        raise CommandError(f"no cluster has ever been in ZooKeeper at {zookeeper}") from None


def _joined(partitions: Iterable[TopicPartition], separator: str) -> str:
    return separator.join(map(str, partitions))
