"""`ottla(...)` runs a command in this process with streams and clients of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
from fake_zookeeper import FakeZooKeeper

from ottla.cli import zookeeper_session
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    TopicDescription,
    TopicPartitionInfo,
)
from ottla.clients.admin.log_dirs import LogDirs
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import ClientEntity, ConfigSource, Node, TopicPartition


@dataclass
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class FakeClients:
    """Hands out the clients that a test has put here, and keeps what was asked for.

    `reader` and `writer` are the consumer and the producer of a command that has an admin as well.
    """

    client: Any = None
    reader: Any = None
    writer: Any = None
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def admin(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("admin", servers, settings)

    def producer(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("producer", servers, settings)

    def consumer(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("consumer", servers, settings)

    def _open(self, kind: str, servers: str, settings: dict[str, str]) -> Any:
        self.asked.append((kind, servers, dict(settings)))
        if isinstance(self.client, Exception):
            raise self.client
        others = {"consumer": self.reader, "producer": self.writer}
        return others.get(kind) or self.client


class TerminalBytes(BytesIO):
    """Bytes of a keyboard or a screen."""

    def isatty(self) -> bool:
        return True


class TerminalText(StringIO):
    """Standard error on a screen."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clients() -> FakeClients:
    """Where a test puts the client that its commands shall get."""
    return FakeClients()


@pytest.fixture
def ottla(clients: FakeClients) -> Callable[..., Outcome]:
    """Run `ottla` with these words and this standard input; with `tty` a person sits there."""

    def run(*words: object, stdin: bytes = b"", tty: bool = False) -> Outcome:
        streams = TerminalBytes if tty else BytesIO
        raw = streams()
        out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
        err = TerminalText() if tty else StringIO()
        source = streams(stdin)
        terminal = Terminal(source=source, out=out, raw_out=raw, err=err, clients=clients)
        status = main([str(word) for word in words], terminal)
        return Outcome(status, raw.getvalue().decode(), err.getvalue())

    return run


NODE = Node(0, "localhost", 9092)


