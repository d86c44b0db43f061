"""What administrators ask about transactions: DescribeProducers (61) v0, DescribeTransactions (65)
v0 and ListTransactions (66) v0-2 (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.group.consumer.consumer_rebalancer import compile_regex
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_metadata import (
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers.producer_state_manager import ProducerState as KnownProducer
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Clock
from ottla.server.apis import Handler
from ottla.structs import TopicPartition

STATES_BY_TITLE: Final = {state.title: state for state in TransactionState}


class TransactionViewHandlers:
    """Answers from the coordinator's memory and from the logs."""

    def __init__(
        self, coordinator: TransactionCoordinator, replica_manager: ReplicaManager, clock: Clock
    ) -> None:
        self.coordinator = coordinator
        self.replica_manager = replica_manager
        self.clock = clock

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_PRODUCERS: self.handle_describe_producers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.handle_describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.handle_list_transactions,
        }

    def handle_describe_producers(
        self, context: RequestContext, body: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        self._producers(TopicPartition(topic.name, index))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics
            ]
        )

    def handle_describe_transactions(
        self, context: RequestContext, body: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(name) for name in body.transactional_ids]
        )

    def handle_list_transactions(
        self, context: RequestContext, body: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        manager = self.coordinator.manager
        if manager.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        # What could look back without end is refused with INVALID_REGULAR_EXPRESSION.
        pattern = compile_regex(body.transactional_id_pattern or ".*")
        unknown = [title for title in body.state_filters if title not in STATES_BY_TITLE]
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                ListTransactionsTransactionState(
                    transactional_id=metadata.transactional_id,
                    producer_id=metadata.current.producer_id,
                    transaction_state=metadata.current.state.title,
                )
                for metadata in manager.all()
                if self._passes(metadata.current, body)
                and pattern.fullmatch(metadata.transactional_id)
            ],
        )

    def _passes(self, transaction: Transaction, body: ListTransactionsRequest) -> bool:
        now_ms = self.clock.now_ms()
        if body.producer_id_filters and transaction.producer_id not in body.producer_id_filters:
            return False
        if body.state_filters and transaction.state.title not in body.state_filters:
            return False
        if body.duration_filter < 0:
            return True
        is_open = transaction.start_ms >= 0 and transaction.partitions
        return bool(is_open) and now_ms - transaction.start_ms > body.duration_filter

    def _describe(self, transactional_id: str) -> DescribeTransactionsTransactionState:
        error = self.coordinator.availability(transactional_id)
        metadata = None if error else self.coordinator.manager.get(transactional_id)
        if metadata is None:
            return DescribeTransactionsTransactionState(
                error_code=error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                transactional_id=transactional_id,
            )
        transaction = metadata.current
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(transaction.partitions):
            topics.setdefault(topic, []).append(partition)
        return DescribeTransactionsTransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[TopicData(topic=name, partitions=found) for name, found in topics.items()],
        )

    def _producers(self, topic_partition: TopicPartition) -> PartitionResponse:
        index = topic_partition.partition
        try:
            producers = self.replica_manager.partition(topic_partition).active_producers()
        except KafkaError as error:
            return PartitionResponse(
                partition_index=index, error_code=error.error, error_message=error.message
            )
        return PartitionResponse(
            partition_index=index, active_producers=[_described(known) for known in producers]
        )


def _described(known: KnownProducer) -> ProducerState:
    return ProducerState(
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.last_timestamp_ms,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.current_txn_first_offset,
    )
