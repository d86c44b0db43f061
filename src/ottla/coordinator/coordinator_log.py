"""A coordinator's state: the partitions of its internal topic, and how they are loaded."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.record.record_batch import RecordBatch, batches
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

APPEND_TIMEOUT_MS: Final = 30_000
"""How long the replicas may take to have what the coordinator of transactions has written."""


class CoordinatorLog(Protocol):
    """The partitions of `__consumer_offsets` or of `__transaction_state`.

    A group, or a transactional id, lives in one of them, with all its records; that partition's
    leader is its coordinator.
    """

    @property
    def partition_count(self) -> int:
        """How many partitions there are: groups and ids are spread over them by their names."""
        ...

    def partition_for(self, key: str) -> int:
        """The partition that a group or an id lives in; its leader coordinates it."""
        ...

    def append(self, partition: int, batch: bytes, on_done: Callable[[ErrorCode], object]) -> None:
        """Write one batch; `on_done` gets NONE once all in-sync replicas have it, or the error."""
        ...

    def read(self, partition: int) -> Iterator[memoryview]:
        """Everything in the partition, from its log start: buffers of whole batches, in order."""
        ...

    def is_leader(self, partition: int) -> bool:
        """Whether this broker leads the partition."""
        ...

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition: the coordinator's epoch."""
        ...


# Reading one partition of a coordinator's topic, a step at a time.


RECORDS_PER_STEP: Final = 2000
LOADS_KEPT: Final = 100


class StepwiseLoader(ABC):
    """Reads a partition in steps, each with so few records that the broker stays responsive."""

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        self.partition = partition
        self.record_count = 0
        self.began_ms = 0
        self._batches = (batch for buffer in source for batch in batches(buffer))

    def step(self) -> bool:
        """Read about RECORDS_PER_STEP records; False when all have been read."""
        stop_at = self.record_count + RECORDS_PER_STEP
        for batch in self._batches:
            self.read_batch(batch)
            if self.record_count >= stop_at:
                return True
        return False

    @abstractmethod
    def read_batch(self, batch: RecordBatch) -> None:
        """Apply the batch's records, and add their number to `record_count`."""


# The partitions of a coordinator's topic that this broker leads. Each turn of the event loop reads
# one step.


LoaderT = TypeVar("LoaderT", bound=StepwiseLoader)


class CoordinatorPartitions(Generic[LoaderT]):
    """Which partitions are being loaded, and which are loaded; `topic_name` is for log lines.

    A partition that failed to load is in neither set, so its requests get an error. If a partition
    is unloaded while it is being loaded, that load never finishes, even if another one begins.
    """

    def __init__(self, runtime: Runtime, topic_name: str) -> None:
        self._scheduler, self._clock = runtime.scheduler, runtime.clock
        self.last_loads_ms: deque[int] = deque(maxlen=LOADS_KEPT)
        """How long it took to read the partitions that were loaded last, in ms."""
        self._topic_name = topic_name
        self._loaders: dict[int, LoaderT] = {}
        self._loaded: set[int] = set()

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being read."""
        return bool(self._loaders)

    def availability(self, partition: int) -> ErrorCode:
        """NONE if the partition is loaded here, else the error for the client."""
        if partition in self._loaded:
            return ErrorCode.NONE
        if partition in self._loaders:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def load(
        self,
        partition: int,
        new_loader: Callable[[], LoaderT],
        on_finished: Callable[[LoaderT], object],
    ) -> None:
        """Read from the loop's next turn on; `on_finished` is called when all has been read.

        Does nothing if the partition is being loaded, or is loaded.
        """
        if partition not in self._loaded and partition not in self._loaders:
            self._loaders[partition] = loader = new_loader()
            loader.began_ms = self._clock.monotonic_ms()
            self._scheduler.call_soon(lambda: self._step(loader, on_finished))

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        self._loaders.pop(partition, None)
        self._loaded.discard(partition)

    def _step(self, loader: LoaderT, on_finished: Callable[[LoaderT], object]) -> None:
        if self._loaders.get(loader.partition) is not loader:
            return
        try:
            has_more = loader.step()
        except (KafkaError, OSError):
            logger.exception(
                "Partition %d of %s cannot be read, what lives in it is refused",
                loader.partition,
                self._topic_name,
            )
            del self._loaders[loader.partition]
            return
        if has_more:
            self._scheduler.call_soon(lambda: self._step(loader, on_finished))
        else:
            del self._loaders[loader.partition]
            self._loaded.add(loader.partition)
            self.last_loads_ms.append(self._clock.monotonic_ms() - loader.began_ms)
            on_finished(loader)
