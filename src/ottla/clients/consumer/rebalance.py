"""What an application is told when its share of a group changes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ottla.structs import TopicPartition


class RebalanceListener:
    """Base class for `subscribe(listener=...)`; called inside `poll`, in the thread that polls.

    `commit`, `seek` and `position` may be called from here.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are about to go to others: the last chance to commit."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions were added."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions belong to others already; a commit for them would be refused."""
        self.on_partitions_revoked(partitions)


class RebalanceKind(Enum):
    """Which method of the listener an event is for."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


class RebalanceEvent(NamedTuple):
    """A change that the application must be told of before polling goes on."""

    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]

    def tell(self, listener: RebalanceListener | None) -> None:
        """Call the listener. A partial one, without all methods, is fine."""
        method = getattr(listener, self.kind.value, None)
        if method is not None:
            method(self.partitions)
