"""A classic group: its members, its generation and the state it is in.

`NEXT_STATES` says which state may follow which; `transition_to` is the only place that changes the
state. (A group that is loaded, or was a consumer group before, is built in its first state.)

    Empty --------------> PreparingRebalance    a member joins
    PreparingRebalance -> CompletingRebalance   all have joined, or the time to join is over
    PreparingRebalance -> Empty                 all have left
    CompletingRebalance > Stable                the leader has sent the assignment
    CompletingRebalance > PreparingRebalance    a member joins, leaves or fails
    Stable -------------> PreparingRebalance    the same, or the leader joins again
    any ----------------> Dead                  deleted, expired, or moved to another coordinator
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import ClassVar, Final
from uuid import UUID

from ottla.config.config_type import INT_MAX
from ottla.coordinator.group.group import Committer, Group, GroupType
from ottla.coordinator.group.member_metadata import (
    JoinCallback,
    MemberMetadata,
    SupportedProtocol,
    SyncCallback,
    largest_metadata,
)
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.subscribed_topics import (
    MAX_SUBSCRIPTION_NAMES,
    name_count,
    subscribed_topics,
)
from ottla.errors import ErrorCode
from ottla.protocol.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import GroupMetadataKey
from ottla.runtime import Timer
from ottla.structs import CONSUMER_PROTOCOL_TYPE, TopicPartition

MEMBER_ID_NAME_LENGTH: Final = 255


class GroupState(Enum):
    """The states of a group under the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT_STATES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


