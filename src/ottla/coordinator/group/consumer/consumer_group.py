"""A consumer group of KIP-848: epochs, members, and who owns which partition.

Empty          no members
Assigning      the group epoch is ahead of the epoch of the target assignment
Reconciling    some member has not got its target assignment yet
Stable         all members have it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Final

from ottla.coordinator.group.consumer.consumer_group_records import (
    current_assignment_key,
    group_epoch_key,
    member_key,
    partition_metadata_key,
    regex_key,
    target_epoch_key,
    target_member_key,
)
from ottla.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.pending_writes import PendingWrites
from ottla.coordinator.group.consumer.topics import SubscribedTopic
from ottla.coordinator.group.group_type import Group, GroupType
from ottla.coordinator.group.offsets import OffsetAndMetadata
from ottla.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.structs import TopicPartition

NEVER: Final = -1


class ConsumerGroupState(Enum):
    """The states of a consumer group under the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(Group):
    """What the coordinator knows of one consumer group.

    Invariants: a partition has at most one owner, and stands in that member's `current`; epochs
    never fall; the assignment epoch is at most the group epoch; every member has a target.
    """

    type: ClassVar[GroupType] = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.protocol_type = CONSUMER_PROTOCOL_TYPE
        self.subscribed_topics = frozenset()
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, SubscribedTopic] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.seen_topics_version = NEVER
        self.is_dead = False
        self.writes = PendingWrites()
        self._owners: dict[TopicIdPartition, str] = {}

    @property
    def state(self) -> ConsumerGroupState:
        """Follows from the epochs; it is stored nowhere."""
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.current.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        return self.is_over and not self.group_epoch

    # -- members

    def add(self, member: ConsumerMember) -> None:
        """Take in a member, with all that it owns."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        self.members[member.member_id] = member
        self.target.setdefault(member.member_id, NO_PARTITIONS)
        if member.details.instance_id is not None:
            assert member.details.instance_id not in self.static_members
            self.static_members[member.details.instance_id] = member.member_id
        self._own(member.member_id, member.current.owned)

    def remove(self, member: ConsumerMember) -> None:
        """Let a member go; what it owned is free."""
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        if member.details.instance_id is not None:
            del self.static_members[member.details.instance_id]
        self._free(member.member_id, member.current.owned)
        member.cancel_timers()

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member that an instance is now."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """The member goes on to its next assignment."""
        self._free(member.member_id, member.current.owned - current.owned)
        self._own(member.member_id, current.owned - member.current.owned)
        member.current = current

    def is_free_for(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Whether no other member owns the partition."""
        return self._owners.get(partition, member_id) == member_id

    def has_had(self, member: ConsumerMember, partition: TopicPartition, epoch: int) -> bool:
        """Whether the partition was the member's in the epoch, and has been ever since."""
        topic = self.topics.get(partition.topic)
        return topic is not None and member.current.has_had(
            TopicIdPartition(topic.topic_id, partition.partition), epoch
        )

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """Those that speak the classic protocol."""
        return [member for member in self.members.values() if member.is_classic]

    # -- subscriptions

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that the member subscribes to, whether the topics exist or not."""
        names = frozenset(member.details.topic_names)
        return names | self.regexes.get(member.details.topic_regex, frozenset())

    def compute_subscribed_topics(self) -> frozenset[str]:
        """The names that any member subscribes to."""
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members ask for; members that ask for none do not count."""
        votes = Counter(
            member.details.assignor for member in self.members.values() if member.details.assignor
        )
        return votes.most_common(1)[0][0] if votes else default

    # -- what becomes of it

    def tombstone_keys(self) -> list[bytes]:
        keys = self.writes.keys
        for member_id in self.members:
            keys |= dict.fromkeys(self.member_keys(member_id))
        keys |= dict.fromkeys(regex_key(self.group_id, regex) for regex in self.regexes)
        last = (
            target_epoch_key(self.group_id),
            partition_metadata_key(self.group_id),
            group_epoch_key(self.group_id),
        )
        return [*(key for key in keys if key not in last), *last]

    def member_keys(self, member_id: str) -> list[bytes]:
        """The keys of a member's records."""
        return [
            current_assignment_key(self.group_id, member_id),
            target_member_key(self.group_id, member_id),
            member_key(self.group_id, member_id),
        ]

    def die(self, now_ms: int) -> None:
        self.is_dead = True
        for member in self.members.values():
            member.cancel_timers()

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        return self.offsets.expired(
            now_ms, retention_ms, _commit_time, self.subscribed_topics or frozenset()
        )

    def _own(self, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            assert self.is_free_for(partition, member_id), f"{partition} has an owner already"
            self._owners[partition] = member_id

    def _free(self, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            assert self._owners[partition] == member_id
            del self._owners[partition]


def has_unrevoked(member: ConsumerMember) -> bool:
    """Whether the member is asked to give partitions up."""
    return member.current.state is MemberState.UNREVOKED_PARTITIONS


def _commit_time(value: OffsetAndMetadata) -> int:
    return value.commit_timestamp_ms
