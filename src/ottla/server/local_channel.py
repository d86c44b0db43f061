"""Requests of the controller and of coordinators to their own broker, as direct calls."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from ottla.controller.broker_request_batch import OnAnswer
from ottla.coordinator.transaction.marker_sender import MarkerWriter, OnWritten, TxnMarker
from ottla.coordinator.transaction.transaction_coordinator import (
    TransactionCoordinator,
    TxnProducer,
)
from ottla.coordinator.transaction.transaction_verifier import OnVerified
from ottla.errors import ErrorCode, KafkaError
from ottla.server.controller_orders import ControllerOrders
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    TRANSACTIONS_TOPIC,
    BrokerEndPoints,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)


class LocalMarkerChannel:
    """Writes the markers of transactions into partitions of this broker, which leads them all."""

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
    """Asks this broker's own coordinator whether partitions are in a transaction, or adds them."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self.coordinator = coordinator

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
        *,
        adds: bool,
    ) -> None:
        if adds:
            self.coordinator.add_partitions(
                producer, partitions, lambda error: on_answer(dict.fromkeys(partitions, error))
            )
        else:
            on_answer(self.coordinator.verify_partitions(producer, partitions))


class LocalBrokerChannel:
    """Carries LeaderAndIsr, StopReplica and UpdateMetadata out on this broker, at once."""

    def __init__(self, orders: ControllerOrders, broker_id: int) -> None:
        self.orders = orders
        self.broker_id = broker_id

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """This broker needs no connection."""

    def remove_broker(self, broker_id: int) -> None:
        """This broker needs no connection."""

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        with self._obeying():
            on_answer(self.orders.become_leader_or_follower(controller_epoch, states, brokers))

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        with self._obeying():
            self.orders.stop_replica(controller_epoch, partitions, on_answer)

    def update_metadata(
        self, controller_epoch: int, broker_id: int, update: MetadataUpdate
    ) -> None:
        with self._obeying():
            self.orders.update_metadata(self.broker_id, controller_epoch, update)

    @contextmanager
    def _obeying(self) -> Iterator[None]:
        """Log requests that are refused because a newer controller is known."""
        try:
            yield
        except KafkaError as error:
            if error.error is not ErrorCode.STALE_CONTROLLER_EPOCH:
                raise
            logger.warning("this broker obeys a newer controller than its own: %s", error)
