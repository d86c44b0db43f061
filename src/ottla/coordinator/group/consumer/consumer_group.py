"""A consumer group of KIP-848: epochs, members, and the owner of each partition.

Empty          no members
Assigning      the group epoch is ahead of the epoch of the target assignment
Reconciling    some member does not have its target assignment yet
Stable         all members have it
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import ClassVar, Final, TypeVar

from ottla.config.config_type import INT_MAX
from ottla.coordinator.group.consumer.consumer_group_records import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
    SubscribedTopic,
    TopicIdPartition,
    current_assignment_key,
    current_assignment_value,
    group_epoch_key,
    group_epoch_value,
    member_key,
    member_value,
    partition_metadata_key,
    partition_metadata_value,
    read_current_assignment,
    read_member,
    read_partition_metadata,
    read_partitions,
    regex_key,
    regex_value,
    target_epoch_key,
    target_epoch_value,
    target_member_key,
    target_member_value,
)
from ottla.coordinator.group.group import Committer, Group, GroupType
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message, decode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.structs import CONSUMER_PROTOCOL_TYPE, TopicPartition

logger = logging.getLogger(__name__)


# The changes of a group that are on their way into the log, and the answers that wait for them.


Records = dict[bytes, bytes | None]
OnStored = Callable[[ErrorCode], object]
Append = Callable[[Mapping[bytes, bytes | None], OnStored], object]


class PendingWrites:
    """Writes of one group, in order.

    A group changes in memory at once. A client is told of a change when that and all before it are
    in the log; what could not be written is written again with the next change.
    """

    def __init__(self) -> None:
        self.unsaved: Records = {}
        self._batches: dict[int, Mapping[bytes, bytes | None]] = {}
        self._newest: dict[bytes, int] = {}
        self._waiting: list[OnStored] = []
        self._sequence = 0

    @property
    def keys(self) -> dict[bytes, None]:
        """The keys of open and failed writes: the log has or may get them, the group may not."""
        return dict.fromkeys([*self.unsaved, *self._newest])

    @property
    def is_idle(self) -> bool:
        """Whether the log has all that was written."""
        return not self.unsaved and not self._batches

    def write(self, records: Records, append: Append, on_stored: OnStored) -> None:
        """Write the records, with those that could not be written before."""
        batch = {**self.unsaved, **records}
        if not batch:
            self._wait(on_stored)
            return
        self.unsaved = {}
        self._sequence += 1
        sequence = self._sequence
        self._batches[sequence] = batch
        self._newest.update(dict.fromkeys(batch, sequence))

        def on_done(error: ErrorCode) -> None:
            if sequence in self._batches:
                self._complete(sequence, error)
            on_stored(error)

        append(batch, on_done)

    def abandon(self, error: ErrorCode) -> None:
        """This broker no longer coordinates the group: waiting callers get the error."""
        self._batches.clear()
        self._newest.clear()
        self.unsaved = {}
        waiting, self._waiting = self._waiting, []
        for on_stored in waiting:
            on_stored(error)

    def _wait(self, on_stored: OnStored) -> None:
        if self._batches:
            self._waiting.append(on_stored)
        else:
            on_stored(ErrorCode.NONE)

    def _complete(self, sequence: int, error: ErrorCode) -> None:
        batch = self._batches.pop(sequence)
        if error:
            # A key that was written again since keeps its later value.
            lost = {key: batch[key] for key in batch if self._newest.get(key) == sequence}
            self.unsaved = {**lost, **self.unsaved}
        if self._batches:
            return
        self._newest.clear()
        waiting, self._waiting = self._waiting, []
        result = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.unsaved else ErrorCode.NONE
        for on_stored in waiting:
            on_stored(result)


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
    """What the coordinator knows of one consumer group.

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
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, SubscribedTopic] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.seen_topics_version = NEVER
        self.is_advancing = False
        """Whether its next target is being made, in slices."""
        self.is_dead = False
        self.writes = PendingWrites()
        self._owners: dict[TopicIdPartition, str] = {}
        self._names = Uses[str]()
        self._expressions = Uses[str]()

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
        self.target.setdefault(member.member_id, NO_PARTITIONS)
        if member.details.instance_id is not None:
            assert member.details.instance_id not in self.static_members
            self.static_members[member.details.instance_id] = member.member_id
        self._subscribe(member.details)
        self._own(member.member_id, member.current.owned)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member; what it owned is free."""
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

    def is_free_for(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Whether no other member owns the partition."""
        return self._owners.get(partition, member_id) == member_id

    def free_for(self, partitions: Assignment, member_id: str) -> Assignment:
        """Those of the partitions that no other member owns."""
        members = self.members.values()
        return partitions.difference(
            *(member.current.owned for member in members if member.member_id != member_id)
        )

    def has_had(self, member: ConsumerMember, partition: TopicPartition, epoch: int) -> bool:
        """Whether the member had the partition in the epoch, and has had it ever since."""
        topic = self.topics.get(partition.topic)
        return topic is not None and member.current.has_had(
            TopicIdPartition(topic.topic_id, partition.partition), epoch
        )

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """Those that speak the classic protocol."""
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

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        return self.offsets.expired(
            now_ms, retention_ms, _commit_time, self.subscribed_topics or frozenset()
        )

    def _subscribe(self, details: MemberDetails) -> None:
        self._names.add(details.topic_names)
        self._expressions.add(filter(None, [details.topic_regex]))

    def _unsubscribe(self, details: MemberDetails) -> None:
        self._names.remove(details.topic_names)
        self._expressions.remove(filter(None, [details.topic_regex]))

    def _own(self, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        owners = dict.fromkeys(partitions, member_id)
        count = len(self._owners) + len(owners)
        self._owners.update(owners)
        assert len(self._owners) == count, "a partition has an owner already"

    def _free(self, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            assert self._owners[partition] == member_id
            del self._owners[partition]


def has_unrevoked(member: ConsumerMember) -> bool:
    """Whether the member still has to give partitions up."""
    return member.current.state is MemberState.UNREVOKED_PARTITIONS


def _commit_time(value: CommittedOffset) -> int:
    return value.commit_timestamp_ms


# One change of a consumer group: its effect in memory, and its records.


class GroupChanges:
    """Changes a group and collects the records; the last value of a key counts.

    `needs_assignment` is set when the group needs a new epoch.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: Records = {}
        self.needs_assignment = False

    def add_member(self, member: ConsumerMember) -> None:
        """A member joins."""
        self.group.add(member)
        self.needs_assignment = True
        self._note_details(member)

    def adopt_member(self, member: ConsumerMember) -> None:
        """Add a member of the classic group that this one was; it keeps its partitions."""
        self.group.add(member)
        self._note_details(member)
        self.set_target(member.member_id, member.current.assigned)
        self._note_current(member)

    def remove_member(self, member: ConsumerMember) -> None:
        """Remove a member; all that it owned is free at once."""
        self.group.remove(member)
        self.records.update(dict.fromkeys(self.group.member_keys(member.member_id)))

    def replace_member(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """An instance is back under a new member id: it takes over the target of the old one."""
        target = self.group.target[old.member_id]
        self.remove_member(old)
        self.group.add(new)
        self._note_details(new)
        self.set_target(new.member_id, target)
        self._note_current(new)

    def update_details(self, member: ConsumerMember, details: MemberDetails) -> None:
        """Take over what a member says about itself, if that has changed."""
        before = member.details
        if details == before:
            return
        self.group.set_details(member, details)
        self._note_details(member)
        self.needs_assignment |= details.assignment_input != before.assignment_input

    def set_regex(self, regex: str, topics: frozenset[str], version: int, now_ms: int) -> None:
        """A regular expression matches these topics now."""
        self.group.regexes[regex] = topics
        self.records[regex_key(self.group.group_id, regex)] = regex_value(topics, version, now_ms)

    def drop_regex(self, regex: str) -> None:
        """No member subscribes to the regular expression now."""
        del self.group.regexes[regex]
        self.records[regex_key(self.group.group_id, regex)] = None

    def set_topics(self, topics: dict[str, SubscribedTopic]) -> None:
        """The group reads these topics now."""
        self.group.topics = topics
        key = partition_metadata_key(self.group.group_id)
        self.records[key] = partition_metadata_value(topics)

    def bump_epoch(self) -> None:
        """Something has changed that calls for a new assignment.

        After the last epoch they begin again; members take over any epoch that is not theirs.
        """
        if self.group.group_epoch >= INT_MAX:
            self.set_assignment_epoch(0)
            self.set_epoch(1)
        else:
            self.set_epoch(self.group.group_epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the target assignment follows."""
        self.group.group_epoch = epoch
        self.records[group_epoch_key(self.group.group_id)] = group_epoch_value(epoch)

    def set_target(self, member_id: str, target: Assignment) -> None:
        """A member is going to read these partitions."""
        self.group.target[member_id] = target
        key = target_member_key(self.group.group_id, member_id)
        self.records[key] = target_member_value(target)

    def set_assignment_epoch(self, epoch: int) -> None:
        """The targets are those of this group epoch."""
        self.group.assignment_epoch = epoch
        self.records[target_epoch_key(self.group.group_id)] = target_epoch_value(epoch)

    def set_current(
        self, member: ConsumerMember, current: CurrentAssignment, record: bytes | None = None
    ) -> None:
        """Move a member to its next assignment; its record may have been made before."""
        self.group.set_current(member, current)
        self._note_current(member, record)

    def _note_details(self, member: ConsumerMember) -> None:
        key = member_key(self.group.group_id, member.member_id)
        self.records[key] = member_value(member.details)

    def _note_current(self, member: ConsumerMember, record: bytes | None = None) -> None:
        key = current_assignment_key(self.group.group_id, member.member_id)
        self.records[key] = record or current_assignment_value(member.current)


# A consumer group as its records describe it, built when all have been read.


class StoredConsumerGroup:
    """The last value of each key of one group."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.assignment_epoch = 0
        self.topics: dict[str, SubscribedTopic] = {}
        self.members: dict[str, MemberDetails] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, frozenset[str]] = {}

    @property
    def exists(self) -> bool:
        """Whether the group has not been deleted, or become one of another protocol."""
        return self.epoch is not None

    def apply(self, key: Message, value: bytes | None) -> None:
        """Apply a record of the group."""
        READERS[type(key)](self, key, value)

    def restore(self, group_id: str) -> ConsumerGroup:
        """The group; CORRUPT_MESSAGE if its records contradict each other."""
        group = ConsumerGroup(group_id)
        group.group_epoch = self.epoch or 0
        group.assignment_epoch = self.assignment_epoch
        group.topics = self.topics
        group.regexes = self.regexes
        for member_id, details in self.members.items():
            current = self.currents.get(member_id, CurrentAssignment())
            self._check(group, member_id, details, current)
            group.target[member_id] = self.targets.get(member_id, NO_PARTITIONS)
            group.add(ConsumerMember(member_id, details, current))
        group.subscribed_topics = group.compute_subscribed_topics()
        return group

    def _check(
        self,
        group: ConsumerGroup,
        member_id: str,
        details: MemberDetails,
        current: CurrentAssignment,
    ) -> None:
        """Refuse values that no coordinator writes, before they fail the group's assertions."""
        if details.instance_id is not None and details.instance_id in group.static_members:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"instance {details.instance_id} is there twice"
            )
        if not all(group.is_free_for(partition, member_id) for partition in current.owned):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"member {member_id} owns what another one owns"
            )


