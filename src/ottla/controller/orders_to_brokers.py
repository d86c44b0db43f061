"""The three requests by which the controller talks to brokers, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ottla.errors import ErrorCode
from ottla.structs import (
    BrokerEndPoints,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

OnAnswer = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class OrdersToBrokers(Protocol):
    """Requests of the controller to the brokers of the cluster, in order for each broker.

    A broker that was added is tried until it answers. One that was removed is sent nothing more,
    and its unanswered requests are dropped. The controller's own broker is called directly, and
    has answered a short order before the call returns.
    """

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """The broker has registered; with a new epoch it is a new process of the same id."""
        ...

    def remove_broker(self, broker_id: int) -> None:
        """The broker's registration is gone."""
        ...

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        """The broker has a replica of these partitions: it leads or follows as they say.

        `brokers` says where the leaders are. A partition whose log directory has failed is
        answered with KAFKA_STORAGE_ERROR.
        """
        ...

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        """The broker gives these partitions up."""
        ...

    def update_metadata(
        self, controller_epoch: int, broker_ids: Sequence[int], update: MetadataUpdate
    ) -> None:
        """The brokers must tell this to their clients."""
        ...

    async def settle(self) -> None:
        """Wait until the controller's own broker has carried out its orders."""
        ...
