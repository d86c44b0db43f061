"""The partitions of a coordinator's topic that this broker leads, read a step at a time."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.errors import ErrorCode, KafkaError
from ottla.record.memory_records import batches
from ottla.record.record_batch import Record, RecordBatch
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work, emptied

logger = logging.getLogger(__name__)

RECORDS_PER_STEP: Final = 500
BYTES_OF_A_RECORD: Final = 250
"""A larger record counts for more: one with an assignment may have a megabyte."""
LOADS_KEPT: Final = 100
DONE: Final = object()
REPLICATION_POLL_MS: Final = 10
FIRST_RELOAD_MS: Final = 100
LAST_RELOAD_MS: Final = 30_000


class StepwiseLoader(ABC):
    """Reads a partition in steps, each with so few records that the broker stays responsive.

    A batch that cannot be read is reported and left out: the other state in the partition must not
    suffer from it.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        self.partition = partition
        self.record_count = 0
        self.began_ms = 0
        self.is_read = False
        self._steps = self._read(batch for buffer in source for batch in batches(buffer))

    def step(self) -> bool:
        """Read about RECORDS_PER_STEP records; False when all have been read."""
        self.is_read = next(self._steps, DONE) is DONE
        return not self.is_read

    def _read(self, found: Iterator[RecordBatch]) -> Work[None]:
        left = RECORDS_PER_STEP
        for batch in found:
            records = self._records_of(batch)
            left -= not records
            for record in records:
                try:
                    yield from self.apply(record, batch) or ()
                except Exception as error:
                    self.report(f"record {record.offset}", error)
                left -= 1 + len(record.value or b"") // BYTES_OF_A_RECORD
                if left <= 0:
                    left = RECORDS_PER_STEP
                    yield

    def _records_of(self, batch: RecordBatch) -> list[Record]:
        try:
            batch.verify()
            records = [] if batch.is_control else list(batch.records())
            if batch.is_control:
                self.end_transaction(batch)
        except Exception as error:
            self.report(f"the batch at offset {batch.base_offset}", error)
            return []
        self.record_count += max(1, len(records))
        return records

    def report(self, what: str, error: Exception) -> None:
        """Log that something cannot be read; a bug of ours is logged with its traceback."""
        info = None if isinstance(error, KafkaError) else error
        name, text = type(self).__name__, "%s of partition %d: %s is left out: %s"
        logger.error(text, name, self.partition, what, error, exc_info=info)

    def give_up(self) -> Work[None]:
        """Stop reading, and free the tables, in slices."""
        self._steps.close()
        yield from emptied(self.tables())

    @abstractmethod
    def tables(self) -> Iterable[dict[Any, Any]]:
        """The records by key; a million are no exception."""

    @abstractmethod
    def apply(self, record: Record, batch: RecordBatch) -> Work[None] | None:
        """Take over a record of this batch, now or by work that may pause."""

    @abstractmethod
    def end_transaction(self, marker: RecordBatch) -> None:
        """A transaction with records of this partition has ended."""


LoaderT = TypeVar("LoaderT", bound=StepwiseLoader)


class CoordinatorPartitions(Generic[LoaderT]):
    """The partitions that are being loaded, and those that are loaded; `topic_name` is for log
    lines.

    A new leader reads when all in-sync replicas have its log up to the end it had at its election.
    Before that another one may be elected that lacks the end, where a decision may be that this one
    had acted on: a commit with markers, and no longer in the log.

    A partition that cannot be read is tried again, from its start, for as long as this broker leads
    it: nobody else would. If a partition is unloaded while it is being loaded, that load never
    finishes, even if another one begins.
    """

    def __init__(self, runtime: Runtime, log: CoordinatorLog, topic_name: str) -> None:
        self._scheduler, self._clock = runtime.scheduler, runtime.clock
        self._runtime, self._log = runtime, log
        self.last_loads_ms: deque[int] = deque(maxlen=LOADS_KEPT)
        """How long it took to read the partitions that were loaded last, in ms."""
        self._topic_name = topic_name
        self._loaders: dict[int, LoaderT] = {}
        self._loaded: dict[int, int] = {}
        """Since when each of them is loaded."""

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being read."""
        return bool(self._loaders)

    @property
    def loaders(self) -> Collection[LoaderT]:
        """The loaders of the partitions that are being read."""
        return self._loaders.values()

    def read_loader(self, partition: int) -> LoaderT | None:
        """The loader that has read a partition to its end, and whose groups or ids begin now."""
        loader = self._loaders.get(partition)
        return loader if loader and loader.is_read else None

    def availability(self, partition: int) -> ErrorCode:
        """NONE if the partition is loaded here, else the error for the client."""
        loaded_ms = self._loaded.get(partition)
        if loaded_ms is not None and not self._log.may_be_succeeded(loaded_ms):
            return ErrorCode.NONE
        if partition in self._loaders:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def load(
        self,
        partition: int,
        new_loader: Callable[[], LoaderT],
        finish: Callable[[LoaderT], Work[None]],
    ) -> None:
        """Read from the loop's next turn on, and then do the work that `finish` gives, in steps.

        Does nothing if the partition is being loaded, or is loaded.
        """
        if partition not in self._loaded and partition not in self._loaders:
            self._begin(partition, new_loader, finish, FIRST_RELOAD_MS)

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        if loader := self._loaders.pop(partition, None):
            self._runtime.begin(loader.give_up(), f"free the records of partition {partition}")
        self._loaded.pop(partition, None)

    def _begin(
        self,
        partition: int,
        new_loader: Callable[[], LoaderT],
        finish: Callable[[LoaderT], Work[None]],
        retry_ms: int,
    ) -> None:
        self._loaders[partition] = loader = new_loader()
        finishing = finish(loader)
        loader.began_ms = self._clock.monotonic_ms()
        end_offset: int | None = None

        def try_again() -> None:
            if self._loaders.get(partition) is loader:
                following_ms = min(2 * retry_ms, LAST_RELOAD_MS)
                self._begin(partition, new_loader, finish, following_ms)

        def step() -> None:
            nonlocal end_offset
            if self._loaders.get(partition) is not loader:
                return
            try:
                if end_offset is None:
                    end_offset = self._log.end_offset(partition)
                if not self._log.is_committed(partition, end_offset - 1):
                    self._scheduler.call_later(REPLICATION_POLL_MS, step)
                    return
                if loader.step() or next(finishing, DONE) is not DONE:
                    self._scheduler.call_soon(step)
                    return
            except Exception:
                text = "Partition %d of %s cannot be read, all in it waits: tried again in %d ms"
                logger.exception(text, partition, self._topic_name, retry_ms)
                self._scheduler.call_later(retry_ms, try_again)
                return
            del self._loaders[partition]
            self._loaded[partition] = now_ms = self._clock.monotonic_ms()
            self.last_loads_ms.append(now_ms - loader.began_ms)

        self._scheduler.call_soon(step)
