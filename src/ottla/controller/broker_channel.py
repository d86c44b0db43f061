"""How the controller talks to brokers: the three requests that Kafka's controller sends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ottla.structs import Node, PartitionState, TopicPartition


class BrokerChannel(Protocol):
    """Requests to the brokers of the cluster, in order for each broker."""

    def leader_and_isr(
        self, broker_id: int, states: Sequence[PartitionState]
    ) -> Collection[TopicPartition]:
        """The broker has a replica of these partitions: it leads or follows as they say.

        Returned are those that it cannot, for their log directory has failed (KAFKA_STORAGE_ERROR).
        """
        ...

    def stop_replica(
        self, broker_id: int, partitions: Sequence[TopicPartition], delete: bool
    ) -> None:
        """The broker gives these partitions up; with `delete` their logs go, hosted or not."""
        ...

    def update_metadata(
        self,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        deleted_topics: Sequence[str],
    ) -> None:
        """What clients of the broker are to be told; partitions that are not named stay."""
        ...
