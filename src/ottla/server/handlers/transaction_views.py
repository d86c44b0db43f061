"""The views of administrators on transactions (KIP-664, KIP-994, KIP-1152).

DescribeProducers (61) v0, DescribeTransactions (65) v0 and ListTransactions (66) v0-2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.coordinator.group.consumer.name_pattern import compile_regex
from ottla.coordinator.transaction.transaction import Transaction, TransactionState
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_partitions import TOPICS_IN_A_SLICE
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.network.request_context import RequestContext
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
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.server.api import Answer, Handler, begin
from ottla.structs import TopicPartition

IDS_IN_A_SLICE: Final = 1000
PRODUCERS_IN_A_SLICE: Final = 1000
STATES_BY_TITLE: Final = {state.title: state for state in TransactionState}


class TransactionViewHandlers:
    """Answers from the coordinator's memory and from the logs."""

    def __init__(
        self, coordinator: TransactionCoordinator, replica_manager: ReplicaManager, runtime: Runtime
    ) -> None:
        self.coordinator = coordinator
        self.replica_manager = replica_manager
        self.clock, self.slices = runtime.clock, runtime.slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_PRODUCERS: self.handle_describe_producers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.handle_describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.handle_list_transactions,
        }

    def handle_describe_producers(
        self, context: RequestContext, body: DescribeProducersRequest
    ) -> Answer:
        return begin(self.slices, context, self._describe_producers(body))

    def _describe_producers(
        self, body: DescribeProducersRequest
    ) -> Work[DescribeProducersResponse]:
        response, count = DescribeProducersResponse(), 0
        for topic in body.topics:
            answer = TopicResponse(name=topic.name)
            response.topics.append(answer)
            for index in topic.partition_indexes:
                partition, producers = self._producers(TopicPartition(topic.name, index))
                answer.partitions.append(partition)
                for known in producers:
                    partition.active_producers.append(_described(known))
                    count += 1
                    if not count % PRODUCERS_IN_A_SLICE:
                        yield
        return response

    def handle_describe_transactions(
        self, context: RequestContext, body: DescribeTransactionsRequest
    ) -> Answer:
        return begin(self.slices, context, self._describe_transactions(body))

    def _describe_transactions(
        self, body: DescribeTransactionsRequest
    ) -> Work[DescribeTransactionsResponse]:
        response = DescribeTransactionsResponse()
        for name in body.transactional_ids:
            response.transaction_states.append((yield from self._describe(name)))
        return response

    def handle_list_transactions(
        self, context: RequestContext, body: ListTransactionsRequest
    ) -> Answer:
        return begin(self.slices, context, self._list_transactions(context, body))

    def _list_transactions(
        self, context: RequestContext, body: ListTransactionsRequest
    ) -> Work[ListTransactionsResponse]:
        manager = self.coordinator.manager
        if manager.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        passes = self._filter(body)
        text = body.transactional_id_pattern
        pattern = compile_regex(text) if text else None
        response = ListTransactionsResponse(
            unknown_state_filters=[
                title for title in body.state_filters if title not in STATES_BY_TITLE
            ]
        )
        known = list(manager.all())
        for place in range(0, len(known), IDS_IN_A_SLICE):
            if place:
                yield
            some = {
                metadata.transactional_id: metadata.current
                for metadata in known[place : place + IDS_IN_A_SLICE]
                if passes(metadata.current)  # before anything is matched
                and (context.in_sight is None or context.in_sight(metadata.transactional_id))
            }
            response.transaction_states += [
                ListTransactionsTransactionState(
                    transactional_id=transactional_id,
                    producer_id=some[transactional_id].producer_id,
                    transaction_state=some[transactional_id].state.title,
                )
                for transactional_id in (pattern.matching(some) if pattern else some)
            ]
        return response

    def _filter(self, body: ListTransactionsRequest) -> Callable[[Transaction], bool]:
        now_ms = self.clock.now_ms()
        producer_ids, states = set(body.producer_id_filters), set(body.state_filters)

        def passes(transaction: Transaction) -> bool:
            if producer_ids and transaction.producer_id not in producer_ids:
                return False
            if states and transaction.state.title not in states:
                return False
            if body.duration_filter < 0:
                return True
            is_open = transaction.start_ms >= 0 and transaction.partitions
            return bool(is_open) and now_ms - transaction.start_ms > body.duration_filter

        return passes

    def _describe(self, transactional_id: str) -> Work[DescribeTransactionsTransactionState]:
        error = self.coordinator.availability(transactional_id)
        metadata = None if error else self.coordinator.manager.get(transactional_id)
        if metadata is None:
            return DescribeTransactionsTransactionState(
                error_code=error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                transactional_id=transactional_id,
            )
        transaction = metadata.current
        topics: list[TopicData] = []
        for number, (topic, partitions) in enumerate(transaction.partitions.topics.items(), 1):
            topics.append(TopicData(topic=topic, partitions=list(partitions)))
            if not number % TOPICS_IN_A_SLICE:
                yield
        return DescribeTransactionsTransactionState(
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=topics,
        )

    def _producers(
        self, topic_partition: TopicPartition
    ) -> tuple[PartitionResponse, Sequence[ProducerStateEntry]]:
        answer = PartitionResponse(partition_index=topic_partition.partition)
        try:
            return answer, self.replica_manager.partition(topic_partition).active_producers()
        except KafkaError as error:
            answer.error_code, answer.error_message = error.error, error.message
            return answer, ()


def _described(known: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.last_timestamp_ms,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.current_txn_first_offset,
    )
