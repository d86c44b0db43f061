"""A consumer group as its records describe it, built when all have been read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS, AssignedPartitions
from ottla.coordinator.group.consumer.assignors import COST_OF_A_TARGET, SlicePace
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_records import (
    read_current_assignment,
    read_member,
    read_partition_metadata,
    read_partitions,
    read_regex,
)
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message, decode_versioned_in_slices
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
from ottla.runtime.scheduler import Work

M = TypeVar("M", bound=Message)


class StoredConsumerGroup:
    """The last value of each key of one group."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epoch_ms = 0
        """When the record of the epoch was written."""
        self.assignment_epoch = 0
        self.topics: dict[str, SubscribedTopic] = {}
        self.members: dict[str, MemberDetails] = {}
        self.targets: dict[str, AssignedPartitions] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, frozenset[str]] = {}

    @property
    def exists(self) -> bool:
        """Whether the group has not been deleted, or become one of another protocol."""
        return self.epoch is not None

    def apply(self, key: Message, value: bytes | None) -> Work[None]:
        """Apply a record of the group, in slices where it is long."""
        return READERS[type(key)](self, key, value)

    def restore(self, group_id: str) -> Work[ConsumerGroup]:
        """The group; CORRUPT_MESSAGE if its records contradict each other."""
        group = ConsumerGroup(group_id)
        group.group_epoch, group.empty_since_ms = self.epoch or 0, self.epoch_ms
        group.assignment_epoch = self.assignment_epoch
        group.topics = self.topics
        group.regexes = self.regexes
        pace = SlicePace()
        for member_id, details in self.members.items():
            current = self.currents.get(member_id, CurrentAssignment())
            self._check(group, member_id, details, current)
            group.target[member_id] = self.targets.get(member_id, NO_PARTITIONS)
            group.add(ConsumerMember(member_id, details, current))
            if pace.is_over(COST_OF_A_TARGET + len(current.assigned.topics)):
                yield
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
        if not group.are_free_for(current.owned, member_id):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"member {member_id} owns what another one owns"
            )


Reader = Callable[[StoredConsumerGroup, Message, bytes | None], Work[None]]


def _apply_epoch(group: StoredConsumerGroup, key: Message, value: bytes | None) -> Work[None]:
    if value is None:
        group.epoch = None
    else:
        stored = yield from decode_versioned_in_slices(ConsumerGroupMetadataValue, value)
        group.epoch = stored.epoch


def _apply_topics(group: StoredConsumerGroup, key: Message, value: bytes | None) -> Work[None]:
    if value is None:
        group.topics = {}
    else:
        stored = yield from decode_versioned_in_slices(ConsumerGroupPartitionMetadataValue, value)
        group.topics = yield from read_partition_metadata(stored)


def _apply_target_epoch(
    group: StoredConsumerGroup, key: Message, value: bytes | None
) -> Work[None]:
    kind = ConsumerGroupTargetAssignmentMetadataValue
    if value is None:
        group.assignment_epoch = 0
    else:
        group.assignment_epoch = (
            yield from decode_versioned_in_slices(kind, value)
        ).assignment_epoch


def _entry(table: str, key_field: str, kind: type[M], read: Callable[[M], Work[object]]) -> Reader:
    """Keeps each value in a table of the group, under a field of its key."""

    def apply(group: StoredConsumerGroup, key: Message, value: bytes | None) -> Work[None]:
        entries, name = getattr(group, table), getattr(key, key_field)
        if value is None:
            entries.pop(name, None)
        else:
            stored = yield from decode_versioned_in_slices(kind, value)
            entries[name] = yield from read(stored)

    return apply


READERS: Final[Mapping[type[Message], Reader]] = {
    ConsumerGroupMetadataKey: _apply_epoch,
    ConsumerGroupPartitionMetadataKey: _apply_topics,
    ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch,
    ConsumerGroupMemberMetadataKey: _entry(
        "members", "member_id", ConsumerGroupMemberMetadataValue, read_member
    ),
    ConsumerGroupTargetAssignmentMemberKey: _entry(
        "targets",
        "member_id",
        ConsumerGroupTargetAssignmentMemberValue,
        lambda stored: read_partitions(stored.topic_partitions),
    ),
    ConsumerGroupCurrentMemberAssignmentKey: _entry(
        "currents", "member_id", ConsumerGroupCurrentMemberAssignmentValue, read_current_assignment
    ),
    ConsumerGroupRegularExpressionKey: _entry(
        "regexes", "regular_expression", ConsumerGroupRegularExpressionValue, read_regex
    ),
}
