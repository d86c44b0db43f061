"""The target assignment of a group epoch, made by the assignor of the group."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS
from ottla.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    COST_OF_A_TARGET,
    GroupSpec,
    MemberSpec,
    SlicePace,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_records import (
    PARTS_IN_A_SLICE,
    large_target_value,
)
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.runtime.scheduler import Work


def assign_partitions(changes: GroupChanges, default_assignor: str) -> Work[None]:
    """Give every partition of the group's topics a member, for the present group epoch.

    In a pause the group may change, and have a later epoch. Its targets are then those of this
    epoch, those of newer members are empty, and the next assignment is for the later one.
    """
    group, pace = changes.group, SlicePace()
    if len(group.topics) > PARTS_IN_A_SLICE:
        yield
    epoch = group.group_epoch
    assign = ASSIGNORS[group.preferred_assignor(default_assignor)]
    spec = yield from group_spec(group)
    targets = yield from assign(spec)
    for member_id, target in targets.items():
        if target == group.target.get(member_id, target):
            continue
        record = None
        if len(target.topics) > PARTS_IN_A_SLICE:
            record = yield from large_target_value(target)
        if member_id in group.target:  # it may have left in a pause
            changes.set_target(member_id, target, record)
            if pace.is_over(COST_OF_A_TARGET + len(target)):
                yield
    if group.assignment_epoch < epoch <= group.group_epoch:
        changes.set_assignment_epoch(epoch)


def group_spec(group: ConsumerGroup) -> Work[GroupSpec]:
    """The group as an assignor sees it; members that come meanwhile may be in it or not."""
    pace = SlicePace()
    topics = group.topics
    read: dict[tuple[tuple[str, ...], str], frozenset[UUID]] = {}
    members = {}
    for member_id, member in list(group.members.items()):
        subscription = member.details.topic_names, member.details.topic_regex
        topic_ids = read.get(subscription)
        if topic_ids is None:
            names = group.topics_of(member)
            topic_ids = frozenset(topics[name].topic_id for name in names if name in topics)
            read[subscription] = topic_ids
        members[member_id] = MemberSpec(
            topic_ids,
            group.target.get(member_id, NO_PARTITIONS),
            member.details.instance_id,
        )
        if pace.is_over(1 + len(member.details.topic_names)):
            yield
    counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
    return GroupSpec(members, counts)
