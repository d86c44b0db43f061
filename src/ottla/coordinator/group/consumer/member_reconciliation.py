"""The way of a member from its current assignment to its target, step by step.

First it gives up the partitions that its target lacks, and keeps its epoch until it has confirmed
that. Then it moves to the epoch of the target, with those partitions that no other member owns;
the others follow when their owners have given them up. So a partition never has two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS, AssignedPartitions
from ottla.coordinator.group.consumer.consumer_member import (
    AssignmentEpochs,
    CurrentAssignment,
    MemberState,
)


def next_assignment(
    current: CurrentAssignment,
    target: AssignedPartitions,
    target_epoch: int,
    free_of: Callable[[AssignedPartitions], AssignedPartitions],
    owned: AssignedPartitions | None,
) -> CurrentAssignment:
    """The member's next assignment; `owned` are the partitions it reports, None if unchanged."""
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.pending_revocation:
            return current
    elif current.is_reconciled_to(target_epoch):
        return current
    kept = current.assigned & target
    leaving = NO_PARTITIONS if kept == current.assigned else current.assigned - kept
    if leaving and (owned is None or owned & leaving):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=leaving,
            assignment_epochs=_epochs(current, current.assigned, target_epoch),
        )
    free = free_of(target - kept)
    assigned = kept | free
    has_all = len(assigned) == len(target)
    following = CurrentAssignment(
        member_epoch=target_epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.STABLE if has_all else MemberState.UNRELEASED_PARTITIONS,
        assigned=assigned,
        pending_revocation=NO_PARTITIONS,
        assignment_epochs=_epochs(current, assigned, target_epoch),
    )
    # A member that still waits in the same epoch is not written again.
    is_same = following._replace(previous_member_epoch=current.previous_member_epoch) == current
    return current if is_same else following


def _epochs(
    current: CurrentAssignment, partitions: AssignedPartitions, epoch: int
) -> AssignmentEpochs:
    """The known epochs; partitions that are new, or whose epoch is unknown, get `epoch`."""
    return {
        topic_id: _of_numbers(current.assignment_epochs.get(topic_id, {}), numbers, epoch)
        for topic_id, numbers in partitions.topics.items()
    }


def _of_numbers(known: Mapping[int, int], numbers: frozenset[int], epoch: int) -> Mapping[int, int]:
    if not known:
        return dict.fromkeys(numbers, epoch)
    if known.keys() == numbers:
        return known
    return {**dict.fromkeys(numbers, epoch), **{n: known[n] for n in known if n in numbers}}
