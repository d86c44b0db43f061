"""Failover: groups that move to the other end of a flow.

It needs only the target: the flow's checkpoints say where each group continues.

What the source has and the flow had not copied when the source was lost was read by no group. It
is reported; it is still in the source's topic, before which a group that returns never skips, and
the flow copies it when it runs again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.mirror.checkpoint import GroupCheckpoints
from ottla.structs import TopicPartition


class Rehearsed(NamedTuple):
    """Where a group would continue at the target, partition by partition.

    `committed` is what it has there now, `end` where the copy ends; all by the target's names.
    """

    group: str
    state: str
    partition: TopicPartition
    upstream: int
    downstream: int
    committed: int | None
    end: int

    @property
    def to_read(self) -> int:
        """The records that the group finds at the target, repeated ones among them."""
        return max(0, self.end - self.downstream)

    @property
    def is_ready(self) -> bool:
        """Whether a consumer that is started at the target now begins there."""
        return self.committed is not None and self.committed >= self.downstream


def rehearse(target: Admin, checkpoints: GroupCheckpoints) -> list[Rehearsed]:
    """What a failover would find, from the target alone: the source may be down."""
    found = []
    states = {each.group_id: each.state for each in target.list_groups()}
    for group, known in sorted(checkpoints.emitted.items()):
        committed = target.list_group_offsets(group)
        ends = target.list_offsets(dict.fromkeys(known, -1))
        for partition, checkpoint in sorted(known.items()):
            there = committed.get(partition)
            found.append(
                Rehearsed(
                    group,
                    states.get(group, "Dead"),
                    partition,
                    checkpoint.upstream,
                    checkpoint.downstream,
                    None if there is None else there.offset,
                    ends[partition].offset,
                )
            )
    return found
