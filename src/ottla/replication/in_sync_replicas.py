"""The in-sync replicas of a partition, as its leader has to count them (KIP-497).

Only the controller changes them. While a change is asked for, and as long as it is not known
whether it was made, both the old and the new replicas may be elected: the leader then reckons
with the maximal set, and a record is committed when all of that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.replication.replica_stats import ReplicaStats
from ottla.structs import LeaderAndIsr, TopicPartition

# The controller says for sure that the partition is as it was.
UNCHANGED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class InSyncReplicas:
    """The set of replicas in sync.

    Invariant: `maximal` holds `committed` and all that was proposed since.
    """

    __slots__ = ("committed", "is_in_flight", "maximal", "version")

    def __init__(self, state: LeaderAndIsr) -> None:
        self.committed = state.isr
        self.maximal = frozenset(state.isr)
        self.version = state.version
        self.is_in_flight = False

    @property
    def is_uncertain(self) -> bool:
        """Whether the outcome of a change that was asked for is unknown."""
        return not self.is_in_flight and len(self.maximal) > len(self.committed)

    def propose(self, isr: Collection[int]) -> None:
        """A change is on its way to the controller."""
        assert not self.is_in_flight, "one change at a time: each replaces a version"
        self.is_in_flight = True
        self.maximal |= frozenset(isr)

    def accept(self, state: LeaderAndIsr) -> bool:
        """Take over the controller's state; False if a newer one is known already."""
        self.is_in_flight = False
        if state.version < self.version:
            return False
        self.committed = state.isr
        self.maximal = frozenset(state.isr)
        self.version = state.version
        return True

    def refuse(self, error: ErrorCode) -> None:
        """The change was not made, or it is not known that it was."""
        self.is_in_flight = False
        if error in UNCHANGED:
            self.maximal = frozenset(self.committed)


OnIsrChanged = Callable[[LeaderAndIsr | ErrorCode], object]

AlterIsr = Callable[[TopicPartition, UUID, LeaderAndIsr, Mapping[int, int], OnIsrChanged], None]
"""Asks the controller, whichever broker that is, for in-sync replicas (KIP-497).

It gets the partition, the id of its topic, the state that is asked for, whose version is the one
that it replaces, and the registration of each proposed replica, -1 where it is not known (KIP-903).
`OnIsrChanged` is called once: with the state that the controller has written, its version
included, or with the reason why it did not. Errors that a retry may mend are retried below.
"""


def counted(
    alter_isr: AlterIsr, stats: ReplicaStats, in_sync: Callable[[TopicPartition], Collection[int]]
) -> AlterIsr:
    """The same, with its outcomes counted: in-sync replicas that shrink, expand, or cannot."""

    def alter(
        topic_partition: TopicPartition,
        topic_id: UUID,
        state: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
        on_changed: OnIsrChanged,
    ) -> None:
        before = len(in_sync(topic_partition))

        def on_answer(answer: LeaderAndIsr | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                stats.failed_isr_updates += 1
            else:
                stats.isr_expands += len(answer.isr) > before
                stats.isr_shrinks += len(answer.isr) < before
            on_changed(answer)

        alter_isr(topic_partition, topic_id, state, broker_epochs, on_answer)

    return alter
