"""Where groups and offsets are kept: the partitions of `__consumer_offsets`, as seen from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.errors import ErrorCode


class OffsetsLog(Protocol):
    """The partitions of the offsets topic. A group lives in one of them, with all its records."""

    @property
    def partition_count(self) -> int:
        """How many partitions there are: groups are spread over them by their id."""
        ...

    def partition_for(self, group_id: str) -> int:
        """The partition that a group lives in; its leader coordinates the group."""
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
