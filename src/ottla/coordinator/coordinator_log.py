"""A coordinator's state: the partitions of its internal topic, and how they are loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeVar

from ottla.errors import ErrorCode
from ottla.runtime.scheduler import Work

logger = logging.getLogger(__name__)

APPEND_TIMEOUT_MS: Final = 30_000
"""How long the replicas may take to have what the coordinator of transactions has written."""


OnAppended = Callable[[ErrorCode, int], object]


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

    def append(self, partition: int, batch: bytes, on_done: OnAppended) -> None:
        """Write one batch; `on_done` gets NONE once all in-sync replicas have it, or the error.

        It also gets the offset of the batch, NO_OFFSET if the log does not have it: a batch that
        was not replicated in time is an error, and in the log.
        """
        ...

    def is_committed(self, partition: int, offset: int) -> bool:
        """Whether all in-sync replicas have this leader's record at the offset."""
        ...

    def may_be_succeeded(self, since_ms: int) -> bool:
        """Whether another broker may lead by now what this one has led since then."""
        ...

    def end_offset(self, partition: int) -> int:
        """Where this broker's log of the partition ends."""
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


Item = TypeVar("Item")


def for_each(items: Iterable[Item], act: Callable[[Item], object]) -> None:
    """Do something with each group or id; reports those with which it fails."""
    for item in list(items):
        try:
            act(item)
        except Exception:
            logger.exception("%s is passed over", item)


def guarded(item: object, work: Work[None]) -> Work[None]:
    """The work, about an item, which is reported where it fails."""
    try:
        yield from work
    except Exception:
        logger.exception("%s is passed over", item)
