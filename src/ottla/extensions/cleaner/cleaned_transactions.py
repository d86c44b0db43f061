"""The transactions that a walk over a log is in, and how they ended.

The walk goes from the beginning of the log, batch by batch. Data of aborted transactions are
removed at once. A marker is removed when no data of its transaction are left, and not before:
until then readers, and the transaction index, need it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ottla.log.transaction_index import AbortedTxn
from ottla.record.control_record import ControlRecordType
from ottla.record.record_batch import RecordBatch


class CleanedTransactions:
    """The open transactions at a position of the log, which must be stable up to there.

    `still_needed` collects the aborted transactions whose data were met on this walk: they must be
    in the transaction index of the segment with their marker.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "_has_data", "still_needed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._has_data: set[int] = set()
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTxn] = []

    def is_obsolete(self, batch: RecordBatch) -> bool:
        """Whether the next batch is aborted data, or a marker that has no data left."""
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = transaction
        if batch.is_control:
            return self._is_obsolete_marker(batch)
        return batch.is_transactional and self._is_aborted(batch)

    def _is_aborted(self, batch: RecordBatch) -> bool:
        producer_id = batch.producer_id
        transaction = self._aborted.get(producer_id)
        if transaction is None or batch.last_offset > transaction.last_offset:
            self._committed.add(producer_id)
            return False
        self._has_data.add(producer_id)
        return True

    def _is_obsolete_marker(self, batch: RecordBatch) -> bool:
        """Whether a marker is emptied, or its transaction has no data; other kinds stay."""
        record = next(batch.records(), None)
        if record is None:
            return True
        producer_id = batch.producer_id
        match ControlRecordType.of(record):
            case ControlRecordType.ABORT:
                transaction = self._aborted.pop(producer_id, None)
                if transaction is None or producer_id not in self._has_data:
                    return True
                self._has_data.discard(producer_id)
                self.still_needed.append(transaction)
                return False
            case ControlRecordType.COMMIT:
                is_obsolete = producer_id not in self._committed
                self._committed.discard(producer_id)
                return is_obsolete
        return False
