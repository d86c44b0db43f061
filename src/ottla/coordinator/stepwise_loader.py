"""Reading one partition of a coordinator's topic, a step at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from ottla.record.record_batch import RecordBatch, batches

RECORDS_PER_STEP: Final = 2000


class StepwiseLoader(ABC):
    """Reads so few records in each step that the broker stays responsive."""

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        self.partition = partition
        self.record_count = 0
        self._batches = (batch for buffer in source for batch in batches(buffer))

    def step(self) -> bool:
        """Read on for a moment; False when all has been read."""
        stop_at = self.record_count + RECORDS_PER_STEP
        for batch in self._batches:
            self.read_batch(batch)
            if self.record_count >= stop_at:
                return True
        return False

    @abstractmethod
    def read_batch(self, batch: RecordBatch) -> None:
        """Take what the batch says, and add its records to `record_count`."""
