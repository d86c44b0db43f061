"""Requests of the controller and of coordinators to the broker that they live in, as calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

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
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Node, PartitionState, TopicPartition


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
    """Asks this broker's own coordinator whether partitions are in a transaction."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
    ) -> None:
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

    def leader_and_isr(
        self, broker_id: int, states: Sequence[PartitionState]
    ) -> Collection[TopicPartition]:
        offline = set(self.replica_manager.become_leader_or_follower(states))
        for state in states:
            if state.topic_partition.topic in self.coordinators:
                leads = state.leader == broker_id and state.topic_partition not in offline
                self._tell_coordinator(state, leads)
        return offline

    def _tell_coordinator(self, state: PartitionState, leads: bool) -> None:
        topic, partition = state.topic_partition
        if not leads:
            self._elected.pop(state.topic_partition, None)
            self.coordinators[topic].on_resignation(partition)
        elif self._elected.get(state.topic_partition) != state.leader_epoch:
            self._elected[state.topic_partition] = state.leader_epoch
            self.coordinators[topic].on_election(partition)

    def stop_replica(
        self, broker_id: int, partitions: Sequence[TopicPartition], delete: bool
    ) -> None:
        for topic, partition in partitions:
            if topic in self.coordinators:
                self._elected.pop(TopicPartition(topic, partition), None)
                self.coordinators[topic].on_resignation(partition)
        self.replica_manager.stop_replica(partitions, delete)

    def update_metadata(
        self,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        deleted_topics: Sequence[str],
    ) -> None:
        self.cache.update(states, brokers, deleted_topics)
        self.groups.on_topics_deleted(deleted_topics)
        # With the embedded registry the one broker is the controller as well.
        self.cache.controller_id = broker_id
