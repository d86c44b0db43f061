"""Where a coordinator keeps its state: the partitions of its internal topic, as seen from here."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.record.record_batch import RecordBatch, batches
from ottla.runtime import Scheduler

logger = logging.getLogger(__name__)


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
        """Write one batch; `on_done` is told when all in-sync replicas have it, or what failed."""
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


# The partitions of a coordinator's topic that are here: read a step in each turn of the loop.


LoaderT = TypeVar("LoaderT", bound=StepwiseLoader)


class CoordinatorPartitions(Generic[LoaderT]):
    """Which partitions are being read, and which have been; people know the topic as `topic_name`.

    A partition that cannot be read is in here no more, and was not finished either: what lives in
    it is refused. One that is given up meanwhile is not finished, even if it is begun again.
    """

    def __init__(self, scheduler: Scheduler, topic_name: str) -> None:
        self._scheduler = scheduler
        self._topic_name = topic_name
        self._loaders: dict[int, LoaderT] = {}
        self._loaded: set[int] = set()

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being read."""
        return bool(self._loaders)

    def availability(self, partition: int) -> ErrorCode:
        """NONE if what lives in the partition is known here, else what to tell the client."""
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
        """Read from the next turn on; `on_finished` is called when all has been read.

        Nothing happens to a partition that is being read, or has been.
        """
        if partition not in self._loaded and partition not in self._loaders:
            self._loaders[partition] = loader = new_loader()
            self._scheduler.call_soon(lambda: self._step(loader, on_finished))

    def unload(self, partition: int) -> None:
        """The partition is not ours any more."""
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
            on_finished(loader)
