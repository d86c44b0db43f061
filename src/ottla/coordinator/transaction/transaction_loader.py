"""Reads a partition of `__transaction_state` back into transactional ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from ottla.coordinator.transaction.transaction_metadata import Transaction
from ottla.coordinator.transaction.transaction_records import (
    read_transaction,
    read_transactional_id,
)
from ottla.errors import KafkaError
from ottla.record.record_batch import Record, RecordBatch, batches

logger = logging.getLogger(__name__)

RECORDS_PER_STEP: Final = 2000


class TransactionLoader:
    """Collects the last value of each id, a step at a time, so that the broker stays responsive.

    A record that cannot be read is logged and left out: the other ids must not suffer from it.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        self.partition = partition
        self.record_count = 0
        self._batches = (batch for buffer in source for batch in batches(buffer))
        self._values: dict[str, bytes] = {}

    def step(self) -> bool:
        """Read on for a moment; False when all has been read."""
        stop_at = self.record_count + RECORDS_PER_STEP
        for batch in self._batches:
            self._read_batch(batch)
            if self.record_count >= stop_at:
                return True
        return False

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Every id with its last state."""
        for transactional_id, value in self._values.items():
            try:
                yield transactional_id, read_transaction(value)
            except KafkaError as error:
                logger.error("Transactional id %r cannot be read: %s", transactional_id, error)

    def _read_batch(self, batch: RecordBatch) -> None:
        try:
            batch.verify()
            records = [] if batch.is_control else list(batch.records())
            for record in records:
                self._apply(record)
        except KafkaError as error:
            logger.error("%r of transaction partition %d: %s", batch, self.partition, error)
            return
        self.record_count += max(1, len(records))

    def _apply(self, record: Record) -> None:
        transactional_id = read_transactional_id(record.key or b"")
        if transactional_id is None:
            logger.debug("Record %d has a key of another kind", record.offset)
        elif record.value is None:
            self._values.pop(transactional_id, None)
        else:
            self._values[transactional_id] = record.value
