"""Transaction markers and verifications where partitions have leaders on several brokers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from ottla.coordinator.transaction.marker_sender import OnWritten, TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_verifier import OnVerified
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
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

Errors = dict[TopicPartition, ErrorCode]


class Unwritten(NamedTuple):
    """A marker that a leader must write."""

    marker: TxnMarker
    partitions: list[TopicPartition]
    on_written: OnWritten


class LeaderQueue:
    """The markers for the leader of some partitions: of those that wait, many go in one request.

    A leader answers when its followers have the markers, so one request after the other would wait
    for one replication after the other.
    """

    def __init__(self, runtime: Runtime, connections: BrokerConnections, leader: int) -> None:
        self._runtime = runtime
        self._connections = connections
        self._leader = leader
        self._waiting: list[Unwritten] = []
        self._is_running = False

    def put(self, unwritten: Unwritten) -> None:
        """Have the marker written; the caller gets a failure, and may try again."""
        self._waiting.append(unwritten)
        if not self._is_running:
            self._is_running = True
            self._runtime.scheduler.spawn(self._run(), f"markers for broker {self._leader}")

    async def _run(self) -> None:
        try:
            while self._waiting:
                sent = self._next()
                for unwritten, errors in zip(sent, await self._answers(sent), strict=True):
                    try:
                        unwritten.on_written(errors)
                    except Exception:
                        logger.exception("the outcome of %s cannot be used", unwritten.marker)
        finally:
            self._is_running = False

    def _next(self) -> list[Unwritten]:
        """Those for the next request, which no leader refuses as too large."""
        count = partitions = 0
        while count < len(self._waiting) and partitions < PARTITIONS_IN_A_REQUEST:
            partitions += len(self._waiting[count].partitions)
            count += 1
        sent, self._waiting = self._waiting[:count], self._waiting[count:]
        return sent

    async def _answers(self, sent: list[Unwritten]) -> list[Errors]:
        """The results of each; a marker that cannot even be sent does not spoil the others."""
        try:
            return await self._ask(sent)
        except (KafkaError, OSError) as error:
            logger.info("markers for broker %d: %s", self._leader, error)
            code = getattr(error, "error", ErrorCode.NETWORK_EXCEPTION)
        except Exception:
            if len(sent) > 1:
                return [answer for each in sent for answer in await self._answers([each])]
            logger.exception("%s for broker %d cannot be sent", sent[0].marker, self._leader)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return [dict.fromkeys(each.partitions, code) for each in sent]

    async def _ask(self, sent: list[Unwritten]) -> list[Errors]:
        node = self._connections.node(self._leader)
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
        self._runtime = runtime
        self._connections = connections
        self._queues: dict[int, LeaderQueue] = {}

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
                self._queue(leader).put(Unwritten(marker, led, on_part_written))

    def _queue(self, leader: int) -> LeaderQueue:
        queue = self._queues.get(leader)
        if queue is None:
            queue = LeaderQueue(self._runtime, self._connections, leader)
            self._queues[leader] = queue
        return queue


class AskCoordinatorOnCluster:
    """Asks the coordinator of a transactional id, on whichever broker it is."""

    def __init__(
        self,
        runtime: Runtime,
        connections: BrokerConnections,
        cache: MetadataCache,
        coordinator: TransactionCoordinator,
    ) -> None:
        self._runtime = runtime
        self._connections = connections
        self._cache = cache
        self._coordinator = coordinator
        self._local = AskOwnCoordinator(coordinator)

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
            asking = self._ask(leader, producer, list(partitions), on_answer, adds)
            self._runtime.scheduler.spawn(asking, "verify a transaction")

    async def _ask(
        self,
        leader: int,
        producer: TxnProducer,
        partitions: list[TopicPartition],
        on_answer: OnVerified,
        adds: bool,
    ) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=producer.transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=not adds,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in by_topic(partitions).items()
                    ],
                )
            ]
        )
        try:
            node = self._connections.node(leader)
            response = await self._connections.ask(
                node,
                Purpose.VERIFICATION,
                request,
                low=VERSION_FOR_BROKERS,
                high=VERSION_FOR_BROKERS,
            )
            assert isinstance(response, AddPartitionsToTxnResponse)
            errors = verification_errors(partitions, response)
        except (KafkaError, OSError) as error:
            logger.info("verification of %s at broker %d: %s", producer, leader, error)
            errors = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except Exception:
            logger.exception("%s cannot be verified at broker %d", producer, leader)
            errors = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        on_answer(errors)


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


def verification_errors(
    partitions: Collection[TopicPartition], response: AddPartitionsToTxnResponse
) -> Errors:
    """The error of each partition; an error of the whole response applies to each."""
    general = ErrorCode.of(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
    errors = dict.fromkeys(partitions, general)
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            for result in topic.results_by_partition:
                topic_partition = TopicPartition(topic.name, result.partition_index)
                errors[topic_partition] = ErrorCode.of(result.partition_error_code)
    return errors
