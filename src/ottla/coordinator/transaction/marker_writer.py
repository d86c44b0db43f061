"""The markers of transactions, written into the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from ottla.coordinator.coordinator_log import APPEND_TIMEOUT_MS
from ottla.coordinator.transaction.marker_sender import OnWritten, TxnMarker
from ottla.coordinator.transaction.transaction import EPOCH_BUMP
from ottla.errors import ErrorCode
from ottla.log.log_validator import AppendOrigin
from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.replication.append_results import ACKS_ALL, PartitionAppendResult
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Clock
from ottla.structs import OFFSETS_TOPIC, TopicPartition

# Called with a partition of the offsets topic, the marker's offset in it, the producer id, and
# whether it was a commit.
OnOffsetsEnded = Callable[[int, int, int, bool], object]


class MarkerWriter:
    """Appends markers, and notifies the group coordinator of those that end its offsets."""

    def __init__(
        self, clock: Clock, replica_manager: ReplicaManager, on_offsets_ended: OnOffsetsEnded
    ) -> None:
        self._clock = clock
        self._replica_manager = replica_manager
        self._on_offsets_ended = on_offsets_ended

    def write(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        """Append the marker to each partition; answered once all in-sync replicas have it.

        A marker may come again, on a connection that its sender has replaced, when the next
        transaction is open. If that one has the marker's epoch, it must not be ended (KIP-1228).
        """
        type_ = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
        batch = build_end_transaction_marker(
            EndTransactionMarker(type_, marker.coordinator_epoch),
            self._clock.now_ms(),
            marker.producer_id,
            marker.producer_epoch,
        )

        late = frozenset(filter(partial(self._is_late, marker), partitions))

        def respond(results: Mapping[TopicPartition, PartitionAppendResult]) -> None:
            for topic_partition, result in results.items():
                if topic_partition.topic == OFFSETS_TOPIC and not result.error:
                    self._on_offsets_ended(
                        topic_partition.partition,
                        result.base_offset,
                        marker.producer_id,
                        marker.is_commit,
                    )
            refused = dict.fromkeys(late, ErrorCode.INVALID_PRODUCER_EPOCH)
            on_written(refused | {tp: result.error for tp, result in results.items()})

        self._replica_manager.append_records(
            APPEND_TIMEOUT_MS,
            ACKS_ALL,
            {tp: memoryview(bytearray(batch)) for tp in partitions if tp not in late},
            respond,
            origin=AppendOrigin.COORDINATOR,
        )

    def _is_late(self, marker: TxnMarker, topic_partition: TopicPartition) -> bool:
        """Whether the marker's own transaction has ended here, and another is open."""
        if marker.transaction_version < EPOCH_BUMP:
            return False
        partition = self._replica_manager.partitions.get(topic_partition)
        return partition is not None and partition.has_open_txn(
            marker.producer_id, marker.producer_epoch
        )
