"""Failback: groups that move back to the source of a flow.

It needs both ends. A group that has read the copy continues in the original, by the flow's offset
syncs read backwards; in topics that the target has of its own it continues in the copy that the
reverse flow has made, by the checkpoints of that flow. Neither is ever above the true offset, and
groups are only moved forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.mirror_records import OffsetSync
from ottla.clients.topic_offsets import OffsetSpec
from ottla.errors import ConfigError
from ottla.mirror.checkpoint import decoded, ends_of, move_groups, read_checkpoints
from ottla.mirror.copied_offsets import CopiedTo, LatestRecordsReader, read_offsets
from ottla.mirror.flow import Flow
from ottla.mirror.offset_sync import OffsetSyncStore
from ottla.mirror.replication_policy import IdentityReplicationPolicy
from ottla.runtime.clock import Clock
from ottla.structs import TopicPartition


class Failback:
    """The way back of the groups of `flow`, whose source has come back.

    `reverse` is the flow that copies what the target has of its own; None if there is none. The
    admin clients are the caller's.
    """

    def __init__(
        self, flow: Flow, reverse: Flow | None, source: Admin, target: Admin, clock: Clock
    ) -> None:
        if isinstance(flow.policy, IdentityReplicationPolicy):
            raise ConfigError(
                f"{flow.name}: replication.policy.class=IdentityReplicationPolicy: a copy and its "
                "original have one name, so that what is whose cannot be told; a failback needs "
                "DefaultReplicationPolicy"
            )
        self._flow = flow
        self._source = source
        self._target = target
        self._clock = clock
        self._copied = CopyProgress(flow, source, target, clock)
        self._reverse = reverse
        self._copied_back = (
            None if reverse is None else CopyProgress(reverse, target, source, clock)
        )

    def lines(self) -> list[str]:
        """Records that only one end has, for the operator: first those that nobody has read."""
        found = [each.line(self._flow) for each in self._copied.differences()]
        if self._reverse is not None and self._copied_back is not None:
            found += [each.line(self._reverse) for each in self._copied_back.differences()]
        return found

    def returned(self) -> list[Returned]:
        """Where each group that the flow is for would continue."""
        wanted = self._flow.group_filter()
        places = self._translated_back(
            each.group_id for each in self._target.list_groups() if wanted.takes(each.group_id)
        )
        if self._reverse is not None and (
            self._reverse.checkpoints_topic in self._source.list_topics()
        ):
            emitted = read_checkpoints(
                self._reverse.target, self._reverse.checkpoints_topic, self._clock
            ).emitted
            for group in filter(wanted.takes, emitted):
                places.setdefault(group, {}).update(
                    {p: (each.upstream, each.downstream) for p, each in emitted[group].items()}
                )
        return self._beside_committed(places)

    def _translated_back(
        self, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, tuple[int, int | None]]]:
        """What the groups have committed for copies, and where that is in the originals."""
        flow = self._flow
        originals = {
            TopicPartition(flow.remote(each.topic), each.partition): each
            for each in self._copied.offsets
        }
        there = self._target.list_topics()
        copies = [each for each in originals if each.topic in there]
        ends = ends_of(self._target, copies, OffsetSpec.LATEST)
        reader = LatestRecordsReader(flow.sync_cluster, flow.syncs_topic, self._clock)
        try:
            store = backwards(decoded(reader.read_to_end(), OffsetSync.of, "offset sync"))
        finally:
            reader.close()
        found: dict[str, dict[TopicPartition, tuple[int, int | None]]] = {}
        for group in groups:
            for copy, committed in self._target.list_group_offsets(group).items():
                partition = originals.get(copy)
                if partition is None or copy not in ends:
                    continue
                offset = self._place(store, partition, committed.offset, ends[copy])
                found.setdefault(group, {})[partition] = (committed.offset, offset)
        return found

    def _place(
        self, store: OffsetSyncStore, partition: TopicPartition, there: int, end: int
    ) -> int | None:
        """The offset of the original for one of the copy, which ends at `end`; None if unknown."""
        copied = self._copied.offsets[partition]
        if copied is None:
            return None
        # A group that has read the whole copy has read all that was copied.
        offset = copied + 1 if there >= end else store.translate(partition, there)
        if offset is None or offset < 0:
            return None
        return min(offset, self._copied.ends[partition])

    def _beside_committed(
        self, places: Mapping[str, Mapping[TopicPartition, tuple[int, int | None]]]
    ) -> list[Returned]:
        states = {each.group_id: each.state for each in self._source.list_groups()}
        every = {partition for of_group in places.values() for partition in of_group}
        ends = ends_of(self._source, every, OffsetSpec.LATEST)
        found = []
        for group, of_group in sorted(places.items()):
            here = self._source.list_group_offsets(group)
            for partition, (there, offset) in sorted(of_group.items()):
                committed = here[partition].offset if partition in here else None
                state = states.get(group, "Dead")
                end = ends[partition]
                found.append(Returned(group, state, partition, there, offset, committed, end))
        return found

    def commit(self, returned: Iterable[Returned]) -> dict[str, dict[TopicPartition, int]]:
        """Move the groups that have no members at the source forward to these offsets."""
        wanted: dict[str, dict[TopicPartition, int]] = {}
        for each in returned:
            if each.offset is not None:
                wanted.setdefault(each.group, {})[each.partition] = each.offset
        return move_groups(self._source, wanted)


class Difference(NamedTuple):
    """Offsets of a source's partition that one of both ends does not have.

    With `is_at_source` the flow has not copied them; else the source has lost its end, and only the
    copy has these.
    """

    partition: TopicPartition
    first: int
    length: int
    is_at_source: bool = True

    def line(self, flow: Flow) -> str:
        """What it is, for a person."""
        last = self.first + self.length - 1
        offsets = f"{self.partition} offsets {self.first}-{last} ({self.length:,})"
        if self.is_at_source:
            return f"only at {flow.source.alias}: {offsets}, which {flow.name} has not copied"
        return (
            f"lost at {flow.source.alias}: {offsets}, which {flow.remote(self.partition.topic)} "
            f"at {flow.target.alias} has"
        )


class CopyProgress:
    """How far a flow has copied each partition of its topics, beside what the source has now.

    Heartbeats are left out.
    """

    def __init__(self, flow: Flow, source: Admin, target: Admin, clock: Clock) -> None:
        self.flow = flow
        is_beat = flow.policy.is_heartbeats_topic
        topics = [t for t in flow.wanted_topics(source.list_topics()) if not is_beat(t)]
        offsets: Mapping[TopicPartition, CopiedTo] = {}
        if flow.offsets_topic in target.list_topics():
            offsets = read_offsets(flow.target, flow.offsets_topic, flow.source.alias, clock)
        self.offsets: dict[TopicPartition, int | None] = {}
        for name, described in (source.describe_topics(topics) if topics else {}).items():
            for each in described.partitions:
                partition = TopicPartition(name, each.partition)
                copied = offsets.get(partition)
                is_other = copied is not None and copied.source_id not in (
                    "",
                    str(described.topic_id),
                )
                self.offsets[partition] = None if copied is None or is_other else copied.offset
        self.starts = ends_of(source, self.offsets, OffsetSpec.EARLIEST)
        self.ends = ends_of(source, self.offsets, OffsetSpec.LATEST)

    def differences(self) -> list[Difference]:
        """Records that only one end has, partition by partition."""
        found = []
        for partition, copied in sorted(self.offsets.items()):
            next_one = 0 if copied is None else copied + 1
            first, end = max(next_one, self.starts[partition]), self.ends[partition]
            if first < end:
                found.append(Difference(partition, first, end - first))
            elif next_one > end:
                found.append(Difference(partition, end, next_one - end, is_at_source=False))
        return found


def backwards(syncs: Iterable[OffsetSync]) -> OffsetSyncStore:
    """A store that translates offsets of the target to those of the source.

    Where a partition of the source began again, offsets of the former one do not count.
    """
    kept: dict[TopicPartition, list[OffsetSync]] = {}
    for sync in syncs:
        of_partition = kept.setdefault(sync.partition, [])
        if of_partition and sync.upstream < of_partition[-1].upstream:
            of_partition.clear()
        of_partition.append(sync)
    store = OffsetSyncStore()
    for of_partition in kept.values():
        for sync in of_partition:
            store.add(OffsetSync(sync.partition, sync.downstream, sync.upstream))
    store.finish_loading()
    return store


class Returned(NamedTuple):
    """Where a group would continue at the former source, partition by partition.

    `there` is its offset at the other end, `committed` what it has here now, and `offset` None
    where nothing is known: it then stays where it was.
    """

    group: str
    state: str
    partition: TopicPartition
    there: int
    offset: int | None
    committed: int | None
    end: int

    @property
    def to_read(self) -> int | None:
        """The records that the group finds here, repeated ones among them."""
        return None if self.offset is None else max(0, self.end - self.offset)

    @property
    def is_ready(self) -> bool:
        """Whether a consumer that is started here now begins there, or behind it."""
        if self.offset is None:
            return True
        return self.committed is not None and self.committed >= self.offset