class ClassicGroup(Group):
    """One group of the classic protocol, as its coordinator knows it.

    Invariants: the leader is a member; every static instance points to a member; each member
    supports at least one protocol that all the others support as well; a member that is pending
    (it got a member id and has not come back with it, KIP-394) is not a member yet.
    `owed_tombstones` are the keys of the consumer group that this group was before, until their
    deletion is in the log. `assigned_generation_id` is the last one whose assignment was sent to
    the log: a leader that sends another one gets the first, as its log will have it.
    """

    type: ClassVar[GroupType] = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        self.generation_id = self.assigned_generation_id = 0
        self.protocol_type = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, MemberMetadata] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_sync_members: set[str] = set()
        self.subscribed_topics = frozenset()
        self.new_member_added = False
        self.sync_timer: Timer | None = None
        self.owed_tombstones: dict[bytes, None] = {}
        self.metadata_bytes = 0
        """How large the subscriptions of the members are, each by its largest protocol."""
        self._votes: Counter[str] = Counter()
        self._awaiting_join_count = 0

    def is_in(self, *states: GroupState) -> bool:
        """Whether the group is in one of the states."""
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return GroupState.PREPARING_REBALANCE in NEXT_STATES[self.state]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state; `NEXT_STATES` must allow it."""
        assert state in NEXT_STATES[self.state], (
            f"group {self.group_id} cannot go from {self.state.value} to {state.value}"
        )
        self.state = state
        self.state_timestamp_ms = now_ms

    def new_member_id(self, client_id: str, group_instance_id: str | None, uuid: UUID) -> str:
        """A new unique id; its prefix shows people which client or instance it belongs to."""
        name = client_id if group_instance_id is None else group_instance_id
        return f"{name[:MEMBER_ID_NAME_LENGTH]}-{uuid}"

    def add(self, member: MemberMetadata, callback: JoinCallback | None = None) -> None:
        """Add a member, which may wait for the answer to its JoinGroup."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        assert self.supports_protocols(member.protocol_type, member.protocols)
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_votes(member, 1)
        self.await_join(member, callback)

    def remove(self, member_id: str) -> MemberMetadata | None:
        """Remove a member or a pending member; if it led, the earliest of the others leads."""
        self.pending_members.discard(member_id)
        self.pending_sync_members.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_votes(member, -1)
        self._awaiting_join_count -= member.awaiting_join is not None
        if member.session_timer is not None:
            member.session_timer.cancel()
            member.session_timer = None
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, member: MemberMetadata, new_member_id: str) -> None:
        """An instance is back under a new id; open requests of the old id are fenced."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        self.answer_join(
            member,
            JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old_member_id),
        )
        self.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        # Keep the place in the dictionary: leaders are elected in order of arrival.
        self.members = {
            new_member_id if key == old_member_id else key: value
            for key, value in self.members.items()
        }
        member.member_id = new_member_id
        self.static_members[member.group_instance_id] = new_member_id
        if old_member_id in self.pending_sync_members:
            self.pending_sync_members.discard(old_member_id)
            self.pending_sync_members.add(new_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id

    def update_protocols(
        self, member: MemberMetadata, protocols: Sequence[SupportedProtocol]
    ) -> None:
        """A member offers other protocols, or the same with another subscription."""
        self._count_votes(member, -1)
        member.protocols = list(protocols)
        self._count_votes(member, 1)

    def await_join(self, member: MemberMetadata, callback: JoinCallback | None) -> None:
        """The member waits for the answer to its JoinGroup; an older open one is answered now."""
        self.answer_join(
            member,
            JoinGroupResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
            ),
        )
        member.awaiting_join = callback
        self._awaiting_join_count += callback is not None

    def answer_join(self, member: MemberMetadata, response: JoinGroupResponse) -> None:
        """Answer the member's open JoinGroup, if it has one."""
        callback = member.awaiting_join
        if callback is not None:
            member.awaiting_join = None
            self._awaiting_join_count -= 1
            callback(response)

    def await_sync(self, member: MemberMetadata, callback: SyncCallback) -> None:
        """The member waits for its assignment; an older open request is answered now."""
        self.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = callback

    def answer_sync(self, member: MemberMetadata, response: SyncGroupResponse) -> None:
        """Answer the member's open SyncGroup, if it has one."""
        callback = member.awaiting_sync
        if callback is not None:
            member.awaiting_sync = None
            callback(response)

    @property
    def awaiting_join_count(self) -> int:
        """How many members wait for the answer to a JoinGroup."""
        return self._awaiting_join_count

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member waits for the next generation, and no member id is pending."""
        return self._awaiting_join_count == len(self.members) and not self.pending_members

    def members_not_joined(self) -> list[MemberMetadata]:
        """Members that have not sent their JoinGroup for the coming generation."""
        return [member for member in self.members.values() if member.awaiting_join is None]

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        """Whether the member assigns the partitions of this generation."""
        return self.leader_id == member_id

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next(
            (m.member_id for m in self.members.values() if m.awaiting_join is not None), None
        )
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def supports_protocols(
        self, protocol_type: str, protocols: Iterable[SupportedProtocol]
    ) -> bool:
        """Whether a client that offers these protocols can be a member."""
        names = {protocol.name for protocol in protocols}
        if not self.members:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and bool(names & self.candidate_protocols())

    def candidate_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        return {name for name, votes in self._votes.items() if votes == len(self.members)}

    def select_protocol(self) -> str:
        """Each member votes for its favourite candidate; on a tie the earliest vote wins."""
        candidates = self.candidate_protocols()
        assert candidates, f"group {self.group_id} has members without a common protocol"
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def init_next_generation(self, now_ms: int) -> None:
        """The wait for joins is over: begin the next generation with the present members."""
        # Members compare generations for equality only, so that they may begin again; 0 is none.
        self.generation_id = 1 if self.generation_id >= INT_MAX else self.generation_id + 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms)
        self.subscribed_topics = self.compute_subscribed_topics()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Topics that some member reads, so that their offsets stay; None if unknown."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return None
        topics: set[str] = set()
        # Most members of a group say the same.
        distinct = {member.metadata(self.protocol_name) for member in self.members.values()}
        if sum(map(name_count, distinct)) > MAX_SUBSCRIPTION_NAMES:
            return None
        for metadata in distinct:
            subscription = subscribed_topics(metadata)
            if subscription is None:
                return None
            topics |= subscription
        return frozenset(topics)

    def member_metadata(self) -> list[JoinGroupResponseMember]:
        """The metadata of all members, by which the leader assigns partitions to them."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def is_over_without(self, partitions: Collection[TopicPartition]) -> bool:
        return super().is_over_without(partitions) and not self.pending_members

    @property
    def stored_state(self) -> object:
        if not self.is_in(GroupState.STABLE, GroupState.EMPTY):
            return None
        members = [
            (
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name or ""),
                member.assignment,
            )
            for member in self.members.values()
        ]
        return (
            self.type,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id,
            members,
        )

    @property
    def is_unused(self) -> bool:
        return self.is_over and not self.generation_id and not self.owed_tombstones

    def tombstone_keys(self) -> list[bytes]:
        own = [group_key(self.group_id)] if self.generation_id else []
        return [*self.owed_tombstones, *own]

    def die(self, now_ms: int) -> None:
        if self.state is not GroupState.DEAD:
            self.transition_to(GroupState.DEAD, now_ms)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether the sender is the member that it says it is.

        A static member must be the one that last joined under its instance id: an older one with
        the same instance id is fenced for good (KIP-345).
        """
        if group_instance_id is not None:
            current_member_id = self.static_members.get(group_instance_id)
            if current_member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(
        self, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        error = self.check_member(committer.member_id, committer.group_instance_id)
        if not error and committer.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def check_reader(self, reader: Committer) -> ErrorCode:
        return ErrorCode.NONE

    def expired_offsets(
        self, now_ms: int, retention_ms: int, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Offsets age from their commit, or from when the last member left, if later (KIP-211).

        Offsets of subscribed topics stay. All stay during a rebalance, or if topics are unknown.
        """
        expired = partial(self.offsets.expired, now_ms, retention_ms)
        if self.protocol_type is None:
            return expired(_commit_time, partitions)
        if self.is_in(GroupState.EMPTY):
            since_ms = self.state_timestamp_ms or 0
            return expired(lambda value: max(since_ms, _commit_time(value)), partitions)
        if self.is_in(GroupState.STABLE) and self.subscribed_topics is not None:
            return expired(_commit_time, partitions, self.subscribed_topics)
        return []

    def _count_votes(self, member: MemberMetadata, count: int) -> None:
        self.metadata_bytes += count * largest_metadata(member.protocols)
        for name in {protocol.name for protocol in member.protocols}:
            self._votes[name] += count
            if not self._votes[name]:
                del self._votes[name]


def group_key(group_id: str) -> bytes:
    """The key of the group's record."""
    return encode_versioned(GroupMetadataKey(group=group_id), GroupMetadataKey.max_version)


def _commit_time(value: CommittedOffset) -> int:
    return value.commit_timestamp_ms
