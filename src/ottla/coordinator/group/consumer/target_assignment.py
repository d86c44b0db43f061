"""Makes the target assignment of a group epoch."""

from __future__ import annotations

from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.assignors.assignor import GroupSpec, MemberSpec
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.group_changes import GroupChanges


def assign_partitions(changes: GroupChanges, default_assignor: str) -> None:
    """Give every partition of the group's topics a member, for the present group epoch."""
    group = changes.group
    targets = ASSIGNORS[group.preferred_assignor(default_assignor)](group_spec(group))
    for member_id, target in targets.items():
        if target != group.target[member_id]:
            changes.set_target(member_id, target)
    changes.set_assignment_epoch(group.group_epoch)


def group_spec(group: ConsumerGroup) -> GroupSpec:
    """The group as an assignor sees it."""
    topics = group.topics
    return GroupSpec(
        members={
            member.member_id: MemberSpec(
                topic_ids=frozenset(
                    topics[name].topic_id for name in group.topics_of(member) if name in topics
                ),
                target=group.target[member.member_id],
                instance_id=member.details.instance_id,
            )
            for member in group.members.values()
        },
        partition_counts={topic.topic_id: topic.partition_count for topic in topics.values()},
    )
