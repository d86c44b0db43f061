"""The producers of one partition: what makes an idempotent producer's retry harmless (KIP-98).

For every producer id the last five batches are remembered. A batch that repeats one of them is
answered as the first one was; a batch that does not follow the last one is refused. The state is
a function of the batches in the log: it is had again by reading their headers, and snapshots
shorten that.

Which batch may come next, for a producer with epoch e and last sequence s:

    no state               any sequence: older batches may have been deleted (KIP-360)
    epoch e                s+1, or 0 after 2^31-1
    an epoch above e       0
    an epoch below e       none: the producer has been fenced
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_files import SNAPSHOT_SUFFIX, parse_segment_name, segment_path
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.log.producer_state import NO_OFFSET, BatchMetadata, ProducerState, next_sequence
from ottla.log.txn_index import AbortedTxn
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Disk
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

CONTROL_KEY: Final = Struct(">hh")
END_TXN_VALUE: Final = Struct(">hi")
ABORT: Final = 0
COMMIT: Final = 1


class ProducerStateManager:
    """The producer states of one log.

    `end_offset` is how far they were read out of a snapshot and the log; what is appended after
    that is taken in at once.
    """

    __slots__ = (
        "_disk",
        "_snapshot_offsets",
        "directory",
        "end_offset",
        "expiration_ms",
        "ongoing_txns",
        "producers",
        "topic_partition",
    )

    def __init__(
        self, disk: Disk, topic_partition: TopicPartition, directory: str, expiration_ms: int
    ) -> None:
        self._disk = disk
        self.topic_partition = topic_partition
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerState] = {}
        # First offset -> producer id of each open transaction, in the order of their beginning.
        self.ongoing_txns: dict[int, int] = {}
        self.end_offset = 0
        self._snapshot_offsets: list[int] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins; readers of committed records stop there."""
        return min(self.ongoing_txns, default=None)

    # -- appending

    def check(self, batch: RecordBatch) -> BatchMetadata | None:
        """The batch that this one repeats, or None if it may be appended; else KafkaError."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            return None
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        if epoch == state.producer_epoch:
            if sequence == next_sequence(state.last_sequence):
                return None
            duplicate = state.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
        elif epoch < state.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self.topic_partition}: producer {batch.producer_id} with epoch {epoch} has been "
                f"fenced by epoch {state.producer_epoch}",
            )
        elif sequence == 0:
            return None
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{self.topic_partition}: producer {batch.producer_id} with epoch {epoch} sent "
            f"sequence {sequence} after {state.last_sequence} of epoch {state.producer_epoch}",
        )

    def append(self, batch: RecordBatch, base_offset: int, max_timestamp_ms: int) -> None:
        """Take a batch of a producer that was appended, or is found in the log, into the state."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_id)
        state.add_batch(
            batch.producer_epoch, BatchMetadata.of(batch, base_offset, max_timestamp_ms)
        )
        if batch.is_transactional and state.current_txn_first_offset == NO_OFFSET:
            state.current_txn_first_offset = base_offset
            self.ongoing_txns[base_offset] = batch.producer_id

    # -- reading the state out of the log

    def replay(self, batch: RecordBatch) -> AbortedTxn | None:
        """Take a whole batch of the log into the state; returns the transaction that it aborts."""
        self.end_offset = batch.next_offset
        if batch.producer_id < 0:
            return None
        if batch.is_control:
            return self._replay_marker(batch)
        self.append(batch, batch.base_offset, batch.max_timestamp)
        return None

    def _replay_marker(self, batch: RecordBatch) -> AbortedTxn | None:
        """The end of a transaction: a control record that says how (KIP-98)."""
        record = next(batch.records(), None)
        if record is None or record.key is None or len(record.key) < CONTROL_KEY.size:
            return None
        _, control_type = CONTROL_KEY.unpack_from(record.key)
        if control_type not in (ABORT, COMMIT):
            return None
        state = self.producers.setdefault(batch.producer_id, ProducerState(batch.producer_id))
        if batch.producer_epoch > state.producer_epoch:
            state.batches.clear()
        state.producer_epoch = max(state.producer_epoch, batch.producer_epoch)
        state.last_timestamp_ms = batch.max_timestamp
        if record.value is not None and len(record.value) >= END_TXN_VALUE.size:
            state.coordinator_epoch = END_TXN_VALUE.unpack_from(record.value)[1]
        first_offset, state.current_txn_first_offset = state.current_txn_first_offset, NO_OFFSET
        self.ongoing_txns.pop(first_offset, None)
        if control_type == COMMIT or first_offset == NO_OFFSET:
            return None
        unstable = self.first_unstable_offset
        stable = batch.last_offset + 1 if unstable is None else unstable
        return AbortedTxn(batch.producer_id, first_offset, batch.last_offset, stable)

    # -- forgetting

    def remove_expired(self, now_ms: int) -> int:
        """Forget the producers that have not written for long and have no open transaction."""
        expired = [
            producer_id
            for producer_id, state in self.producers.items()
            if state.current_txn_first_offset == NO_OFFSET
            and now_ms - state.last_timestamp_ms >= self.expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Know nothing of the batches before an offset."""
        self.producers = {}
        self.ongoing_txns = {}
        self.end_offset = end_offset

    # -- snapshots

    def find_snapshots(self, names: list[str]) -> None:
        """Note the snapshots among the names of the log's files."""
        parsed = [parse_segment_name(name) for name in names]
        self._snapshot_offsets = sorted(
            entry[0] for entry in parsed if entry is not None and entry[1:] == (SNAPSHOT_SUFFIX, "")
        )

    def snapshot_path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshot_offsets[-1] if self._snapshot_offsets else None

    def take_snapshot(self, end_offset: int) -> None:
        """Write the state as it is before `end_offset`; the next flush of the log syncs it."""
        self.end_offset = end_offset
        data = encode_snapshot(self.producers.values())
        path = self.snapshot_path(end_offset)
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(data, 0)
            file.truncate(len(data))
        finally:
            file.close()
        if end_offset not in self._snapshot_offsets:
            self._snapshot_offsets = sorted([*self._snapshot_offsets, end_offset])

    def load_snapshot(self, start_offset: int, end_offset: int) -> None:
        """Begin with the latest good snapshot up to `end_offset`, or with nothing at the start."""
        for offset in reversed(list(self._snapshot_offsets)):
            if not start_offset <= offset <= end_offset:
                continue
            path = self.snapshot_path(offset)
            try:
                producers = decode_snapshot(path, self._disk.read_bytes(path))
            except CorruptSnapshotError as error:
                logger.warning("Dropping a producer snapshot: %s", error)
                self.delete_snapshots(offset.__eq__)
                continue
            self._restore(producers, offset)
            return
        self.clear(start_offset)

    def delete_snapshots(self, is_unwanted: Callable[[int], bool]) -> None:
        """Remove the snapshots whose offsets are unwanted."""
        for offset in [offset for offset in self._snapshot_offsets if is_unwanted(offset)]:
            path = self.snapshot_path(offset)
            if self._disk.exists(path):
                self._disk.unlink(path)
            self._snapshot_offsets.remove(offset)

    def _restore(self, producers: dict[int, ProducerState], offset: int) -> None:
        self.producers = producers
        self.end_offset = offset
        self.ongoing_txns = {
            state.current_txn_first_offset: state.producer_id
            for state in producers.values()
            if state.current_txn_first_offset != NO_OFFSET
        }
