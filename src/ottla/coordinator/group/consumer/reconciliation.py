"""How a member gets from its current assignment to its target, step by step.

First it gives up what is not its own any more, and keeps its epoch until it has said so. Then it
goes to the epoch of the target, with those partitions that nobody else owns; the others follow
when their owners have given them up. So a partition never has two owners.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    AssignmentEpochs,
    CurrentAssignment,
    MemberState,
    TopicIdPartition,
)


def next_assignment(
    current: CurrentAssignment,
    target: Assignment,
    target_epoch: int,
    is_free: Callable[[TopicIdPartition], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    """Where the member goes now; `owned` is what it says that it has, None if nothing new."""
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.pending_revocation:
            return current
    elif current.is_reconciled_to(target_epoch):
        return current
    kept = current.assigned & target
    leaving = current.assigned - kept
    if leaving and (owned is None or owned & leaving):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=leaving,
            assignment_epochs=_epochs(current, current.assigned, target_epoch),
        )
    free = frozenset(filter(is_free, target - kept))
    has_all = len(kept) + len(free) == len(target)
    following = CurrentAssignment(
        member_epoch=target_epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.STABLE if has_all else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | free,
        pending_revocation=NO_PARTITIONS,
        assignment_epochs=_epochs(current, kept | free, target_epoch),
    )
    # A member that goes on waiting in the same epoch is not written again.
    is_same = following._replace(previous_member_epoch=current.previous_member_epoch) == current
    return current if is_same else following


def _epochs(current: CurrentAssignment, partitions: Assignment, epoch: int) -> AssignmentEpochs:
    """Those of before, and the new epoch for what comes now or whose own is not known."""
    return {partition: current.assignment_epochs.get(partition, epoch) for partition in partitions}
