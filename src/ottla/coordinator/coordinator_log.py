"""Where a coordinator keeps its state: the partitions of its internal topic, as seen from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.errors import ErrorCode


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
