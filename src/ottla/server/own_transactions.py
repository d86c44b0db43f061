"""Transaction markers and verifications where this broker leads all partitions: direct calls.

It stands alone because a single broker needs no more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.coordinator.transaction.marker_sender import OnWritten, TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_verifier import OnVerified
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import TopicPartition, TxnProducer

logger = logging.getLogger(__name__)


class MarkersToOwnBroker:
    """Writes the markers of transactions into partitions of this broker, which leads them all."""

    def __init__(self, writer: MarkerWriter, cache: MetadataCache) -> None:
        self.writer = writer
        self.cache = cache

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        return self.cache.is_deleted(topic_partition)

    def write_markers(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        self.writer.write(marker, partitions, on_written)


class AskOwnCoordinator:
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
