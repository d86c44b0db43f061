"""The small value types that all packages share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted, as UpdateMetadata has it."""
NO_EPOCH = -1
EPOCH_DURING_DELETE = -2
"""The leader epoch of StopReplica for a topic that is being deleted: no other one is newer."""
NO_PRODUCER_ID = -1
NO_UUID = UUID(int=0)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The topics that brokers write: clients may read them, and neither make nor delete them."""


class TopicPartition(NamedTuple):
    """A partition of a topic, written ``topic-3`` as its directory is."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker as clients see it: the id of the cluster member and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


class EndPoint(NamedTuple):
    """Where a listener binds or is advertised; an empty host is every address of the machine."""

    listener_name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


class BrokerEndPoints(NamedTuple):
    """A live broker with all the listeners that it advertises.

    `epoch` numbers the registration: a broker that was started again has a higher one (KIP-380).
    """

    id: int
    epoch: int
    endpoints: tuple[EndPoint, ...]
    rack: str | None = None

    def node(self, listener_name: str) -> Node | None:
        """The broker as clients of this listener reach it; None where it has no such listener."""
        for end_point in self.endpoints:
            if end_point.listener_name == listener_name:
                return Node(self.id, end_point.host, end_point.port, self.rack)
        return None


class LeaderAndIsr(NamedTuple):
    """Who leads a partition, in which epoch, and which replicas are in sync with it.

    `version` is the version of the partition's state znode that these values were read from.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0


class PartitionState(NamedTuple):
    """What the controller tells a broker about one partition (LeaderAndIsr, UpdateMetadata).

    `adding_replicas` and `removing_replicas` are those of a reassignment under way (KIP-455).
    """

    topic_partition: TopicPartition
    topic_id: UUID
    controller_epoch: int
    leader_and_isr: LeaderAndIsr
    replicas: tuple[int, ...]
    is_new: bool = False
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def leader(self) -> int:
        return self.leader_and_isr.leader

    @property
    def leader_epoch(self) -> int:
        return self.leader_and_isr.leader_epoch


class StopReplicaPartition(NamedTuple):
    """A partition that a broker shall give up; with `delete` its log goes, hosted or not.

    `leader_epoch` is that of the controller's decision; an older one than the replica's is refused,
    unless it is NO_EPOCH or EPOCH_DURING_DELETE.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


class MetadataUpdate(NamedTuple):
    """What a broker tells its clients; partitions that are not named stay.

    `brokers` are all that live. With `is_full` topics that are not named are forgotten.
    """

    states: Sequence[PartitionState] = ()
    brokers: Sequence[BrokerEndPoints] = ()
    deleted_topics: Sequence[str] = ()
    is_full: bool = False
