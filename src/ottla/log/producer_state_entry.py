"""The state of one producer in a partition: its epoch, its last batches, its open transaction."""

from __future__ import annotations

from typing import Final

from ottla.record.record_batch import RecordBatch
from ottla.structs import NO_EPOCH, NO_OFFSET, NO_SEQUENCE, NamedTuple, Value, field

MAX_SEQUENCE: Final = 2**31 - 1
# As many as a producer may have in flight, so that any of them can be recognised when sent again.
RETAINED_BATCHES: Final = 5


NOT_YET: Final = -1


class ProducerStateEntry(Value):
    """The state of one producer id. Invariant: `batches` are of `producer_epoch`, oldest first.

    A partition may have very many of them: a deque of batches would take 620 bytes more of each.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    last_timestamp_ms: int = -1
    current_txn_first_offset: int = NO_OFFSET
    batches: tuple[BatchMetadata, ...] = ()
    seen_ms: int = field(default=NOT_YET, compare=False)
    """When it was first looked for expired ones after it has last written, by the clock that never
    jumps."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The retained batch that this one repeats, if it does."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for known in self.batches:
            if known.last_sequence == last and known.first_sequence == first:
                return known
        return None

    def add_batch(self, producer_epoch: int, metadata: BatchMetadata) -> None:
        """Note a batch behind all others; those of an older epoch can no longer be repeated."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = ()
        self.batches = (*self.batches[1 - RETAINED_BATCHES :], metadata)
        self.last_timestamp_ms = metadata.timestamp_ms


def next_sequence(sequence: int) -> int:
    """Sequence numbers wrap from 2^31-1 to 0."""
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


def is_behind(sequence: int, later: int) -> bool:
    """Whether `later` comes after a sequence number, by less than half of all there are."""
    return 0 < (later - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


class BatchMetadata(NamedTuple):
    """Sequence and place of a batch that was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(cls, batch: RecordBatch, base_offset: int, max_timestamp_ms: int) -> BatchMetadata:
        """The memory of a batch that was appended at an offset."""
        delta = batch.last_offset_delta
        return cls(batch.last_sequence, base_offset + delta, delta, max_timestamp_ms)

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta
