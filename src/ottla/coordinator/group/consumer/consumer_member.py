"""A member of a consumer group: its identity, and its progress towards its target assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    TopicIdPartition,
)
from ottla.coordinator.group.member_metadata import SupportedProtocol
from ottla.protocol.consumer_group import LEAVE_STATIC_EPOCH
from ottla.runtime import Timer
from ottla.structs import NamedTuple, Value, field

AssignmentEpochs = Mapping[UUID, Mapping[int, int]]
"""Epochs by topic and number of a partition."""
NO_EPOCHS: Final[AssignmentEpochs] = MappingProxyType({})


class MemberState(IntEnum):
    """The member's next step towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give partitions up first, and keeps its epoch until it has."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up."""


class ClassicMembership(NamedTuple):
    """The additional state of a member of the classic protocol, of JoinGroup and SyncGroup."""

    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(protocol.name for protocol in self.protocols)


class MemberDetails(NamedTuple):
    """A member's details of itself. The names are sorted; an empty regex stands for none."""

    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMembership | None = None

    @property
    def assignment_input(self) -> tuple[object, ...]:
        """The part that the assignment depends on."""
        return self.topic_names, self.topic_regex, self.assignor


class CurrentAssignment(NamedTuple):
    """A member's progress. It still owns the partitions that are pending revocation.

    `assignment_epochs` has the epoch since which the member has had a partition without a break;
    if it is unknown, as after the member has joined again, the present epoch counts (KIP-1251).
    """

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = NO_PARTITIONS
    pending_revocation: AssignedPartitions = NO_PARTITIONS
    assignment_epochs: AssignmentEpochs = NO_EPOCHS

    @property
    def owned(self) -> AssignedPartitions:
        """All partitions that no other member may read."""
        if not self.pending_revocation:
            return self.assigned
        return self.assigned | self.pending_revocation

    def has_had(self, partition: TopicIdPartition, epoch: int) -> bool:
        """Whether the member had the partition in the epoch, and has had it ever since."""
        epochs = self.assignment_epochs.get(partition.topic_id, {})
        since = epochs.get(partition.partition, self.member_epoch)
        return since <= epoch <= self.member_epoch

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has its target assignment of the epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch


NOWHERE: Final = CurrentAssignment()


class ConsumerMember(Value, eq=False):
    """A member and its time limits. Only the group that it is in changes `current`."""

    member_id: str
    details: MemberDetails
    current: CurrentAssignment = NOWHERE
    session_timeout_ms: int = 0
    session_deadline_ms: int = 0
    in_sight: Callable[[str], bool] | None = field(default=None, repr=False)
    """Whether its client may see a topic: of the last heartbeat, and not kept in the log."""
    session_timer: Timer | None = field(default=None, repr=False)
    rebalance_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_kept_alive(self) -> bool:
        """Always False: no open request excuses a member from sending heartbeats."""
        return False

    @property
    def has_left_for_now(self) -> bool:
        """Whether a static member has said that its instance will be back."""
        return self.current.member_epoch == LEAVE_STATIC_EPOCH

    @property
    def is_classic(self) -> bool:
        """Whether the member speaks the classic protocol, in a group that does not."""
        return self.details.classic is not None

    def cancel_rebalance_timer(self) -> None:
        """The member has done its part of the rebalance, or has left for now."""
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
            self.rebalance_timer = None

    def cancel_timers(self) -> None:
        """The member leaves, or this broker no longer coordinates its group."""
        self.cancel_rebalance_timer()
        if self.session_timer is not None:
            self.session_timer.cancel()
            self.session_timer = None