def _apply_epoch(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    group.epoch = (
        None if value is None else decode_versioned(ConsumerGroupMetadataValue, value).epoch
    )


def _apply_topics(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    group.topics = (
        {}
        if value is None
        else read_partition_metadata(decode_versioned(ConsumerGroupPartitionMetadataValue, value))
    )


def _apply_target_epoch(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    group.assignment_epoch = (
        0
        if value is None
        else decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value).assignment_epoch
    )


def _apply_member(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    assert isinstance(key, ConsumerGroupMemberMetadataKey)
    if value is None:
        group.members.pop(key.member_id, None)
    else:
        stored = decode_versioned(ConsumerGroupMemberMetadataValue, value)
        group.members[key.member_id] = read_member(stored)


def _apply_target(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    assert isinstance(key, ConsumerGroupTargetAssignmentMemberKey)
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        stored = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
        group.targets[key.member_id] = read_partitions(stored.topic_partitions)


def _apply_current(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    assert isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
    if value is None:
        group.currents.pop(key.member_id, None)
    else:
        stored = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
        group.currents[key.member_id] = read_current_assignment(stored)


def _apply_regex(group: StoredConsumerGroup, key: Message, value: bytes | None) -> None:
    assert isinstance(key, ConsumerGroupRegularExpressionKey)
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        stored = decode_versioned(ConsumerGroupRegularExpressionValue, value)
        group.regexes[key.regular_expression] = frozenset(stored.topics)


READERS: Final[
    Mapping[type[Message], Callable[[StoredConsumerGroup, Message, bytes | None], None]]
] = {
    ConsumerGroupMetadataKey: _apply_epoch,
    ConsumerGroupPartitionMetadataKey: _apply_topics,
    ConsumerGroupMemberMetadataKey: _apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: _apply_current,
    ConsumerGroupRegularExpressionKey: _apply_regex,
}
