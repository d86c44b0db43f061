"""The part of a batch that goes into the compacted log.

Offsets and sequence numbers never change: a batch keeps its first and its last one when records
are taken out of it. A batch without records is left out, with two exceptions, as in Kafka. The
last batch of a producer stays, because its sequence number makes a retry harmless. And
the batch that ends at the high watermark stays, because a replica that copies the log must not
end before it (KAFKA-17076, KAFKA-20452).

A record without a value, a tombstone, has to stay for a while, so that a reader of the log from
its beginning sees that the key is gone. The first compaction that meets it writes into the batch
when it may go: the delete horizon, which takes the place of the base timestamp (KIP-534).
The same holds for markers of transactions without data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.config.config_type import LONG_MAX
from ottla.extensions.cleaner.cleaned_transactions import CleanedTransactions
from ottla.extensions.cleaner.offset_map import OffsetMap
from ottla.record.batch_builder import with_records
from ottla.record.plain_compaction import KeptRecords, shift_timestamps
from ottla.record.record import DELETE_HORIZON_FLAG
from ottla.record.record_batch import RecordBatch
from ottla.structs import NO_TIMESTAMP, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_HORIZON: Final = LONG_MAX


class LastRecord(NamedTuple):
    """The end of a producer in the log: its last offset with data, if any, and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class BatchFilter:
    """Decides, batch by batch from the beginning of a log, which records stay.

    `next_horizon_ms` is the earliest time at which something that stayed may go.
    """

    __slots__ = (
        "_high_watermark",
        "_horizon_ms",
        "_now_ms",
        "_offsets",
        "_producers",
        "_transactions",
        "next_horizon_ms",
        "null_key_count",
        "record_count",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        high_watermark: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, LONG_MAX)
        self.next_horizon_ms = NO_HORIZON
        self.null_key_count = 0
        self.record_count = 0

    def filter(self, batch: RecordBatch) -> Buffer | None:
        """The bytes to write for a batch, which may be its own; None if it goes."""
        horizon_ms = batch.delete_horizon_ms
        is_due = horizon_ms is not None and horizon_ms <= self._now_ms
        is_obsolete = self._transactions.is_obsolete(batch)
        payload = batch.payload()
        if is_obsolete and (is_due or not batch.is_control):
            kept = KeptRecords(b"", 0, NO_TIMESTAMP, False, 0)
        elif batch.is_control:
            # Only tombstones, and markers without data, may go later.
            count = batch.record_count
            kept = KeptRecords(payload, count, batch.max_timestamp, is_obsolete, 0)
        else:
            kept = self._offsets.keep(batch, payload, keep_tombstones=not is_due)
            self.null_key_count += kept.null_key_count
        self.record_count += kept.record_count
        if not kept.record_count:
            return _emptied(batch) if self._stays_empty(batch) else None
        if kept.has_tombstone:
            if horizon_ms is None:
                return self._with_horizon(batch, kept)
            self.next_horizon_ms = min(self.next_horizon_ms, horizon_ms)
        return _reduced(batch, kept)

    def _stays_empty(self, batch: RecordBatch) -> bool:
        """Whether the header of a batch is needed although none of its records is."""
        return batch.next_offset == self._high_watermark or self._ends_producer(batch)

    def _ends_producer(self, batch: RecordBatch) -> bool:
        """Whether the state of a producer that is still known is read from this batch."""
        last = self._producers.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _with_horizon(self, batch: RecordBatch, kept: KeptRecords) -> Buffer:
        horizon_ms = self._horizon_ms
        payload: Buffer | None = kept.payload
        if not batch.is_log_append_time:
            difference_ms = batch.base_timestamp - horizon_ms
            payload = shift_timestamps(kept.payload, kept.record_count, difference_ms)
        if payload is None:  # timestamps too far off to shift: they stay, with the tombstone
            return _reduced(batch, kept)
        self.next_horizon_ms = min(self.next_horizon_ms, horizon_ms)
        changed = RecordBatch(batch.buffer, batch.position)
        changed.attributes |= DELETE_HORIZON_FLAG
        return with_records(
            changed, payload, kept.record_count, horizon_ms, _max_timestamp(batch, kept)
        )


def _max_timestamp(batch: RecordBatch, kept: KeptRecords) -> int:
    return batch.max_timestamp if batch.is_log_append_time else kept.max_timestamp_ms


def _reduced(batch: RecordBatch, kept: KeptRecords) -> Buffer:
    if kept.record_count == batch.record_count:
        return batch.view
    return with_records(
        batch, kept.payload, kept.record_count, batch.base_timestamp, _max_timestamp(batch, kept)
    )


def _emptied(batch: RecordBatch) -> Buffer:
    if not batch.record_count:
        return batch.view
    changed = RecordBatch(batch.buffer, batch.position)
    changed.attributes &= ~DELETE_HORIZON_FLAG
    return with_records(changed, b"", 0, NO_TIMESTAMP, batch.max_timestamp)
