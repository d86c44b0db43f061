"""Partitions dealt out one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from ottla.clients.consumer.assignors.assignor import (
    Assignment,
    Assignor,
    MemberSubscription,
    sorted_members,
    wanted_partitions,
)


class RoundRobinAssignor(Assignor):
    """All partitions in order, each to the next member that wants its topic.

    Nine partitions, three members: 0 3 6, 1 4 7, 2 5 8.
    """

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        turns = cycle(sorted_members(members))
        for partition in wanted_partitions(partition_counts, members):
            owner = next(turns)
            while partition.topic not in members[owner].topics:
                owner = next(turns)
            assignment[owner].append(partition)
        return assignment
