"""The producers of one partition: they make an idempotent producer's retry harmless (KIP-98).

For every producer id the last five batches are remembered. A batch that repeats one of them is
answered as the first one was; a batch that does not follow the last one is refused. The state is
a function of the batches in the log: it can be restored by reading their headers, and snapshots
shorten that.

Which batch may come next, for a producer with epoch e and last sequence s:

    no state               any sequence: older batches may have been deleted (KIP-360);
                           in a transaction none behind one whose verification has failed
    epoch e                s+1, or 0 after 2^31-1
    an epoch above e       0
    an epoch below e       none: the producer has been fenced

Another one is refused with OUT_OF_ORDER_SEQUENCE_NUMBER: a record was lost. But where this broker
has refused batches a short while ago, because it was not the leader yet, had too few in-sync
replicas or could not have a transaction confirmed, the missing batches may be among those, while
later ones of the same pipeline arrive. Until the producer has written again, they are refused with
NOT_LEADER_OR_FOLLOWER, so that all are sent again in order. (librdkafka raises its epoch after a
gap, and then sends again everything that is not acknowledged, in all partitions; batches of the old
epoch would be there twice. In a transaction it aborts.)

A transactional batch of a client opens a transaction only where the coordinator has confirmed that
the partition belongs to one (KIP-890): a batch that comes late, after its transaction has ended,
would open one that never ends. While a transaction is open, and until its marker is replicated,
the offsets from its beginning on are not stable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.log.log_files import SNAPSHOT_SUFFIX, parse_segment_name, segment_path
from ottla.log.producer_snapshot import (
    MANY_PRODUCERS,
    CorruptSnapshotError,
    SnapshotImage,
    decode_snapshot,
    encode_snapshot,
)
from ottla.log.producer_state_entry import (
    NOT_YET,
    BatchMetadata,
    ProducerStateEntry,
    is_behind,
    next_sequence,
)
from ottla.log.transaction_index import AbortedTxn
from ottla.record.control_record import end_of_transaction
from ottla.record.record import TRANSACTIONAL_FLAG
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Disk
from ottla.runtime.scheduler import Work
from ottla.structs import NO_OFFSET, NO_SEQUENCE, TopicPartition, Value

logger = logging.getLogger(__name__)


PRODUCERS_IN_A_SLICE = 10_000
EXPIRY_COST = 400  # of one that is forgotten, as of so many that are looked at: snapshots follow


class Verification(Value):
    """A question to the coordinator whether a producer's transaction includes this partition.

    `lowest_sequence` is the first of the batches that it was asked for. None of the others may be
    appended before that one, which comes again if the answer was an error.
    """

    producer_epoch: int
    lowest_sequence: int
    is_confirmed: bool = False
    is_cancelled: bool = False
    """A marker came before the answer, or the log was cut off: it confirms nothing now."""
    noticed_ms: int | None = None  # when it was first found without a batch behind it


class OvertakingBatchError(InvalidMetadataError):
    """A batch came before one of its pipeline that was refused: both are to be sent again."""


class ProducerStateManager:
    """The producer states of one log.

    `end_offset` is how far they were read from a snapshot and the log; later appends update them at
    once.
    """

    __slots__ = (
        "_disk",
        "_image",
        "_snapshot_offsets",
        "directory",
        "end_offset",
        "expiration_ms",
        "ongoing_txns",
        "producers",
        "topic_partition",
        "unreplicated_txns",
        "verifications",
    )

    def __init__(
        self, disk: Disk, topic_partition: TopicPartition, directory: str, expiration_ms: int
    ) -> None:
        self._disk = disk
        self.topic_partition = topic_partition
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        # First offset -> producer id of each open transaction, in the order of their beginning.
        self.ongoing_txns: dict[int, int] = {}
        # First offset -> offset of the marker, for transactions ended above the high watermark.
        self.unreplicated_txns: dict[int, int] = {}
        # Producer id -> the question to the coordinator that no batch has followed yet.
        self.verifications: dict[int, Verification] = {}
        self.end_offset = 0
        self._snapshot_offsets: list[int] = []
        self._image: SnapshotImage | None = None

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction that is open, or not ended on all replicas, begins."""
        ongoing = next(iter(self.ongoing_txns), None)
        if not self.unreplicated_txns:
            return ongoing
        ended = min(self.unreplicated_txns)
        return ended if ongoing is None else min(ended, ongoing)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Count transactions as replicated whose markers lie before the high watermark."""
        for first_offset, marker_offset in list(self.unreplicated_txns.items()):
            if marker_offset < high_watermark:
                del self.unreplicated_txns[first_offset]

    def has_open_txn(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction here, in this epoch."""
        state = self.producers.get(producer_id)
        return (
            state is not None
            and state.current_txn_first_offset != NO_OFFSET
            and state.producer_epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int
    ) -> Verification | None:
        """The transaction to confirm before a batch with this sequence is appended, if any."""
        if self.has_open_txn(producer_id, producer_epoch):
            return None
        known = self.verifications.get(producer_id)
        if known is not None and known.producer_epoch == producer_epoch:
            if is_behind(sequence, known.lowest_sequence):
                known.lowest_sequence = sequence
            return known
        asked = Verification(producer_epoch, sequence)
        if known is None or known.producer_epoch < producer_epoch:
            self.verifications[producer_id] = asked
        return asked  # of an older epoch: its batch is refused, whatever the answer is

    def _check_transaction(self, batch: RecordBatch, state: ProducerStateEntry | None) -> None:
        """Check that a batch continues its open transaction or opens one that is confirmed."""
        is_open = state is not None and state.current_txn_first_offset != NO_OFFSET
        if not batch.is_transactional:
            what = "sent a batch outside of its open transaction"
        elif is_open and state is not None and state.producer_epoch == batch.producer_epoch:
            return
        else:
            known = self.verifications.get(batch.producer_id)
            if known and known.is_confirmed and known.producer_epoch == batch.producer_epoch:
                return
            what = "sent a transactional batch, and has no transaction with this partition in it"
        raise self._refusal(ErrorCode.INVALID_TXN_STATE, batch, what)

    def check(self, batch: RecordBatch, refused_end: int = NO_OFFSET) -> BatchMetadata | None:
        """The batch that this one repeats, or None if it may be appended; else KafkaError.

        `refused_end` says where the log ended when batches were refused a short while ago.
        """
        state = self.producers.get(batch.producer_id)
        if state is None:
            if batch.attributes & TRANSACTIONAL_FLAG:
                self._check_transaction(batch, None)
            if batch.base_sequence and refused_end != NO_OFFSET:
                raise self._overtook(batch, NO_SEQUENCE)
            self._check_lowest(batch)
            return None
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        if epoch < state.producer_epoch:
            raise self._fenced(batch, state)
        if batch.attributes & TRANSACTIONAL_FLAG or state.current_txn_first_offset != NO_OFFSET:
            self._check_transaction(batch, state)
        if epoch == state.producer_epoch:
            if sequence == next_sequence(state.last_sequence):
                return None
            self._check_given_up(batch, state)
            duplicate = state.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
        elif sequence == 0:
            return None
        last = state.last_sequence if epoch == state.producer_epoch else NO_SEQUENCE
        if state.last_offset < refused_end and is_behind(last, sequence):
            raise self._overtook(batch, last)
        what = (
            f"sent sequence {sequence} after {state.last_sequence} of epoch {state.producer_epoch}"
        )
        raise self._refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch, what)

    def _check_given_up(self, batch: RecordBatch, state: ProducerStateEntry) -> None:
        """Check that a transaction does not begin with sequence numbers of one that has ended.

        Nobody repeats those: before a commit each batch has its answer, and an abort gives up
        those that have none. librdkafka gives their numbers to the next transaction's batches;
        answered as duplicates, these would be committed and be in no log. After this error clients
        abort, and go on with a new epoch.
        """
        last = state.last_sequence
        if (
            not batch.attributes & TRANSACTIONAL_FLAG
            or state.current_txn_first_offset != NO_OFFSET
            or last == NO_SEQUENCE
            or is_behind(last, batch.base_sequence)
        ):
            return
        raise self._refusal(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            batch,
            f"began a transaction with sequence {batch.base_sequence}; its earlier ones, which "
            f"have ended, have gone as far as {last}",
        )

    def _check_lowest(self, batch: RecordBatch) -> None:
        """Check that an unknown producer's batch does not overtake one that was not confirmed."""
        known = self.verifications.get(batch.producer_id)
        if known is None or known.producer_epoch != batch.producer_epoch:
            return
        if is_behind(known.lowest_sequence, batch.base_sequence):
            what = f"sent sequence {batch.base_sequence} before {known.lowest_sequence}, which has "
            what += "not been written"
            raise self._refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch, what)

    def _overtook(self, batch: RecordBatch, last_sequence: int) -> KafkaError:
        what = f"sent sequence {batch.base_sequence} after {last_sequence}; what lies between may "
        what += "have been refused a short while ago"
        return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, batch, what, OvertakingBatchError)

    def check_coordinator(self, batch: RecordBatch) -> None:
        """Raise KafkaError if a coordinator's batch or marker is of an older epoch than the log's.

        Coordinators do not number their batches: they write each once, and the epoch decides.
        """
        state = self.producers.get(batch.producer_id)
        if state is not None and batch.producer_epoch < state.producer_epoch:
            raise self._fenced(batch, state)
        if not batch.is_control:
            self._check_transaction(batch, state)
            return
        ending = end_of_transaction(batch)
        if state and ending and ending.coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self.topic_partition}: a marker for producer {batch.producer_id} has "
                f"coordinator epoch {ending.coordinator_epoch}; {state.coordinator_epoch} is known",
            )

    def _fenced(self, batch: RecordBatch, state: ProducerStateEntry) -> KafkaError:
        what = f"has been fenced by epoch {state.producer_epoch}"
        return self._refusal(ErrorCode.INVALID_PRODUCER_EPOCH, batch, what)

    def _refusal(
        self, error: ErrorCode, batch: RecordBatch, what: str, kind: type[KafkaError] = KafkaError
    ) -> KafkaError:
        producer = f"producer {batch.producer_id} with epoch {batch.producer_epoch}"
        return kind(error, f"{self.topic_partition}: {producer} {what}")

    def append(self, batch: RecordBatch, base_offset: int, max_timestamp_ms: int) -> None:
        """Update the state with a batch that was appended now, or that was found in the log."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            state = self.producers[batch.producer_id] = ProducerStateEntry(batch.producer_id)
        self._note(batch.producer_id)
        state.add_batch(
            batch.producer_epoch, BatchMetadata.of(batch, base_offset, max_timestamp_ms)
        )
        state.seen_ms = NOT_YET
        if batch.is_transactional and state.current_txn_first_offset == NO_OFFSET:
            state.current_txn_first_offset = base_offset
            self.ongoing_txns[base_offset] = batch.producer_id
            self.verifications.pop(batch.producer_id, None)

    def replay(self, batch: RecordBatch) -> AbortedTxn | None:
        """Update the state with a whole batch of the log; returns a transaction that it aborts."""
        self.end_offset = batch.next_offset
        if batch.producer_id < 0:
            return None
        if batch.is_control:
            return self._replay_marker(batch)
        self.append(batch, batch.base_offset, batch.max_timestamp)
        return None

    def _replay_marker(self, batch: RecordBatch) -> AbortedTxn | None:
        """End a transaction as its control record says (KIP-98)."""
        ending = end_of_transaction(batch)
        if ending is None:
            return None
        state = self.producers.setdefault(batch.producer_id, ProducerStateEntry(batch.producer_id))
        self._note(batch.producer_id)
        if batch.producer_epoch > state.producer_epoch:
            state.batches = ()
        state.producer_epoch = max(state.producer_epoch, batch.producer_epoch)
        state.last_timestamp_ms = batch.max_timestamp
        state.seen_ms = NOT_YET
        state.coordinator_epoch = max(state.coordinator_epoch, ending.coordinator_epoch)
        # A batch that was confirmed before, and comes only now, is late.
        if asked := self.verifications.pop(batch.producer_id, None):
            asked.is_cancelled = True
        first_offset, state.current_txn_first_offset = state.current_txn_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self.ongoing_txns.pop(first_offset, None)
        self.unreplicated_txns[first_offset] = batch.last_offset
        if ending.is_commit:
            return None
        unstable = next(iter(self.ongoing_txns), None)
        stable = batch.last_offset + 1 if unstable is None else unstable
        return AbortedTxn(batch.producer_id, first_offset, batch.last_offset, stable)

    def remove_expired(self, now_ms: int) -> Work[int]:
        """Forget producers that have not written for long and have no open transaction.

        That is since an earlier look, by a clock that never jumps: the retries of a producer that
        was forgotten would be stored twice. Returns how many they are, after a pause now and then:
        a partition may have been written to by a million.
        """
        count = cost = 0
        for producer_id in list(self.producers):
            state = self.producers.get(producer_id)
            if state is None:
                continue
            if state.seen_ms == NOT_YET:
                state.seen_ms = now_ms
            elif (
                now_ms - state.seen_ms >= self.expiration_ms
                and state.current_txn_first_offset == NO_OFFSET
            ):
                count, cost = count + 1, cost + EXPIRY_COST
                del self.producers[producer_id]
                self._note(producer_id)
                self.verifications.pop(producer_id, None)
            cost += 1
            if cost >= PRODUCERS_IN_A_SLICE:
                cost = 0
                yield
        for producer_id, asked in list(self.verifications.items()):
            if asked.noticed_ms is None:
                asked.noticed_ms = now_ms
            elif now_ms - asked.noticed_ms >= self.expiration_ms:
                del self.verifications[producer_id]
        return count

    def _note(self, producer_id: int) -> None:
        """A producer changes now, as snapshots will have it."""
        if self._image is not None:
            self._image.note(producer_id)
        elif len(self.producers) >= MANY_PRODUCERS:
            self._image = SnapshotImage(self.producers)

    def clear(self, end_offset: int) -> None:
        """Forget all producers: no batch before an offset is known."""
        self.producers, self._image = {}, None
        self.ongoing_txns = {}
        self.unreplicated_txns = {}
        self._cancel_verifications()
        self.end_offset = end_offset

    def _cancel_verifications(self) -> None:
        for asked in self.verifications.values():
            asked.is_cancelled = True
        self.verifications = {}

    def find_snapshots(self, names: list[str]) -> None:
        """Note the snapshots among the names of the log's files."""
        parsed = [parse_segment_name(name) for name in names]
        self._snapshot_offsets = sorted(
            entry[0] for entry in parsed if entry is not None and entry[1:] == (SNAPSHOT_SUFFIX, "")
        )

    def with_same_snapshots(self) -> ProducerStateManager:
        """One that knows no producer yet, for another moment of the same log."""
        other = ProducerStateManager(
            self._disk, self.topic_partition, self.directory, self.expiration_ms
        )
        other._snapshot_offsets = list(self._snapshot_offsets)
        return other

    def snapshot_path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        """The offsets at which the state was written down."""
        return tuple(self._snapshot_offsets)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshot_offsets[-1] if self._snapshot_offsets else None

    def take_snapshot(self, end_offset: int) -> None:
        """Write the state before `end_offset` to a file; the next flush of the log syncs it."""
        self.end_offset = end_offset
        if self._image is None:
            data = encode_snapshot(self.producers.values())
        else:
            data = self._image.encode()
        path = self.snapshot_path(end_offset)
        with closing(self._disk.open(path, create=True)) as file:
            file.pwrite(data, 0)
            file.truncate(len(data))
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

    def take_over(self, other: ProducerStateManager) -> None:
        """Know what the other one has read of the same log, and nothing else."""
        self._restore(other.producers, other.end_offset)
        readable = frozenset(other._snapshot_offsets)
        self._snapshot_offsets = [each for each in self._snapshot_offsets if each in readable]
        self.ongoing_txns, self.unreplicated_txns = other.ongoing_txns, other.unreplicated_txns

    def _restore(self, producers: dict[int, ProducerStateEntry], offset: int) -> None:
        self.producers, self._image = producers, None
        self.end_offset = offset
        self.unreplicated_txns = {}
        self._cancel_verifications()
        open_txns = [s for s in producers.values() if s.current_txn_first_offset != NO_OFFSET]
        open_txns.sort(key=lambda state: state.current_txn_first_offset)
        self.ongoing_txns = {s.current_txn_first_offset: s.producer_id for s in open_txns}
