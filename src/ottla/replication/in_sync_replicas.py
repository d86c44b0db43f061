"""The in-sync replicas of a partition, as its leader has to reckon with them (KIP-497).

Only the controller changes them. While a change is asked for, and as long as it is not known
whether it was made, both the old and the new replicas may be elected: the leader then reckons with
the maximal set, and a record is committed when all of that have it.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.errors import ErrorCode
from ottla.structs import LeaderAndIsr

# The controller says for sure that the partition is as it was.
UNCHANGED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class InSyncReplicas:
    """Who is in sync. Invariant: `maximal` holds `committed` and all that was proposed since."""

    __slots__ = ("committed", "is_in_flight", "maximal", "version")

    def __init__(self, state: LeaderAndIsr) -> None:
        self.committed = state.isr
        self.maximal = frozenset(state.isr)
        self.version = state.version
        self.is_in_flight = False

    @property
    def is_uncertain(self) -> bool:
        """Whether a change was asked for of which it is not known what has come of it."""
        return not self.is_in_flight and len(self.maximal) > len(self.committed)

    def propose(self, isr: Collection[int]) -> None:
        """A change is on its way to the controller."""
        assert not self.is_in_flight, "one change at a time: each replaces a version"
        self.is_in_flight = True
        self.maximal |= frozenset(isr)

    def accept(self, state: LeaderAndIsr) -> bool:
        """What the controller has written; False if something newer is known already."""
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
