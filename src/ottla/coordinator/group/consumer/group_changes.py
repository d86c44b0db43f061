"""One change of a consumer group: its effect in memory, and its records."""

from __future__ import annotations

from ottla.config.config_type import INT_MAX
from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_records import (
    current_assignment_key,
    current_assignment_value,
    group_epoch_key,
    group_epoch_value,
    large_assignment_value,
    large_target_value,
    member_key,
    member_value,
    partition_metadata_key,
    partition_metadata_value,
    regex_key,
    regex_value,
    target_epoch_key,
    target_epoch_value,
    target_member_key,
    target_member_value,
)
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
)
from ottla.coordinator.group.consumer.pending_writes import Records
from ottla.runtime.scheduler import Work, at_once


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

    def adopt_member(self, member: ConsumerMember) -> Work[None]:
        """Add a member of the classic group that this one was; it keeps its partitions."""
        self.group.add(member)
        self._note_details(member)
        target = yield from large_target_value(member.current.assigned)
        self.set_target(member.member_id, member.current.assigned, target)
        self._note_current(member, (yield from large_assignment_value(member.current)))

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
        """Take over a member's details, if they have changed."""
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

    def set_topics(self, topics: dict[str, SubscribedTopic], record: bytes | None = None) -> None:
        """The group reads these topics now; their record may have been made before."""
        self.group.topics = topics
        key = partition_metadata_key(self.group.group_id)
        self.records[key] = record or at_once(partition_metadata_value(topics))

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

    def set_target(
        self, member_id: str, target: AssignedPartitions, record: bytes | None = None
    ) -> None:
        """A member is going to read these partitions; its record may have been made before."""
        self.group.target[member_id] = target
        key = target_member_key(self.group.group_id, member_id)
        self.records[key] = record or target_member_value(target)

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
