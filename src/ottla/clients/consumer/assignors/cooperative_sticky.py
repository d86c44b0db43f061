"""The sticky division, reached without anybody stopping (KIP-429)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from ottla.clients.consumer.assignors.assignor import (
    NO_GENERATION,
    Assignment,
    MemberSubscription,
)
from ottla.clients.consumer.assignors.sticky import Ownership, StickyAssignor
from ottla.structs import TopicPartition


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky in two rounds: a partition that must move is left out until its owner let it go.

    The owner sees that it lost the partition, revokes it and joins again; then it is given away.
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return struct.pack(">i", generation)

    def ownership(self, member: MemberSubscription) -> Ownership:
        if member.generation != NO_GENERATION or len(member.user_data or b"") < 4:
            return Ownership(member.owned, member.generation)
        return Ownership(member.owned, struct.unpack_from(">i", member.user_data or b"")[0])

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment = super().assign(partition_counts, members)
        claimants: dict[TopicPartition, set[str]] = {}
        for member_id, member in members.items():
            for partition in member.owned:
                claimants.setdefault(partition, set()).add(member_id)
        return {
            member_id: [p for p in share if claimants.get(p, set()) <= {member_id}]
            for member_id, share in assignment.items()
        }
