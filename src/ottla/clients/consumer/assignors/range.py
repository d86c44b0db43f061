"""Contiguous ranges of each topic's partitions."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients.consumer.assignors.assignor import (
    Assignment,
    Assignor,
    MemberSubscription,
    sorted_members,
)
from ottla.structs import TopicPartition


class RangeAssignor(Assignor):
    """Topic by topic, floor(partitions / members) to each; the first members take the remainder.

    Nine partitions, three members: 0-2, 3-5, 6-8. Topics with equal counts are divided alike, so
    that partition n of one lies with partition n of the other.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ordered = sorted_members(members)
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            wanting = [member_id for member_id in ordered if topic in members[member_id].topics]
            share, remainder = divmod(partition_counts.get(topic, 0), len(wanting))
            start = 0
            for index, member_id in enumerate(wanting):
                end = start + share + (index < remainder)
                assignment[member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return assignment
