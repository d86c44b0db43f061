"""A group as it is at one moment: members, committed offsets, and the logs that it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.clients.admin.groups import DEAD
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata
from ottla.console.lag_causes import Observations, Track
from ottla.console.lag_history import OffsetSample
from ottla.console.membership_log import MembershipLook
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NO_EPOCH, NO_LEADER, IsolationLevel, NamedTuple, TopicPartition, replace

if TYPE_CHECKING:
    from ottla.clients.admin.descriptions import GroupDescription, GroupListing
    from ottla.clients.metadata import Cluster
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.lag_causes import Rebalance
    from ottla.console.lag_history import LagHistory

K = TypeVar("K")
V = TypeVar("V")
Committed = Mapping[TopicPartition, OffsetAndMetadata]

OTHER_TYPES: Final = ("share", "streams")
"""Groups of KIP-932 and KIP-1071: brokers list them, and describe them by requests of their own
alone. To DescribeGroups they are Dead, as if they were not there."""


class LogState(NamedTuple):
    """The offsets and the leader of a partition; an offset that is not known is None."""

    start: int | None = None
    end: int | None = None
    stable: int | None = None
    """The last stable offset: readers of committed records get no further."""
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


class GroupLook(NamedTuple):
    """One look at a group; `logs` has the partitions that exist."""

    time_ms: int
    group: GroupDescription
    committed: Committed
    logs: Mapping[TopicPartition, LogState]
    other_type: str = ""
    """One of `OTHER_TYPES`, where the members are not known; else empty."""

    @property
    def membership(self) -> MembershipLook:
        """The members, for a `MembershipLog`."""
        members = {each.member_id: each.client_id for each in self.group.members}
        return MembershipLook(self.group.state, members, self.group.group_epoch)

    @property
    def readers(self) -> dict[TopicPartition, str]:
        """The ids of the members by the partitions that they read."""
        return {each: m.member_id for m in self.group.members for each in m.assignment}

    @property
    def unknown(self) -> list[TopicPartition]:
        """The partitions with offsets whose log end is not known: no leader has answered."""
        return sorted(
            each for each, log in self.logs.items() if log.end is None and each in self.committed
        )

    def lag(self, partition: TopicPartition) -> int | None:
        """The lag of a partition; None where it is not known."""
        log = self.logs.get(partition, LogState())
        return lag_of(self.committed.get(partition), log.end, log.leader_epoch)


async def look_at(cluster: ConsoleCluster, group_id: str) -> GroupLook:
    """Look at a group and its logs: one request to its coordinator, three to each leader.

    Where no group of consumers has the id, one of `OTHER_TYPES` is looked for among all groups.

    Raises KafkaError where the coordinator refuses; a group that does not exist is Dead.
    """
    described = await cluster.groups.describe_groups([group_id])
    group, other_type = result_of(described, group_id), ""
    if group.state == DEAD and (listed := await listing_of_other(cluster, group_id)) is not None:
        group = replace(group, state=listed.state, protocol_type=listed.protocol_type)
        other_type = listed.type
    committed = result_of(await cluster.offsets.list_groups_offsets([group_id]), group_id)
    partitions = {*committed, *(each for m in group.members for each in m.assignment)}
    logs = await log_states(cluster, partitions)
    return GroupLook(cluster.runtime.clock.now_ms(), group, committed, logs, other_type)


async def listing_of_other(cluster: ConsoleCluster, group_id: str) -> GroupListing | None:
    """A share group or a streams group as brokers list it; None where there is none of the id."""
    try:
        listed = await cluster.groups.list_groups([], OTHER_TYPES)
    except KafkaError as error:
        if error.error is not ErrorCode.UNSUPPORTED_VERSION:  # older brokers have none
            raise
        return None
    return next((each for each in listed if each.group_id == group_id), None)


async def log_states(
    cluster: ConsoleCluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogState]:
    """The logs of those partitions that exist."""
    known = await cluster.snapshot()
    there = sorted(each for each in partitions if known.partition(each) is not None)
    led = [each for each in there if known.leader(each) in known.nodes]
    starts = await cluster.starts(led)
    stable = await cluster.ends(led, IsolationLevel.READ_COMMITTED)
    ends = await cluster.ends(led)  # at last, so that no stable offset is behind its end
    return {each: _log_state(known, each, starts, stable, ends) for each in there}


def _log_state(
    known: Cluster,
    partition: TopicPartition,
    *found: Mapping[TopicPartition, ListOffsetsResult | KafkaError],
) -> LogState:
    start, stable, end = (offset_of(each.get(partition)) for each in found)
    leader = known.leader(partition)
    is_live = leader in known.nodes
    return LogState(
        start, end, stable, leader if is_live else NO_LEADER, known.leader_epoch(partition)
    )


async def known_ends(
    cluster: ConsoleCluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends of the logs whose leaders say them."""
    found = await cluster.ends(partitions) if partitions else {}
    offsets = {each: offset_of(result) for each, result in found.items()}
    return {each: end for each, end in offsets.items() if end is not None}


