"""How a coordinator reaches the leaders of a transaction's partitions, to have its end written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode
from ottla.structs import TopicPartition

OnWritten = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class TxnMarker(NamedTuple):
    """How a producer's transaction has ended, as decided in an epoch of its coordinator.

    From `transaction_version` 2 on the end has raised the producer's epoch: the marker has the
    epoch in which the producer goes on, and batches of this epoch are not the marker's.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


class MarkerChannel(Protocol):
    """Carries markers to leaders, wherever they are."""

    @property
    def is_ready(self) -> bool:
        """Whether it is known which partitions exist: not before the controller has told."""
        ...

    def exists(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists; no marker is needed in one whose topic was deleted."""
        ...

    def write_markers(
        self, marker: TxnMarker, partitions: Collection[TopicPartition], on_written: OnWritten
    ) -> None:
        """Have the marker written to each partition; `on_written` hears once how that went."""
        ...
