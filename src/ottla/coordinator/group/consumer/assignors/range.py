"""The range assignor: neighbouring partitions of each topic, the same numbers of every topic.

Members that read the same topics get partitions of the same numbers, so that records with equal
keys meet in one member. The first members get one more where the division leaves a rest.
"""

from __future__ import annotations

from ottla.coordinator.group.consumer.assignors.assignor import GroupSpec
from ottla.coordinator.group.consumer.member import Assignment, TopicIdPartition


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Static members keep their place under their instance id, whatever their member id is."""
    order = sorted(group.members, key=lambda member: group.members[member].instance_id or member)
    given: dict[str, list[TopicIdPartition]] = {member: [] for member in group.members}
    for topic_id, count in group.partition_counts.items():
        readers = [member for member in order if topic_id in group.members[member].topic_ids]
        if not readers:
            continue
        size, rest = divmod(count, len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + size + (place < rest)
            given[member] += [TopicIdPartition(topic_id, number) for number in range(start, end)]
            start = end
    return {member: frozenset(partitions) for member, partitions in given.items()}
