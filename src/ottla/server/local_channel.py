"""The controller's requests to the broker that it lives in, as plain calls."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import OFFSETS_TOPIC, Node, PartitionState, TopicPartition


class LocalBrokerChannel:
    """Carries LeaderAndIsr, StopReplica and UpdateMetadata out on this broker, at once."""

    def __init__(
        self, replica_manager: ReplicaManager, cache: MetadataCache, groups: GroupCoordinator
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.groups = groups

    def leader_and_isr(self, broker_id: int, states: Sequence[PartitionState]) -> None:
        self.replica_manager.become_leader_or_follower(states)
        for state in states:
            topic, partition = state.topic_partition
            if topic == OFFSETS_TOPIC and state.leader == broker_id:
                self.groups.on_election(partition)
            elif topic == OFFSETS_TOPIC:
                self.groups.on_resignation(partition)

    def stop_replica(
        self, broker_id: int, partitions: Sequence[TopicPartition], delete: bool
    ) -> None:
        for topic, partition in partitions:
            if topic == OFFSETS_TOPIC:
                self.groups.on_resignation(partition)
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
