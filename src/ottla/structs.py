"""The small value types that every room of the house speaks in."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1
NO_EPOCH = -1
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


class LeaderAndIsr(NamedTuple):
    """Who leads a partition, in which epoch, and which replicas are in sync with it.

    `version` is the version of the partition's state znode that these values were read from.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0


class PartitionState(NamedTuple):
    """What the controller tells a broker about one partition (LeaderAndIsr, UpdateMetadata)."""

    topic_partition: TopicPartition
    topic_id: UUID
    controller_epoch: int
    leader_and_isr: LeaderAndIsr
    replicas: tuple[int, ...]
    is_new: bool = False
    offline_replicas: tuple[int, ...] = ()

    @property
    def leader(self) -> int:
        return self.leader_and_isr.leader

    @property
    def leader_epoch(self) -> int:
        return self.leader_and_isr.leader_epoch