class FakeAdmin:
    """A cluster in a few dictionaries. Every change is kept in `changes` as it was asked for."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicDescription] = {}
        self.nodes = [NODE]
        self.settings: dict[tuple[str, str], list[ConfigEntry]] = {}
        self.groups: dict[str, GroupDescription] = {}
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.offsets: dict[tuple[TopicPartition, int], int] = {}
        self.failures: dict[object, KafkaError] = {}
        self.changes: list[tuple[Any, ...]] = []
        self.log_dirs: dict[int, LogDirs] = {}
        self.quotas: dict[ClientEntity, dict[str, float]] = {}

    def describe_user_scram_credentials(self, users=None):
        return {}

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    # What a test sets up

    def add_topic(self, name: str, *partitions: TopicPartitionInfo, **own: str) -> None:
        """A topic with these partitions, or with one on broker 0, and with settings of its own."""
        infos = list(partitions) or [TopicPartitionInfo(0, 0, 0, (0,), (0,))]
        self.topics[name] = TopicDescription(name, partitions=infos)
        entries = [entry("min.insync.replicas", "1", ConfigSource.DEFAULT_CONFIG)]
        entries += [entry(key.replace("_", "."), value) for key, value in own.items()]
        self.settings["topic", name] = list({each.name: each for each in entries}.values())

    def add_log(self, partition: TopicPartition, start: int, end: int) -> None:
        """Where the log of a partition begins and ends."""
        self.offsets[partition, -2] = start
        self.offsets[partition, -1] = end

    def add_group(self, group_id: str, state: str = "Empty", *members: MemberDescription) -> None:
        """A group in this state."""
        self.groups[group_id] = GroupDescription(
            group_id, state, "consumer", "range" if members else "", NODE, list(members)
        )

    # What commands call

    def list_client_metrics(self) -> list[str]:
        return [name for kind, name in self.settings if kind == "client_metrics"]

    def describe_client_quotas(
        self, components: dict[str, str | None], strict: bool
    ) -> dict[ClientEntity, dict[str, float]]:
        """The same components, each with the wanted name, and no others."""
        assert strict

        def matches(entity: ClientEntity) -> bool:
            names = dict(zip(("user", "client-id", "ip"), entity, strict=True))
            own = {kind for kind, name in names.items() if name is not None}
            wanted = components.items()
            return own == set(components) and all(n in (None, names[k]) for k, n in wanted)

        return {entity: limits for entity, limits in self.quotas.items() if matches(entity)}

    def alter_client_quotas(self, changes: dict[ClientEntity, dict[str, float | None]]) -> None:
        self.changes.append(("alter_client_quotas", changes))

    def list_topics(self) -> set[str]:
        return set(self.topics)

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        for name in names:
            if name not in self.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        return {name: self.topics[name] for name in names}

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("cluster", 0, self.nodes)

    def api_versions(self, node_id: int) -> dict[int, tuple[int, int]]:
        self._fail_if_told(node_id)
        return {0: (0, 7), 18: (0, 3), 99: (1, 1)}

    def create_topics(self, topics: list[NewTopic]) -> None:
        for topic in topics:
            self._fail_if_told(topic.name)
        self.changes.append(("create_topics", topics))

    def delete_topics(self, names: list[str]) -> None:
        checked({name: self.failures.get(name) for name in names})
        self.changes.append(("delete_topics", names))

    def create_partitions(self, counts: dict[str, int], assignments: object = None) -> None:
        self.changes.append(("create_partitions", counts, assignments))

    def describe_configs(
        self,
        resources: list[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        return {
            resource: {
                each.name: each for each in self.settings[resource.type.name.lower(), resource.name]
            }
            for resource in resources
        }

    def incremental_alter_configs(self, changes: dict[ConfigResource, list[Any]]) -> None:
        for resource, operations in changes.items():
            self.changes.append((resource.type.name, resource.name, *map(tuple, operations)))

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        results = {
            partition: self.failures.get(partition)
            or ListOffsetsResult(self._offset_at(partition, timestamp), -1)
            for partition, timestamp in wanted.items()
        }
        return checked(results)

    def _offset_at(self, partition: TopicPartition, timestamp: int) -> int:
        """The offset that a test has put there; no record is as new as any other timestamp."""
        known = self.offsets.get((partition, timestamp))
        assert timestamp >= 0 or known is not None
        return -1 if known is None else known

    def describe_log_dirs(self, brokers: list[int]) -> dict[int, LogDirs]:
        return checked({broker: self.log_dirs.get(broker, {}) for broker in brokers})

    def delete_records(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return checked({each: self.failures.get(each) or low for each, low in offsets.items()})

    def list_groups(
        self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
    ) -> list[GroupListing]:
        listed = [
            GroupListing(
                group.group_id,
                "consumer",
                group.state,
                "classic" if group.group_epoch is None else "consumer",
            )
            for group in self.groups.values()
            if not states or group.state in states
        ]
        return [group for group in listed if not types or group.type in types]

    def describe_groups(self, group_ids: list[str]) -> dict[str, GroupDescription]:
        dead = {each: GroupDescription(each, "Dead", "", "", NODE) for each in group_ids}
        known = {**dead, **self.groups}
        return checked({each: self.failures.get(each) or known[each] for each in group_ids})

    def delete_groups(self, group_ids: list[str]) -> None:
        for group_id in group_ids:
            self._fail_if_told(group_id)
        self.changes.append(("delete_groups", group_ids))

    def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        committed = self.committed.get(group_id, {})
        return {each: OffsetAndMetadata(offset) for each, offset in committed.items()}

    def alter_group_offsets(self, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        self.changes.append(("alter_group_offsets", group_id, offsets))

    def _fail_if_told(self, what: object) -> None:
        if what in self.failures:
            raise self.failures[what]


def entry(
    name: str, value: str | None, source: ConfigSource = ConfigSource.DYNAMIC_TOPIC_CONFIG
) -> ConfigEntry:
    """A setting with a value from this source."""
    is_default = source is ConfigSource.DEFAULT_CONFIG
    synonyms = [ConfigSynonym(name, value, source)]
    return ConfigEntry(name, value, is_default, source=source, synonyms=synonyms)


@pytest.fixture
def admin(clients: FakeClients) -> FakeAdmin:
    """The cluster that the commands of a test talk to."""
    clients.client = FakeAdmin()
    return clients.client


@pytest.fixture
def tool(ottla: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run a command with --bootstrap-server given."""

    def run(name: str, *words: object, **streams: Any) -> Outcome:
        return ottla(name, "--bootstrap-server", "localhost:9092", *words, **streams)

    return run


@pytest.fixture
def zookeeper_nodes(monkeypatch: pytest.MonkeyPatch) -> FakeZooKeeper:
    """What a command finds that asks ZooKeeper itself."""
    fake = FakeZooKeeper()
    monkeypatch.setattr(zookeeper_session, "reachable", lambda servers: None)
    monkeypatch.setattr(zookeeper_session, "connect", lambda *address: fake)
    return fake


@pytest.fixture
def old_tool(
    ottla: Callable[..., Outcome], zookeeper_nodes: FakeZooKeeper
) -> Callable[..., Outcome]:
    """Run a command with --zookeeper given; a broker is registered there."""
    broker = (
        b'{"endpoints":["PLAINTEXT://localhost:9092"],"host":"localhost","port":9092,"version":4}'
    )
    zookeeper_nodes.nodes["/brokers/ids/0"] = broker

    def run(name: str, *words: object) -> Outcome:
        return ottla(name, "--zookeeper", "zk:2181/kafka", *words)

    return run
