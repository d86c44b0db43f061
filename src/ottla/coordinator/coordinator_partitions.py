"""The partitions of a coordinator's topic that are here: read a step in each turn of the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.coordinator.stepwise_loader import StepwiseLoader
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Scheduler

logger = logging.getLogger(__name__)


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
