"""The transactional ids of a partition of `__transaction_state`, read back from its records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.coordinator.coordinator_partitions import StepwiseLoader
from ottla.coordinator.transaction.transaction import Transaction
from ottla.coordinator.transaction.transaction_records import (
    read_transaction,
    read_transactional_id,
)
from ottla.record.record_batch import Record, RecordBatch
from ottla.runtime.scheduler import Work

logger = logging.getLogger(__name__)

IDS_IN_A_STEP: Final = 1000
BYTES_OF_AN_ID: Final = 64
"""A longer record counts for more: it may have a hundred thousand partitions."""


class TransactionLoader(StepwiseLoader):
    """Collects the last value of each id.

    A record that cannot be read is logged and left out: the other ids must not suffer from it.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        super().__init__(partition, source)
        self._values: dict[str, bytes] = {}

    def transactions(self) -> Work[dict[str, Transaction]]:
        """Every id with its last state, in slices."""
        found: dict[str, Transaction] = {}
        left = IDS_IN_A_STEP
        for transactional_id, value in self._values.items():
            try:
                found[transactional_id] = yield from read_transaction(value)
            except Exception as error:
                self.report(f"transactional id {transactional_id!r}", error)
            left -= 1 + len(value) // BYTES_OF_AN_ID
            if left <= 0:
                left = IDS_IN_A_STEP
                yield
        return found

    def end_transaction(self, marker: RecordBatch) -> None:
        """No transaction writes into this topic."""

    def tables(self) -> Iterable[dict[str, bytes]]:
        return (self._values,)

    def apply(self, record: Record, batch: RecordBatch) -> None:
        transactional_id = read_transactional_id(record.key or b"")
        if transactional_id is None:
            logger.debug("Record %d has a key of another kind", record.offset)
        elif record.value is None:
            self._values.pop(transactional_id, None)
        else:
            self._values[transactional_id] = record.value
