"""The second phase of a transaction: its markers, sent until all partitions have them.

The outcome is in the log before the first marker goes out, so it does not matter how often this
broker or a leader fails in between: whoever coordinates the id next goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.coordinator.transaction.marker_channel import MarkerChannel, TxnMarker
from ottla.coordinator.transaction.transaction_metadata import ENDING, TransactionMetadata
from ottla.coordinator.transaction.transaction_state_manager import TransactionStateManager
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100

# Another coordinator has gone on with the id: this one must stop.
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
# No marker can ever get into such a partition, and no transactional batch can have.
HOPELESS: Final = frozenset(
    {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)


class MarkerSender:
    """Brings ids from PrepareCommit and PrepareAbort to their completion."""

    def __init__(
        self, runtime: Runtime, manager: TransactionStateManager, channel: MarkerChannel
    ) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._manager = manager
        self._channel = channel

    def send(self, metadata: TransactionMetadata) -> None:
        """Write the markers that the id's state calls for, and then complete it."""
        transaction = metadata.current
        assert transaction.state in ENDING, f"{metadata} has not ended"
        marker = TxnMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.is_commit,
            self._manager.coordinator_epoch(metadata),
            transaction.client_version,
        )
        self._send(metadata, marker, transaction.partitions)

    def _send(
        self,
        metadata: TransactionMetadata,
        marker: TxnMarker,
        partitions: frozenset[TopicPartition],
    ) -> None:
        if not self._manager.is_current(metadata):
            return
        if not self._channel.is_ready:
            self._send_later(metadata, marker, partitions)
            return
        left = frozenset(filter(self._channel.exists, partitions))
        if not left:
            self._complete(metadata)
            return

        def on_written(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            self._on_written(metadata, marker, errors)

        self._channel.write_markers(marker, left, on_written)

    def _on_written(
        self,
        metadata: TransactionMetadata,
        marker: TxnMarker,
        errors: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        fenced = [tp for tp, error in errors.items() if error in FENCED]
        failed = frozenset(tp for tp, error in errors.items() if error and error not in HOPELESS)
        if fenced:
            logger.warning("%s: a newer coordinator has written to %s", metadata, fenced[0])
        elif failed:
            self._send_later(metadata, marker, failed)
        elif self._manager.is_current(metadata):
            self._complete(metadata)

    def _send_later(
        self,
        metadata: TransactionMetadata,
        marker: TxnMarker,
        partitions: frozenset[TopicPartition],
    ) -> None:
        self._scheduler.call_later(RETRY_MS, lambda: self._send(metadata, marker, partitions))

    def _complete(self, metadata: TransactionMetadata) -> None:
        if not self._manager.is_current(metadata) or metadata.current.state not in ENDING:
            return

        def on_stored(error: ErrorCode) -> None:
            if error and self._manager.is_current(metadata):
                self._scheduler.call_later(RETRY_MS, lambda: self._complete(metadata))

        completed = metadata.current.completed(self._clock.now_ms())
        self._manager.store(metadata, completed, on_stored)
