"""Values that `Admin` takes and returns: topics, settings, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.config.known_keys import shown
from ottla.protocol.configs import ConfigOperation, ConfigResourceType
from ottla.structs import (
    BROKER_DEFAULT,
    NO_EPOCH,
    NO_UUID,
    ConfigSource,
    NamedTuple,
    Node,
    TopicPartition,
    Value,
    field,
)


class NewTopic(Value):
    """A topic to create; -1 asks for the broker's default.

    `replica_assignment` (partition -> broker ids) replaces both counts.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    replica_assignment: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicPartitionInfo(NamedTuple):
    """The replicas of a partition; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int = NO_EPOCH
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    offline: Sequence[int] = ()


class TopicDescription(Value):
    """A topic and its partitions, in order."""

    name: str
    topic_id: UUID = NO_UUID
    is_internal: bool = False
    partitions: list[TopicPartitionInfo] = field(default_factory=list)
    authorized_operations: int | None = None


class ClusterDescription(Value):
    """The live brokers, and which of them is the controller (-1: none)."""

    cluster_id: str | None
    controller_id: int
    nodes: list[Node]

    @property
    def controller(self) -> Node | None:
        return next((node for node in self.nodes if node.id == self.controller_id), None)


class ConfigResource(NamedTuple):
    """A thing with settings: a topic, a group, or a broker by its id ("" for all brokers)."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None) -> ConfigResource:
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription to metrics that clients push."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}"


class ConfigSynonym(NamedTuple):
    """A source of a setting's value; the first of several takes effect."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting and its value, which is None for a sensitive one.

    `documentation` is there where it was asked for, and the broker has it (2.6 and newer).
    """

    name: str
    value: str | None
    is_default: bool = False
    is_sensitive: bool = False
    is_read_only: bool = False
    source: ConfigSource = ConfigSource.UNKNOWN
    synonyms: Sequence[ConfigSynonym] = ()
    documentation: str | None = None


class AlterConfigOp(NamedTuple):
    """A change of one setting: set, delete, or append to and subtract from a list."""

    name: str
    value: str | None = None
    op: ConfigOperation | str = ConfigOperation.SET

    def __repr__(self) -> str:
        text = self.value and shown(self.name, self.value)
        return f"AlterConfigOp(name={self.name!r}, value={text!r}, op={self.op!r})"


IDLE_STATES: Final = ("Empty", "Dead")
"""A group without members: others may change its offsets."""
REBALANCING_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
)


class GroupListing(NamedTuple):
    """A group in a list; brokers before 2.6 do not return the state, those before 3.8 the type."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


class MemberDescription(Value):
    """A member of a group and its assigned partitions.

    A member of a consumer group has an epoch, and a target assignment (KIP-848).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition] = field(default_factory=list)
    member_epoch: int | None = None
    target_assignment: list[TopicPartition] | None = None


class GroupDescription(Value):
    """A group: its state under Kafka's names, its assignor (`protocol`) and its members.

    Consumer groups have epochs: that of the group, and that of its assignment (KIP-848).
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node
    members: list[MemberDescription] = field(default_factory=list)
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class TransactionFilter(NamedTuple):
    """Which transactional ids to list; a filter that is not set lets all pass."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    id_pattern: str | None = None