def offset_of(found: ListOffsetsResult | KafkaError | None) -> int | None:
    """The offset of an answer of ListOffsets; None for an error."""
    return found.offset if isinstance(found, ListOffsetsResult) else None


def lag_of(committed: OffsetAndMetadata | None, end: int | None, leader_epoch: int) -> int | None:
    """The records between a committed offset and the log end; None where that is no lag.

    An offset behind the end, or of a later leader epoch than the log has, was committed to an
    earlier topic of the same name, which was deleted.
    """
    if committed is None or end is None or committed.offset > end:
        return None
    if leader_epoch != NO_EPOCH and committed.leader_epoch > leader_epoch:
        return None
    return end - committed.offset


def observations(looks: Sequence[GroupLook], rebalances: Sequence[Rebalance] = ()) -> Observations:
    """The observations of several looks at one group, the oldest first."""
    return _observations(
        looks[-1],
        looks[-1].time_ms - looks[0].time_ms,
        {each: _committed_samples(looks, each) for each in looks[-1].logs},
        {each: _end_samples(looks, each) for each in looks[-1].logs},
        rebalances,
    )


def observations_since(
    history: LagHistory, look: GroupLook, rebalances: Sequence[Rebalance]
) -> Observations:
    """The observations of the last five minutes, as the history has them, and one look now."""
    group = look.group.group_id
    committed, ends = {}, {}
    for each in look.logs:
        committed[each] = [*history.commits(group, each), *_committed_samples([look], each)]
        first_ms = committed[each][0].time_ms if committed[each] else look.time_ms
        past = [sample for sample in history.ends(each) if sample.time_ms >= first_ms]
        ends[each] = [*past, *_end_samples([look], each)]
    began_ms = min((found[0].time_ms for found in committed.values() if found), default=0)
    window_ms = look.time_ms - began_ms if began_ms else 0
    return _observations(look, window_ms, committed, ends, rebalances)


def _observations(
    look: GroupLook,
    window_ms: int,
    committed: Mapping[TopicPartition, Sequence[OffsetSample]],
    ends: Mapping[TopicPartition, Sequence[OffsetSample]],
    rebalances: Sequence[Rebalance],
) -> Observations:
    readers = look.readers
    tracks = {
        each: Track(
            committed[each], ends[each], log.start, log.stable, log.leader, readers.get(each, "")
        )
        for each, log in look.logs.items()
    }
    return Observations(
        look.group.group_id,
        look.group.state,
        window_ms,
        look.time_ms,
        look.membership.members,
        tracks,
        rebalances,
        knows_readers=not look.other_type,
    )


def _committed_samples(looks: Sequence[GroupLook], partition: TopicPartition) -> list[OffsetSample]:
    """The offsets that were committed to this log, and to no earlier one of its name."""
    return [
        OffsetSample(look.time_ms, look.committed[partition].offset)
        for look in looks
        if partition in look.committed
        and (look.lag(partition) is not None or look.logs[partition].end is None)
    ]


def _end_samples(looks: Sequence[GroupLook], partition: TopicPartition) -> list[OffsetSample]:
    return [
        OffsetSample(look.time_ms, end)
        for look in looks
        if (end := look.logs.get(partition, LogState()).end) is not None
    ]


def result_of(results: Mapping[K, V | KafkaError], key: K) -> V:
    """The result of one key; raises its error."""
    found = results[key]
    if isinstance(found, KafkaError):
        raise found
    return found
