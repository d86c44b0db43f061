"""The coordinators of groups and of transactions, put together with their logs and handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_rebalancer import ConfigOfGroup
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.transaction.marker_sender import (
    APPEND_TIMEOUT_MS,
    MarkersToLeaders,
    MarkerWriter,
)
from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_verifier import (
    AskCoordinator,
    TransactionVerifier,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.server.coordinator_log import TopicLog
from ottla.server.metadata_cache import MetadataCache
from ottla.server.own_transactions import AskOwnCoordinator, MarkersToOwnBroker
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.server.broker_connections import BrokerConnections


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
