"""The coordinators of groups and of transactions, put together with their logs and handlers.

The log of a coordinator is its internal topic, over the replica manager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.coordinator.coordinator_log import APPEND_TIMEOUT_MS, OnAppended
from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
from ottla.log.log_validator import AppendOrigin
from ottla.record.memory_records import batches
from ottla.replication.append_results import ACKS_ALL
from ottla.replication.replica_manager import ReplicaManager
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, partition_of

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.coordinator.group.consumer.consumer_rebalancer import ConfigOfGroup
    from ottla.coordinator.group.group_coordinator import GroupCoordinator
    from ottla.coordinator.transaction.marker_sender import MarkersToLeaders
    from ottla.coordinator.transaction.marker_writer import MarkerWriter
    from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
    from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.transaction_verifier import AskCoordinator
    from ottla.registry.tree import Registry
    from ottla.runtime import Runtime
    from ottla.server.metadata_cache import MetadataCache

CoordinatorT = TypeVar("CoordinatorT", "GroupCoordinator", "TransactionCoordinator")
LOAD_BUFFER_BYTES: Final = 1024 * 1024
"""The bytes of ten thousand small batches, whose headers are read in one go."""


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

    def append(self, partition: int, batch: bytes, on_done: OnAppended) -> None:
        """Append one batch; `on_done` is called once all in-sync replicas have it."""
        topic_partition = TopicPartition(self.topic, partition)
        self.replica_manager.append_records(
            self.append_timeout_ms,
            ACKS_ALL,
            {topic_partition: memoryview(bytearray(batch))},
            lambda results: on_done(
                results[topic_partition].error, results[topic_partition].base_offset
            ),
            origin=AppendOrigin.COORDINATOR,
        )

    def is_committed(self, partition: int, offset: int) -> bool:
        """Whether the high watermark is beyond the offset."""
        known = self.replica_manager.partitions.get(TopicPartition(self.topic, partition))
        return known is not None and known.high_watermark > offset

    def may_be_succeeded(self, since_ms: int) -> bool:
        """Whether this broker did not run for longer than its session, after that time."""
        return self.replica_manager.absences.may_be_succeeded(since_ms)

    def end_offset(self, partition: int) -> int:
        """The end of the leader's log."""
        topic_partition = TopicPartition(self.topic, partition)
        return self.replica_manager.partition(topic_partition).log.log_end_offset

    def read(self, partition: int) -> Iterator[memoryview]:
        """All batches of the partition, a megabyte of whole ones at a time."""
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

    Each is imported and made when it is first needed: when the broker leads a partition of its
    topic, or is asked for it.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        registry: Registry,
        group_config: ConfigOfGroup | None = None,
    ) -> None:
        self.runtime = runtime
        self.replica_manager = replica_manager
        self.cache = cache
        self.offsets_log = TopicLog(
            replica_manager,
            cache,
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            config.offsets_commit_timeout_ms,
        )
        self.transactions_log = TopicLog(
            replica_manager,
            cache,
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            APPEND_TIMEOUT_MS,
        )
        self.verifier = TransactionVerifier(runtime, replica_manager, lambda: self._verification)
        self._config = config
        self._registry = registry
        self.new_verification: Callable[[], AskCoordinator] = self._ask_own_coordinator
        """Makes what asks whether a partition is in a transaction; of all brokers, or of this."""

        self.new_marker_target: Callable[[], MarkersToLeaders] = self._write_own_markers
        """Makes what has markers written by the leaders of partitions, on all brokers or here."""

        self._group_config = group_config
        self._answers = False
        self._made: list[GroupCoordinator | TransactionCoordinator] = []

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups may be consumer groups (KIP-848)."""
        return "consumer" in self._config.group_coordinator_rebalance_protocols

    @cached_property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups."""
        from ottla.coordinator.group.group_coordinator import GroupCoordinator

        return self._begin(
            GroupCoordinator(
                self.runtime, self._config, self.offsets_log, self.cache, self._group_config
            )
        )

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator

        return self._begin(
            TransactionCoordinator(
                self.runtime,
                self._config,
                self.transactions_log,
                self.producer_ids.generate_producer_id,
                self.new_marker_target(),
            )
        )

    @cached_property
    def producer_ids(self) -> ProducerIdManager:
        """Gives producers their ids."""
        from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager

        return ProducerIdManager(self._registry, self.replica_manager.broker_id)

    @cached_property
    def markers(self) -> MarkerWriter:
        """Writes the ends of transactions into partitions that this broker leads."""
        from ottla.coordinator.transaction.marker_writer import MarkerWriter

        end_transaction = self.groups.manager.end_transaction
        return MarkerWriter(self.runtime.clock, self.replica_manager, end_transaction)

    def coordinator(self, topic: str) -> GroupCoordinator | TransactionCoordinator:
        """The coordinator whose log is this internal topic."""
        return self.groups if topic == OFFSETS_TOPIC else self.transactions

    def on_topics_deleted(self, topics: Collection[str], *, is_full: bool) -> None:
        """Topics were deleted: groups have no offsets in them any longer.

        After a full update nor in any other topic that does not exist: it may have been deleted
        while no broker coordinated the group.
        """
        if "groups" in self.__dict__:
            self.groups.manager.drop_topics(topics)
            if is_full:
                self.groups.manager.drop_deleted_topics()

    def startup(self) -> None:
        """Begin to answer."""
        self._answers = True
        for coordinator in self._made:
            coordinator.startup()

    def shutdown(self) -> None:
        """Stop answering."""
        self._answers = False
        for coordinator in reversed(self._made):
            coordinator.shutdown()

    def _begin(self, coordinator: CoordinatorT) -> CoordinatorT:
        self._made.append(coordinator)
        if self._answers:
            coordinator.startup()
        return coordinator

    @cached_property
    def _verification(self) -> AskCoordinator:
        return self.new_verification()

    def _ask_own_coordinator(self) -> AskCoordinator:
        from ottla.server.own_transactions import AskOwnCoordinator

        return AskOwnCoordinator(self.transactions)

    def _write_own_markers(self) -> MarkersToLeaders:
        from ottla.server.own_transactions import MarkersToOwnBroker

        return MarkersToOwnBroker(self.markers, self.cache)
