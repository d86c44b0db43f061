"""Reads a partition of `__transaction_state` back into transactional ids."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.coordinator.stepwise_loader import StepwiseLoader
from ottla.coordinator.transaction.transaction_metadata import Transaction
from ottla.coordinator.transaction.transaction_records import (
    read_transaction,
    read_transactional_id,
)
from ottla.errors import KafkaError
from ottla.record.record_batch import Record, RecordBatch

logger = logging.getLogger(__name__)


class TransactionLoader(StepwiseLoader):
    """Collects the last value of each id.

    A record that cannot be read is logged and left out: the other ids must not suffer from it.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        super().__init__(partition, source)
        self._values: dict[str, bytes] = {}

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Every id with its last state."""
        for transactional_id, value in self._values.items():
            try:
                yield transactional_id, read_transaction(value)
            except KafkaError as error:
                logger.error("Transactional id %r cannot be read: %s", transactional_id, error)

    def read_batch(self, batch: RecordBatch) -> None:
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
