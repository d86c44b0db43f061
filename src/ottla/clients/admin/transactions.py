"""Transactions: list and describe them, list a partition's producers, abort hanging ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import cast

from ottla.clients.admin.admin_client import AdminClient, checked
from ottla.clients.admin.descriptions import TransactionFilter
from ottla.clients.network_client import response_error
from ottla.errors import KafkaError
from ottla.protocol.group import KEY_TYPE_TRANSACTION
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.runtime.timing import Deadline
from ottla.structs import NO_OFFSET, NO_TIMESTAMP, NamedTuple, Node, TopicPartition, by_topic

FIRST_LIST_WITH_DURATION = 1
FIRST_LIST_WITH_PATTERN = 2
# The transaction timeout does not matter: nothing will be written with the new id and epoch.
FENCE_TIMEOUT_MS = 1
ANY_ID = "ottla-any-transactional-id"
"""An id of nobody. A client that may not see it may not see all, and others are not listed."""


class TransactionListing(NamedTuple):
    """A transactional id in a list, with the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator knows it; the start only if a transaction is open."""

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]


class ProducerDescription(NamedTuple):
    """A producer as known to a partition; the start offset only if it has an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class HangingTransaction(NamedTuple):
    """A transaction to abort in one partition, with the values of its `ProducerDescription`."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class OpenTransaction(NamedTuple):
    """A producer with an open transaction in a partition."""

    partition: TopicPartition
    producer: ProducerDescription

    def is_of(self, known: TransactionDescription | None) -> bool:
        """Whether a coordinator has the partition in an open transaction of the producer.

        A transaction that no coordinator knows hangs, unless it is about to begin or to end.
        """
        return known is not None and self.partition in known.partitions


class TransactionAdmin:
    """Requests about transactions; they go to coordinators and to the leaders of partitions."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_transactions(self, wanted: TransactionFilter) -> list[TransactionListing]:
        async def attempt(
            pending: list[int], deadline: Deadline
        ) -> dict[int, list[TransactionListing] | KafkaError]:
            answers = await asyncio.gather(*(self._list(broker, wanted) for broker in pending))
            return dict(zip(pending, answers, strict=True))

        brokers = await self._admin.brokers(self._admin.deadline())
        results = await self._admin.for_each(brokers, attempt)
        for broker, listed in results.items():
            if not isinstance(listed, KafkaError):
                ids = [each.transactional_id for each in listed]
                self._admin.note_coordinator(broker, ids, KEY_TYPE_TRANSACTION)
        return sorted(each for listed in checked(results).values() for each in listed)

    async def _list(
        self, broker: int, wanted: TransactionFilter
    ) -> list[TransactionListing] | KafkaError:
        request = ListTransactionsRequest(
            state_filters=list(wanted.states), producer_id_filters=list(wanted.producer_ids)
        )
        low = 0
        if wanted.longer_than_ms is not None:
            request.duration_filter = wanted.longer_than_ms
            low = FIRST_LIST_WITH_DURATION
        if wanted.id_pattern:
            request.transactional_id_pattern = wanted.id_pattern
            low = FIRST_LIST_WITH_PATTERN
        try:
            answer = await self._admin.client.send(broker, request, low=low)
        except KafkaError as cause:
            return cause
        response = cast(ListTransactionsResponse, answer)
        return response_error(response.error_code, f"transactions of broker {broker}") or [
            TransactionListing(
                each.transactional_id, broker, each.producer_id, each.transaction_state
            )
            for each in response.transaction_states
        ]

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, TransactionDescription | KafkaError]:
            return await self._admin.ask_coordinators(
                pending, deadline, self._describe, KEY_TYPE_TRANSACTION
            )

        return await self._admin.for_each(transactional_ids, attempt)

    async def _describe(
        self, coordinator: Node, transactional_ids: list[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
        answer = await self._admin.client.send(coordinator.id, request)
        return {
            state.transactional_id: response_error(
                state.error_code, f"transactional id {state.transactional_id}"
            )
            or description_of(state, coordinator.id)
            for state in cast(DescribeTransactionsResponse, answer).transaction_states
        }

    async def describe_producers(
        self, partitions: Collection[TopicPartition], broker_id: int | None
    ) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
            if broker_id is None:
                return await self._admin.ask_leaders(pending, self._producers, deadline)
            if broker_id not in self._admin.client.node_ids:
                await self._admin.metadata.update(deadline)
            return await self._producers(broker_id, pending)

        return await self._admin.for_each(partitions, attempt)

    async def _producers(
        self, broker_id: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        )
        answer = await self._admin.client.send(broker_id, request)
        results: dict[TopicPartition, list[ProducerDescription] | KafkaError] = {}
        for topic in cast(DescribeProducersResponse, answer).topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                what = f"producers of {partition} on broker {broker_id}"
                results[partition] = response_error(p.error_code, what, p.error_message) or [
                    producer_of(state) for state in p.active_producers
                ]
        return results

    async def abort_transaction(self, hanging: HangingTransaction) -> KafkaError | None:
        partition = hanging.partition
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=hanging.producer_id,
                    producer_epoch=hanging.producer_epoch,
                    transaction_result=False,
                    topics=[
                        WritableTxnMarkerTopic(
                            name=partition.topic, partition_indexes=[partition.partition]
                        )
                    ],
                    # It is -1 if the partition has seen no marker of the producer yet.
                    coordinator_epoch=max(0, hanging.coordinator_epoch),
                )
            ]
        )

        async def ask(
            leader: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            answer = await self._admin.client.send(leader, request)
            return {
                TopicPartition(topic.name, p.partition_index): response_error(
                    p.error_code, f"abort of producer {hanging.producer_id} in {partition}"
                )
                for marker in cast(WriteTxnMarkersResponse, answer).markers
                for topic in marker.topics
                for p in topic.partitions
            }

        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> Mapping[TopicPartition, KafkaError | None]:
            return await self._admin.ask_leaders(pending, ask, deadline)

        return (await self._admin.for_each([partition], attempt))[partition]

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, tuple[int, int] | KafkaError]:
        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, tuple[int, int] | KafkaError]:
            answers = await asyncio.gather(*(self._fence(each, deadline) for each in pending))
            return dict(zip(pending, answers, strict=True))

        return await self._admin.for_each(transactional_ids, attempt)

    async def _fence(
        self, transactional_id: str, deadline: Deadline
    ) -> tuple[int, int] | KafkaError:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS
        )
        try:
            node = await self._admin.coordinator(transactional_id, deadline, KEY_TYPE_TRANSACTION)
            response = cast(InitProducerIdResponse, await self._admin.client.send(node.id, request))
        except KafkaError as error:
            return error
        refusal = response_error(response.error_code, f"producers of {transactional_id}")
        return refusal or (response.producer_id, response.producer_epoch)


def description_of(
    state: DescribeTransactionsTransactionState, coordinator_id: int
) -> TransactionDescription:
    """A transactional id as its coordinator describes it."""
    start_ms = state.transaction_start_time_ms
    return TransactionDescription(
        coordinator_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if start_ms == NO_TIMESTAMP else start_ms,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in state.topics
            for index in topic.partitions
        ),
    )


def producer_of(state: ProducerState) -> ProducerDescription:
    """A producer as the partition's broker describes it."""
    offset = state.current_txn_start_offset
    return ProducerDescription(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        None if offset == NO_OFFSET else offset,
    )
