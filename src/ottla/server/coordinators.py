"""The coordinators of groups and of transactions, put together with their logs and handlers.

The log of a coordinator is its internal topic, over the replica manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_rebalancer import ConfigOfGroup
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.transaction.marker_sender import (
    APPEND_TIMEOUT_MS,
    MarkersToLeaders,
    MarkerWriter,
)
from ottla.coordinator.transaction.transaction_coordinator import (
    ProducerIdManager,
    TransactionCoordinator,
)
from ottla.coordinator.transaction.transaction_verifier import AskCoordinator, TransactionVerifier
from ottla.errors import ErrorCode
from ottla.log.log_validator import AppendOrigin
from ottla.record.record_batch import batches
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import ACKS_ALL
from ottla.runtime import Runtime
from ottla.server.metadata_cache import MetadataCache
from ottla.server.own_transactions import AskOwnCoordinator, MarkersToOwnBroker
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, partition_of

if TYPE_CHECKING:
    from ottla.server.broker_connections import BrokerConnections

LOAD_BUFFER_BYTES: Final = 5 * 1024 * 1024


class TopicLog:
    """Appends to and reads from the partitions of an internal topic that this broker leads."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        topic: str,
        default_partition_count: int,
        append_timeout_ms: int,
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.topic = topic
        self.default_partition_count = default_partition_count
        self.append_timeout_ms = append_timeout_ms

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is created."""
        topic = self.cache.topic(self.topic)
        return self.default_partition_count if topic is None else len(topic.partitions)

    def partition_for(self, key: str) -> int:
        """The partition whose leader coordinates the group or id."""
        return partition_of(key, self.partition_count)

    def is_leader(self, partition: int) -> bool:
        """Whether this broker leads the partition, and so coordinates its groups or ids."""
        known = self.replica_manager.partitions.get(TopicPartition(self.topic, partition))
        return known is not None and known.is_leader

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition."""
        return self.replica_manager.partition(TopicPartition(self.topic, partition)).leader_epoch

    def append(self, partition: int, batch: bytes, on_done: Callable[[ErrorCode], object]) -> None:
        """Append one batch; `on_done` is called once all in-sync replicas have it."""
        topic_partition = TopicPartition(self.topic, partition)
        self.replica_manager.append_records(
            self.append_timeout_ms,
            ACKS_ALL,
            {topic_partition: memoryview(bytearray(batch))},
            lambda results: on_done(results[topic_partition].error),
            origin=AppendOrigin.COORDINATOR,
        )

    def read(self, partition: int) -> Iterator[memoryview]:
        """All batches of the partition, a few megabytes of whole ones at a time."""
        log = self.replica_manager.partition(TopicPartition(self.topic, partition)).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(
                offset, LOAD_BUFFER_BYTES, max_offset=log.log_end_offset, min_one_message=True
            )
            if data.records is None or data.records.size == 0:
                return
            buffer = memoryview(data.records.read())
            yield buffer
            offset = next_offset(buffer)


def next_offset(buffer: memoryview) -> int:
    """The offset after the last whole batch of the buffer."""
    end = -1
    for batch in batches(buffer):
        end = batch.next_offset
    return end


class Coordinators:
    """Both coordinators of one broker. All that they know of each other is in this module.

    With `connections`, partitions may have leaders on other brokers.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        producer_ids: ProducerIdManager,
        connections: BrokerConnections | None = None,
        group_config: ConfigOfGroup | None = None,
    ) -> None:
        self.runtime = runtime
        self.replica_manager = replica_manager
        self.cache = cache
        self.producer_ids = producer_ids
        offsets_log = TopicLog(
            replica_manager,
            cache,
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            config.offsets_commit_timeout_ms,
        )
        transactions_log = TopicLog(
            replica_manager,
            cache,
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            APPEND_TIMEOUT_MS,
        )
        self.groups = GroupCoordinator(runtime, config, offsets_log, cache, group_config)
        self.markers = MarkerWriter(
            runtime.clock, replica_manager, self.groups.manager.end_transaction
        )
        self.transactions = TransactionCoordinator(
            runtime,
            config,
            transactions_log,
            producer_ids.generate_producer_id,
            self._markers_to_leaders(connections),
        )
        self.verifier = TransactionVerifier(
            runtime, replica_manager, self._verification(connections)
        )

    def _markers_to_leaders(self, connections: BrokerConnections | None) -> MarkersToLeaders:
        if connections is None:
            return MarkersToOwnBroker(self.markers, self.cache)
        # Imported only here: a single broker does not need it.
        from ottla.server.remote_transactions import MarkersToCluster

        return MarkersToCluster(self.runtime, connections, self.cache, self.markers)

    def _verification(self, connections: BrokerConnections | None) -> AskCoordinator:
        if connections is None:
            return AskOwnCoordinator(self.transactions)
        from ottla.server.remote_transactions import AskCoordinatorOnCluster

        return AskCoordinatorOnCluster(self.runtime, connections, self.cache, self.transactions)

    def startup(self) -> None:
        """Begin to answer."""
        self.groups.startup()
        self.transactions.startup()

    def shutdown(self) -> None:
        """Stop answering."""
        self.transactions.shutdown()
        self.groups.shutdown()
