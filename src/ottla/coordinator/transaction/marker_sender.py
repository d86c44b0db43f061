"""The second phase of a transaction: its markers, sent until all partitions have them.

The outcome is in the log before the first marker goes out, so it does not matter how often this
broker or a leader fails in between: the id's next coordinator continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, Protocol

from ottla.coordinator.transaction.transaction import ENDING
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.coordinator.transaction.transaction_state_manager import TransactionStateManager
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple, TopicPartition

logger = logging.getLogger(__name__)


OnWritten = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class TxnMarker(NamedTuple):
    """How a producer's transaction has ended, as decided in an epoch of its coordinator.

    From `transaction_version` 2 on the end has raised the producer's epoch: the marker has the
    epoch in which the producer continues, and batches of this epoch are of later transactions.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


class MarkersToLeaders(Protocol):
    """Requests of the coordinator to the leaders of partitions, wherever they are."""

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether it is certain that the topic was deleted: then no marker is needed.

        A partition that is just unknown here gets its marker later.
        """
        ...

    def write_markers(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        """Have the marker written to each partition; `on_written` gets the results once."""
        ...


RETRY_MS: Final = 100
RETRIES_PER_MS: Final = 20
"""A transaction with very many markers waits longer, as all of them are tried again."""
MARKERS_IN_A_STEP: Final = 250

# Another coordinator has taken over the id: this one must stop.
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
# Such a partition can never take a marker, and cannot have a transactional batch.
PERMANENT: Final = frozenset(
    {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)


class Sending:
    """The markers of one transaction on their way, and where they could not be written."""

    __slots__ = ("failed", "is_fenced", "is_whole", "marker", "metadata", "unanswered")

    def __init__(self, metadata: TransactionMetadata, marker: TxnMarker) -> None:
        self.metadata, self.marker = metadata, marker
        self.failed: set[TopicPartition] = set()
        self.is_whole = self.is_fenced = False
        """Whether all have been sent; whether a newer coordinator has sent others."""
        self.unanswered = 0


class MarkerSender:
    """Brings ids from PrepareCommit and PrepareAbort to their completion."""

    def __init__(
        self, runtime: Runtime, manager: TransactionStateManager, leaders: MarkersToLeaders
    ) -> None:
        self._runtime, self._clock = runtime, runtime.clock
        self._scheduler = runtime.scheduler
        self._manager = manager
        self._leaders = leaders
        self.retry_count = 0
        """How many transactions wait to have markers sent again: their leaders had not answered."""

    def send(self, metadata: TransactionMetadata) -> None:
        """Write the markers that the id's state calls for, and then complete it."""
        transaction = metadata.current
        assert transaction.state in ENDING, f"{metadata} has not ended"
        try:
            coordinator_epoch = self._manager.coordinator_epoch(metadata)
        except KafkaError as error:  # the log is offline; nobody else asks for these markers
            logger.info("%s has to wait: %s", metadata, error)
            self._scheduler.call_later(RETRY_MS, lambda: self._send_if_current(metadata))
            return
        marker = TxnMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.is_commit,
            coordinator_epoch,
            transaction.client_version,
        )
        self._begin(Sending(metadata, marker), iter(transaction.partitions))

    def _send_if_current(self, metadata: TransactionMetadata) -> None:
        if self._manager.is_current(metadata) and metadata.current.state in ENDING:
            self.send(metadata)

    def _begin(self, sending: Sending, partitions: Iterator[TopicPartition]) -> None:
        self._runtime.begin(self._send(sending, partitions), "the markers of a transaction")

    def _send(self, sending: Sending, partitions: Iterator[TopicPartition]) -> Work[None]:
        """Have the markers written to some of the partitions, and to the others in their turn."""
        while self._manager.is_current(sending.metadata):
            some = list(islice(partitions, MARKERS_IN_A_STEP))
            left = frozenset(tp for tp in some if not self._leaders.is_deleted(tp))
            sending.is_whole = len(some) < MARKERS_IN_A_STEP
            sending.unanswered += 1
            if left:
                self._leaders.write_markers(
                    sending.marker, left, partial(self._on_written, sending)
                )
            else:
                self._on_written(sending, {})
            if sending.is_whole:
                return
            yield

    def _on_written(self, sending: Sending, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        metadata = sending.metadata
        sending.unanswered -= 1
        for tp, error in errors.items():
            if error in FENCED and not sending.is_fenced:
                sending.is_fenced = True
                logger.warning("%s: a newer coordinator has written to %s", metadata, tp)
            elif error and error not in PERMANENT:
                sending.failed.add(tp)
        if sending.is_fenced or sending.unanswered or not sending.is_whole:
            return
        if sending.failed:
            self._send_later(sending)
        elif self._manager.is_current(metadata):
            self._complete(metadata)

    def _send_later(self, sending: Sending) -> None:
        self.retry_count += 1

        def send() -> None:
            self.retry_count -= 1
            self._begin(Sending(sending.metadata, sending.marker), iter(sending.failed))

        wait_ms = max(RETRY_MS, len(sending.failed) // RETRIES_PER_MS)
        self._scheduler.call_later(wait_ms, send)

    def _complete(self, metadata: TransactionMetadata) -> None:
        if not self._manager.is_current(metadata) or metadata.current.state not in ENDING:
            return

        def on_stored(error: ErrorCode) -> None:
            if error and self._manager.is_current(metadata):
                self._scheduler.call_later(RETRY_MS, lambda: self._complete(metadata))

        if metadata.is_pending:
            return  # the completion is in the log, and takes effect when the replicas have it
        completed = metadata.current.completed(self._clock.now_ms())
        self._manager.store(metadata, completed, on_stored)
