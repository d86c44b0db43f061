"""Requests of the controller and of coordinators to the broker that they live in, as calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ottla.controller.broker_channel import OnAnswer
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.transaction.marker_channel import OnWritten, TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import (
    TransactionCoordinator,
    TxnProducer,
)
from ottla.coordinator.transaction.transaction_verifier import OnVerified
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerEndPoints,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)


class Coordinator(Protocol):
    """Whoever keeps its state in the partitions of an internal topic."""

    def on_election(self, partition: int) -> None: ...

    def on_resignation(self, partition: int) -> None: ...


class LocalMarkerChannel:
    """Writes the markers of transactions into partitions of this broker, which has them all."""

    def __init__(self, writer: MarkerWriter, cache: MetadataCache) -> None:
        self.writer = writer
        self.cache = cache

    @property
    def is_ready(self) -> bool:
        return self.cache.topic(TRANSACTIONS_TOPIC) is not None

    def exists(self, topic_partition: TopicPartition) -> bool:
        return self.cache.contains(topic_partition)

    def write_markers(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        self.writer.write(marker, partitions, on_written)


class LocalVerification:
    """Asks this broker's own coordinator whether partitions are in a transaction, or adds them."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
        *,
        adds: bool,
    ) -> None:
        if adds:
            self.coordinator.add_partitions(
                producer, partitions, lambda error: on_answer(dict.fromkeys(partitions, error))
            )
        else:
            on_answer(self.coordinator.verify_partitions(producer, partitions))


class LocalBrokerChannel:
    """Carries LeaderAndIsr, StopReplica and UpdateMetadata out on this broker, at once."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.coordinators: Mapping[str, Coordinator] = {
            OFFSETS_TOPIC: groups,
            TRANSACTIONS_TOPIC: transactions,
        }
        self.groups = groups
        # In which epochs coordinators took their partitions over: the same is not told twice.
        self._elected: dict[TopicPartition, int] = {}

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """This broker needs no connection."""

    def remove_broker(self, broker_id: int) -> None:
        """This broker needs no connection."""

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        nodes = {node.id: node for node in brokers}
        errors = self.replica_manager.become_leader_or_follower(states, nodes)
        for state in states:
            if state.topic_partition.topic in self.coordinators:
                leads = state.leader == broker_id and not errors.get(state.topic_partition)
                self._tell_coordinator(state, leads)
        on_answer(errors)

    def _tell_coordinator(self, state: PartitionState, leads: bool) -> None:
        topic, partition = state.topic_partition
        if not leads:
            self._elected.pop(state.topic_partition, None)
            self.coordinators[topic].on_resignation(partition)
        elif self._elected.get(state.topic_partition) != state.leader_epoch:
            self._elected[state.topic_partition] = state.leader_epoch
            self.coordinators[topic].on_election(partition)

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        errors = self.replica_manager.stop_replica(partitions)
        for topic_partition, error in errors.items():
            if topic_partition.topic in self.coordinators and not error:
                self._elected.pop(topic_partition, None)
                coordinator = self.coordinators[topic_partition.topic]
                coordinator.on_resignation(topic_partition.partition)
        on_answer(errors)

    def update_metadata(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[BrokerEndPoints],
        deleted_topics: Sequence[str],
    ) -> None:
        self.cache.update(states, brokers, deleted_topics)
        self.groups.on_topics_deleted(deleted_topics)
        # With the embedded registry the one broker is the controller as well.
        self.cache.controller_id = broker_id
