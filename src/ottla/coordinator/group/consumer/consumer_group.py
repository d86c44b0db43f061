"""A consumer group of KIP-848: epochs, members, and the owner of each partition.

Empty          no members
Assigning      the group epoch is ahead of the epoch of the target assignment
Reconciling    some member does not have its target assignment yet
Stable         all members have it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain
from typing import ClassVar, Final, TypeVar
from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    TopicIdPartition,
    joined,
)
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_group_records import (
    current_assignment_key,
    current_assignment_value,
    group_epoch_key,
    member_key,
    member_value,
    partition_metadata_key,
    regex_key,
    target_epoch_key,
    target_member_key,
    target_member_value,
)
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
)
from ottla.coordinator.group.consumer.pending_writes import PendingWrites
from ottla.coordinator.group.group import Committer, Group, GroupType
from ottla.errors import ErrorCode
from ottla.structs import CONSUMER_PROTOCOL_TYPE, TopicPartition

NEVER: Final = -1

T = TypeVar("T")


class Uses(Counter[T]):
    """How often each thing is used, by members of a group that come and go: once or more."""

    def add(self, things: Iterable[T]) -> None:
        """Each of them is used once more."""
        self.update(things)

    def remove(self, things: Iterable[T]) -> None:
        """Each of them is used once less."""
        for thing in things:
            count = self[thing] - 1
            if count:
                self[thing] = count
            else:
                del self[thing]


class ConsumerGroupState(Enum):
    """The states of a consumer group under the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(Group):
    """One consumer group, as its coordinator knows it.

    Invariants: a partition has at most one owner, and is in that member's `current`; epochs
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
        self.target: dict[str, AssignedPartitions] = {}
        self.topics: dict[str, SubscribedTopic] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.seen_topics_version = NEVER
        self.is_advancing = False
        """Whether its next target is being made, in slices."""
        self.is_dead = False
        self.writes = PendingWrites()
        self._owners: dict[UUID, dict[int, str]] = {}
        self._names = Uses[str]()
        self._expressions = Uses[str]()
        self._classic_count = 0
        self.empty_since_ms = NEVER

    @property
    def state(self) -> ConsumerGroupState:
        """Follows from members and epochs; it is not stored."""
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

    @property
    def stored_state(self) -> object:
        if not self.writes.is_idle:
            return None
        members = {
            member_id: (
                member_value(member.details),
                current_assignment_value(member.current),
                target_member_value(self.target[member_id]),
            )
            for member_id, member in self.members.items()
        }
        epochs = self.group_epoch, self.assignment_epoch
        return self.type, epochs, members, self.topics, self.regexes

    def add(self, member: ConsumerMember) -> None:
        """Add a member, with all that it owns."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        self.members[member.member_id] = member
        self.empty_since_ms = NEVER
        self.target.setdefault(member.member_id, NO_PARTITIONS)
        if member.details.instance_id is not None:
            assert member.details.instance_id not in self.static_members
            self.static_members[member.details.instance_id] = member.member_id
        self._subscribe(member.details)
        self._own(member.member_id, member.current.owned)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member; its partitions are free."""
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        if member.details.instance_id is not None:
            del self.static_members[member.details.instance_id]
        self._unsubscribe(member.details)
        self._free(member.member_id, member.current.owned)
        member.cancel_timers()

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The present member of an instance."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """Move the member to its next assignment."""
        self._free(member.member_id, member.current.owned - current.owned)
        self._own(member.member_id, current.owned - member.current.owned)
        member.current = current

    def are_free_for(self, partitions: AssignedPartitions, member_id: str) -> bool:
        """Whether no other member owns any of the partitions."""
        return self.free_for(partitions, member_id) == partitions

    def free_for(self, partitions: AssignedPartitions, member_id: str) -> AssignedPartitions:
        """The partitions that no other member owns."""
        if not self._owners:
            return partitions
        return joined(
            (topic_id, _free_numbers(numbers, self._owners.get(topic_id, {}), member_id))
            for topic_id, numbers in partitions.topics.items()
        )

    def has_had(self, member: ConsumerMember, partition: TopicPartition, epoch: int) -> bool:
        """Whether the member had the partition in the epoch, and has had it ever since."""
        topic = self.topics.get(partition.topic)
        return topic is not None and member.current.has_had(
            TopicIdPartition(topic.topic_id, partition.partition), epoch
        )

    @property
    def has_only_classic_members(self) -> bool:
        """Whether no member speaks the newer protocol; each heartbeat of a classic one asks."""
        return self._classic_count == len(self.members)

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """The members that speak the classic protocol."""
        return [member for member in self.members.values() if member.is_classic]

    def set_details(self, member: ConsumerMember, details: MemberDetails) -> None:
        """The member says something else about itself."""
        self._unsubscribe(member.details)
        member.details = details
        self._subscribe(details)

    @property
    def used_regexes(self) -> list[str]:
        """The regular expressions of the members, in order."""
        return sorted(self._expressions)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that the member subscribes to, whether the topics exist or not."""
        names = frozenset(member.details.topic_names)
        return names | self.regexes.get(member.details.topic_regex, frozenset())

    def compute_subscribed_topics(self) -> frozenset[str]:
        """The names that any member subscribes to."""
        matched = (self.regexes.get(regex, frozenset()) for regex in self._expressions)
        return frozenset(self._names).union(*matched)

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members ask for; members that ask for none do not count."""
        votes = Counter(
            member.details.assignor for member in self.members.values() if member.details.assignor
        )
        return votes.most_common(1)[0][0] if votes else default

    def tombstone_keys(self) -> list[bytes]:
        of_members = chain.from_iterable(map(self.member_keys, self.members))
        return list(dict.fromkeys([*of_members, *self.keys_without_members()]))

    def keys_without_members(self) -> list[bytes]:
        """The keys of its other records, and of those of members that it may have in the log.

        The keys by which the group is known are the last ones.
        """
        keys = self.writes.keys
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

    def check_generation(
        self, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """A member may not know its new epoch yet, as the heartbeat's answer is on its way.

        Until then it may commit partitions that it has had since the old one (KIP-1251).
        """
        error = self._check_epoch(committer)
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            member = self.members[committer.member_id]
            if all(self.has_had(member, p, committer.generation_id) for p in partitions):
                return ErrorCode.NONE
        return error

    def check_reader(self, reader: Committer) -> ErrorCode:
        """A member that names itself must be in its present epoch; all others may read."""
        return self._check_epoch(reader) if reader.claims_membership else ErrorCode.NONE

    def _check_epoch(self, sender: Committer) -> ErrorCode:
        member = self.members.get(sender.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if sender.generation_id == member.current.member_epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def expired_offsets(
        self, now_ms: int, retention_ms: int, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Offsets that no member reads age from their commit, or from when all had left, if later.

        That is the first look at the group without members; where it was loaded so, the time of the
        record of its epoch, which the last leave has raised.
        """
        if self.is_empty and self.empty_since_ms == NEVER:
            self.empty_since_ms = now_ms
        since_ms = self.empty_since_ms
        return self.offsets.expired(
            now_ms,
            retention_ms,
            lambda value: max(since_ms, value.commit_timestamp_ms),
            partitions,
            self.subscribed_topics or frozenset(),
        )

    def _subscribe(self, details: MemberDetails) -> None:
        self._classic_count += details.classic is not None
        self._names.add(details.topic_names)
        self._expressions.add(filter(None, [details.topic_regex]))

    def _unsubscribe(self, details: MemberDetails) -> None:
        self._classic_count -= details.classic is not None
        self._names.remove(details.topic_names)
        self._expressions.remove(filter(None, [details.topic_regex]))

    def _own(self, member_id: str, partitions: AssignedPartitions) -> None:
        for topic_id, numbers in partitions.topics.items():
            owners = self._owners.setdefault(topic_id, owned := dict.fromkeys(numbers, member_id))
            if owners is not owned:
                assert owners.keys().isdisjoint(numbers), "a partition has an owner already"
                owners.update(owned)

    def _free(self, member_id: str, partitions: AssignedPartitions) -> None:
        for topic_id, numbers in partitions.topics.items():
            owners = self._owners[topic_id]
            for number in numbers:
                assert owners[number] == member_id
                del owners[number]
            if not owners:
                del self._owners[topic_id]


def _free_numbers(
    numbers: frozenset[int], owners: Mapping[int, str], member_id: str
) -> frozenset[int]:
    if owners.keys().isdisjoint(numbers):  # a set would look at all owners
        return numbers
    return frozenset(n for n in numbers if owners.get(n, member_id) == member_id)


def has_unrevoked(member: ConsumerMember) -> bool:
    """Whether the member still has to give partitions up."""
    return member.current.state is MemberState.UNREVOKED_PARTITIONS
