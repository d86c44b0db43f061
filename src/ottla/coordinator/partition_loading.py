"""The partitions of a coordinator's topic that are being read, a step in each turn of the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.coordinator.stepwise_loader import StepwiseLoader
from ottla.errors import KafkaError
from ottla.runtime import Scheduler

logger = logging.getLogger(__name__)


LoaderT = TypeVar("LoaderT", bound=StepwiseLoader)


class PartitionLoading(Generic[LoaderT]):
    """At most one loader for each partition, of the topic that `topic_name` tells people.

    A partition that cannot be read is in here no more, and was not finished either: what lives in
    it is refused. One that is given up meanwhile is not finished, even if it is begun again.
    """

    def __init__(self, scheduler: Scheduler, topic_name: str) -> None:
        self._scheduler = scheduler
        self._topic_name = topic_name
        self._loaders: dict[int, LoaderT] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._loaders

    def __bool__(self) -> bool:
        return bool(self._loaders)

    def begin(self, loader: LoaderT, on_finished: Callable[[LoaderT], object]) -> None:
        """Read on from the next turn; `on_finished` is called when all has been read."""
        self._loaders[loader.partition] = loader
        self._scheduler.call_soon(lambda: self._step(loader, on_finished))

    def give_up(self, partition: int) -> None:
        """The partition is not ours any more."""
        self._loaders.pop(partition, None)

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
            on_finished(loader)
