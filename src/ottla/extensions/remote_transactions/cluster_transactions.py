"""Transaction markers and verifications where partitions have leaders on several brokers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import lru_cache, partial
from typing import ClassVar, Final, Generic, TypeVar

from ottla.coordinator.transaction.marker_sender import OnWritten, TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_verifier import OnVerified
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.runtime import Runtime
from ottla.server.broker_connections import BrokerConnections, Purpose
from ottla.server.metadata_cache import MetadataCache
from ottla.server.own_transactions import AskOwnCoordinator, MarkersToOwnBroker
from ottla.structs import (
    NO_LEADER,
    TRANSACTIONS_TOPIC,
    NamedTuple,
    TopicPartition,
    TxnProducer,
    by_topic,
)

logger = logging.getLogger(__name__)

VERSION_FOR_BROKERS: Final = 4
PARTITIONS_IN_A_REQUEST: Final = 5_000
"""A leader refuses a request with very many elements, and each that is made takes a step."""
VERIFIED_IN_A_REQUEST: Final = 500
"""A coordinator answers such a request in one step."""
ANSWERED_AT_ONCE: Final = 100
"""What waits for an answer appends its batches then, or writes that a transaction has ended."""

Errors = dict[TopicPartition, ErrorCode]


class Unwritten(NamedTuple):
    """A marker that a leader must write."""

    marker: TxnMarker
    partitions: list[TopicPartition]
    on_answer: OnWritten


class Unverified(NamedTuple):
    """Partitions about which the coordinator of a producer is asked, or which it adds."""

    producer: TxnProducer
    partitions: list[TopicPartition]
    on_answer: OnVerified
    adds: bool


ItemT = TypeVar("ItemT", Unwritten, Unverified)


class BrokerQueue(ABC, Generic[ItemT]):
    """Questions to one broker: of those that wait, many go in one request.

    It answers when its followers have all that it has written, so one request after another would
    wait for one replication after the other.
    """

    title: ClassVar[str]

    def __init__(self, runtime: Runtime, connections: BrokerConnections, broker_id: int) -> None:
        self._runtime = runtime
        self._connections = connections
        self._broker_id = broker_id
        self._waiting: list[ItemT] = []
        self._is_running = False

    def put(self, item: ItemT) -> None:
        """Have the broker asked; the caller gets a failure, and may try again."""
        self._waiting.append(item)
        if not self._is_running:
            self._is_running = True
            self._runtime.scheduler.spawn(self._run(), f"{self.title} for broker {self._broker_id}")

    async def _run(self) -> None:
        try:
            while self._waiting:
                sent = self._next()
                answered = 0
                for item, errors in zip(sent, await self._answers(sent), strict=True):
                    if answered >= ANSWERED_AT_ONCE:
                        answered = 0
                        await self._runtime.slices.pause()
                    answered += 1 + len(errors)
                    try:
                        item.on_answer(errors)
                    except Exception:
                        logger.exception("the outcome of %s cannot be used", item[0])
        finally:
            self._is_running = False

    async def _answers(self, sent: list[ItemT]) -> list[Errors]:
        """The results of each; one that cannot even be sent does not spoil the others."""
        try:
            return await self._ask(sent)
        except (KafkaError, OSError) as error:
            logger.info("%s for broker %d: %s", self.title, self._broker_id, error)
            code = getattr(error, "error", ErrorCode.NETWORK_EXCEPTION)
        except Exception:
            if len(sent) > 1:
                return [answer for each in sent for answer in await self._answers([each])]
            logger.exception("%s for broker %d cannot be sent", sent[0][0], self._broker_id)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return [dict.fromkeys(each.partitions, self._failure(code)) for each in sent]

    def _failure(self, code: ErrorCode) -> ErrorCode:
        """The error of each partition where the request has failed."""
        return code

    @abstractmethod
    def _next(self) -> list[ItemT]:
        """Those for the next request, which no broker refuses as too large."""

    @abstractmethod
    async def _ask(self, sent: list[ItemT]) -> list[Errors]:
        """The results of each."""


class LeaderQueue(BrokerQueue[Unwritten]):
    """The markers for the leader of some partitions."""

    title = "markers"

    def _next(self) -> list[Unwritten]:
        count = partitions = 0
        while count < len(self._waiting) and partitions < PARTITIONS_IN_A_REQUEST:
            partitions += len(self._waiting[count].partitions)
            count += 1
        sent, self._waiting = self._waiting[:count], self._waiting[count:]
        return sent

    async def _ask(self, sent: list[Unwritten]) -> list[Errors]:
        node = self._connections.node(self._broker_id)
        request = WriteTxnMarkersRequest(
            markers=[writable(each.marker, each.partitions) for each in sent]
        )
        response = await self._connections.ask(node, Purpose.MARKERS, request)
        assert isinstance(response, WriteTxnMarkersResponse)
        if len(response.markers) != len(sent):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(response.markers)} results for {len(sent)} markers",
            )
        return [
            dict.fromkeys(each.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
            | {
                TopicPartition(topic.name, partition.partition_index): ErrorCode.of(
                    partition.error_code
                )
                for topic in result.topics
                for partition in topic.partitions
            }
            for each, result in zip(sent, response.markers, strict=True)
        ]


class CoordinatorQueue(BrokerQueue[Unverified]):
    """The questions about partitions to the coordinator of some transactional ids.

    An id is named once in a request, as it is in the answer.
    """

    title = "verifications"

    def _next(self) -> list[Unverified]:
        sent: dict[str, Unverified] = {}
        left: list[Unverified] = []
        partitions = 0
        for each in self._waiting:
            name = each.producer.transactional_id
            if name in sent or partitions >= VERIFIED_IN_A_REQUEST:
                left.append(each)
            else:
                sent[name] = each
                partitions += len(each.partitions)
        self._waiting = left
        return list(sent.values())

    async def _ask(self, sent: list[Unverified]) -> list[Errors]:
        node = self._connections.node(self._broker_id)
        response = await self._connections.ask(
            node,
            Purpose.VERIFICATION,
            AddPartitionsToTxnRequest(transactions=[asked_about(each) for each in sent]),
            low=VERSION_FOR_BROKERS,
            high=VERSION_FOR_BROKERS,
        )
        assert isinstance(response, AddPartitionsToTxnResponse)
        found = {each.transactional_id: each for each in response.results_by_transaction}
        general = ErrorCode.of(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
        return [
            verification_errors(each.partitions, found.get(each.producer.transactional_id), general)
            for each in sent
        ]

    def _failure(self, code: ErrorCode) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE


class MarkersToCluster(MarkersToOwnBroker):
    """Has markers written by the leaders: by this broker where it leads, else by another."""

    def __init__(
        self,
        runtime: Runtime,
        connections: BrokerConnections,
        cache: MetadataCache,
        writer: MarkerWriter,
    ) -> None:
        super().__init__(writer, cache)
        self._connections = connections
        self._queue_of = lru_cache(maxsize=None)(partial(LeaderQueue, runtime, connections))

    def write_markers(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in sorted(partitions):
            leader = self.cache.leader(topic_partition)
            by_leader.setdefault(leader, []).append(topic_partition)
        collected: Errors = {}

        def on_part_written(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            collected.update(errors)
            if len(collected) == len(partitions):
                on_written(collected)

        for leader, led in by_leader.items():
            if leader == self._connections.broker_id:
                super().write_markers(marker, led, on_part_written)
            elif leader == NO_LEADER:
                on_part_written(dict.fromkeys(led, ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                self._queue_of(leader).put(Unwritten(marker, led, on_part_written))


class AskCoordinatorOnCluster:
    """Asks the coordinator of a transactional id, on whichever broker it is."""

    def __init__(
        self,
        runtime: Runtime,
        connections: BrokerConnections,
        cache: MetadataCache,
        coordinator: TransactionCoordinator,
    ) -> None:
        self._connections = connections
        self._cache = cache
        self._coordinator = coordinator
        self._local = AskOwnCoordinator(coordinator)
        self._queue_of = lru_cache(maxsize=None)(partial(CoordinatorQueue, runtime, connections))

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
        *,
        adds: bool,
    ) -> None:
        partition = self._coordinator.partition_for(producer.transactional_id)
        leader = self._cache.leader(TopicPartition(TRANSACTIONS_TOPIC, partition))
        if leader == self._connections.broker_id:
            self._local(producer, partitions, on_answer, adds=adds)
        elif leader == NO_LEADER:
            on_answer(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._queue_of(leader).put(Unverified(producer, list(partitions), on_answer, adds))


def writable(marker: TxnMarker, partitions: Collection[TopicPartition]) -> WritableTxnMarker:
    """A marker as the protocol's struct."""
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def asked_about(unverified: Unverified) -> AddPartitionsToTxnTransaction:
    """The partitions of a producer as the protocol's struct."""
    producer = unverified.producer
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not unverified.adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic(unverified.partitions).items()
        ],
    )


def verification_errors(
    partitions: Collection[TopicPartition],
    result: AddPartitionsToTxnResult | None,
    general: ErrorCode,
) -> Errors:
    """The error of each partition; `general` of those without a result of their own."""
    errors = dict.fromkeys(partitions, general)
    for topic in () if result is None else result.topic_results:
        for each in topic.results_by_partition:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            errors[topic_partition] = ErrorCode.of(each.partition_error_code)
    return errors
