"""How far groups lag behind, in records and seconds, from the coordinator itself.

The coordinator knows its groups' commits. It knows the ends of the partitions that this
broker leads, and asks other leaders for theirs every few seconds. How old the first record is that
a group has not committed follows from when the ends were seen to pass it: exact to one interval,
and no log is read for it.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.metrics_registry import FamilyName, MetricsRegistry, Series, Tags
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.runtime.scheduler import emptied
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NamedTuple,
    Node,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.coordinator.group.group import Group
    from ottla.server.broker_connections import BrokerConnections
    from ottla.server.parts import Parts

logger = logging.getLogger(__name__)

DOMAIN: Final = "kafka"
GROUP_TYPE: Final = "consumergroup"
REMOTE_INTERVAL_MS: Final = 10_000
MAX_MARKS: Final = 32
OFFSETS_IN_A_SLICE: Final = 1000
PIECES_IN_A_SLICE: Final = 20
"""The pieces may be of offsets that count for nothing, as their topics were deleted."""
ENDS_AT_ONCE: Final = 5000
"""A request may name 25,000 elements."""
LARGE_GROUP: Final = 5000


class EndHistory:
    """Where a partition ended at which time: at most `MAX_MARKS` marks, most of them recent."""

    __slots__ = ("marks",)

    def __init__(self) -> None:
        self.marks: list[tuple[int, int]] = []

    def note(self, end: int, now_ms: int) -> None:
        """The end is here now; a log that was cut back begins a new history."""
        marks = self.marks
        if marks and end < marks[-1][1]:
            marks.clear()
        if len(marks) >= 2 and marks[-1][1] == marks[-2][1] == end:
            marks[-1] = (now_ms, end)  # nothing came: the moment moves on
            return
        marks.append((now_ms, end))
        if len(marks) > MAX_MARKS:
            half = len(marks) // 2
            del marks[1:half:2]

    @property
    def end(self) -> int:
        return self.marks[-1][1]

    def age_ms(self, offset: int, now_ms: int) -> int:
        """How long ago the record at `offset` came; 0 if it has not come."""
        marks = self.marks
        if offset >= self.end:
            return 0
        later_ms, later_end = marks[0]
        if offset < later_end:
            return now_ms - later_ms  # at least: it was there before the first mark
        for time_ms, end in marks:
            if end > offset:
                share = (offset - later_end) / (end - later_end)
                return now_ms - round(later_ms + share * (time_ms - later_ms))
            later_ms, later_end = time_ms, end
        return 0


class PartitionLag(NamedTuple):
    """One partition of one group."""

    group_id: str
    topic_partition: TopicPartition
    offset: int
    lag: int
    age_ms: int


class Committed(NamedTuple):
    """An offset that a group has committed, and whether the group has very many."""

    group_id: str
    topic_partition: TopicPartition
    offset: int
    is_large: bool


class ConsumerLag:
    """The lag of the groups that this broker coordinates.

    A partition without a committed offset, or whose end is not known, has no lag: not 0.
    """

    def __init__(self, parts: Parts, registry: MetricsRegistry) -> None:
        self._runtime = parts.runtime
        self._groups = parts.coordinators.groups.manager
        self._partitions = parts.replica_manager.partitions
        self._cache = parts.cache
        self._connections = None if parts.link is None else parts.link.connections
        self._histories: dict[TopicPartition, EndHistory] = {}
        self._large_sums: dict[str, dict[str, int]] = {}
        """The lag of groups with very many offsets by topic, as it was when they were followed."""
        self._remote_at_ms = 0
        self._is_asking = self._is_following = False
        registry.on_tick(self.follow)
        self._register(registry)

    def follow(self) -> None:
        """Begin to look at all committed offsets, unless that is under way."""
        if not self._is_following:
            self._is_following = True
            self._runtime.scheduler.spawn(self._follow(), "follow consumer lag")

    async def _follow(self) -> None:
        """Forget partitions without committed offsets; ask others for their ends now and then."""
        wanted: dict[TopicPartition, None] = {}
        sums: dict[str, dict[str, int]] = {}
        slices, pieces = self._runtime.slices, 0
        try:
            async for each in slices.over(self.committed(), OFFSETS_IN_A_SLICE):
                if each is None:
                    pieces += 1
                    if not pieces % PIECES_IN_A_SLICE:
                        await slices.pause()
                    continue
                wanted[each.topic_partition] = None
                known = self._lag_of(each)
                if known is not None and each.is_large:
                    of_group = sums.setdefault(each.group_id, {})
                    topic = each.topic_partition.topic
                    of_group[topic] = of_group.get(topic, 0) + known.lag
            async for before in slices.over(list(self._histories), OFFSETS_IN_A_SLICE):
                if before not in wanted:
                    self._histories.pop(before, None)
        finally:
            self._is_following = False
        self._large_sums = sums
        now_ms = self._runtime.clock.monotonic_ms()
        if self._connections is None or self._is_asking or now_ms < self._remote_at_ms:
            self._runtime.begin(emptied([wanted]), "free partitions with committed offsets")
            return
        self._remote_at_ms = now_ms + REMOTE_INTERVAL_MS
        self._is_asking = True
        asking = self._ask_leaders(self._connections, wanted)
        self._runtime.scheduler.spawn(asking, "ask for the ends of partitions")

    def committed(self) -> Iterator[Committed | None]:
        """Every committed offset; None now and then, as there may be none in many groups."""
        for group in self._groups.groups():
            yield from self._committed_by(group)

    def _committed_by(self, group: Group) -> Iterator[Committed | None]:
        """The offsets of a group, a few at a time: there may be very many, and they change."""
        known = group.offsets.known()
        is_large = len(known) > LARGE_GROUP
        for place in range(0, len(known) or 1, OFFSETS_IN_A_SLICE):
            yield None
            some = known[place : place + OFFSETS_IN_A_SLICE]
            current = group.offsets.current(self._cache.is_deleted, some)
            for topic_partition, found in current.items():
                yield Committed(group.group_id, topic_partition, found.offset, is_large)

    def _is_led_here(self, topic_partition: TopicPartition) -> bool:
        partition = self._partitions.get(topic_partition)
        return partition is not None and partition.is_leader

    def _note_own(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """The part for consumers ends at the high watermark."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.is_leader:
            self._note(topic_partition, partition.high_watermark, now_ms)

    def _note(self, topic_partition: TopicPartition, end: int, now_ms: int) -> None:
        history = self._histories.get(topic_partition)
        if history is None:
            history = self._histories[topic_partition] = EndHistory()
        history.note(end, now_ms)

    async def _ask_leaders(
        self, connections: BrokerConnections, wanted: dict[TopicPartition, None]
    ) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        try:
            async for each in self._runtime.slices.over(wanted, OFFSETS_IN_A_SLICE):
                if not self._is_led_here(each):
                    by_leader.setdefault(self._cache.leader(each), []).append(each)
            for leader, partitions in by_leader.items():
                for place in range(0, len(partitions), ENDS_AT_ONCE):
                    some = partitions[place : place + ENDS_AT_ONCE]
                    await self._ask_leader(connections, leader, some)
        finally:
            self._is_asking = False
            self._runtime.begin(emptied([wanted]), "free partitions with committed offsets")

    async def _ask_leader(
        self, connections: BrokerConnections, leader: int, partitions: list[TopicPartition]
    ) -> None:
        try:
            ends = await ask_ends(connections, connections.node(leader), partitions)
        except (KafkaError, OSError) as error:
            logger.debug("ends of partitions of broker %d: %s", leader, error)
            return
        now_ms = self._runtime.clock.monotonic_ms()
        for topic_partition, end in ends.items():
            self._note(topic_partition, end, now_ms)

    def read(self) -> Iterator[PartitionLag | None]:
        """Every committed offset whose partition's end is known; None for each of the others."""
        return map(self._lag_of, self.committed())

    def _lag_of(self, each: Committed | None) -> PartitionLag | None:
        if each is None:
            return None
        topic_partition, now_ms = each.topic_partition, self._runtime.clock.monotonic_ms()
        self._note_own(topic_partition, now_ms)
        history = self._histories.get(topic_partition)
        if history is None:
            return None
        lag, age_ms = max(0, history.end - each.offset), history.age_ms(each.offset, now_ms)
        return PartitionLag(each.group_id, topic_partition, each.offset, lag, age_ms)

    def _register(self, registry: MetricsRegistry) -> None:
        lag = partial(self._series, lambda each: each.lag)
        lag_s = partial(self._series, lambda each: each.age_ms / 1000)
        for name, doc, series in (
            ("lag", "Records that a group has not committed.", lag),
            (
                "lag_seconds",
                "How long ago the first record came that a group has not committed.",
                lag_s,
            ),
            ("current_offset", "The offset that a group has committed.", self._offsets),
            ("lag_sum", "Records of a topic that a group has not committed.", self._sums),
            ("members", "The members of a group.", self._members),
        ):
            registry.gauges(FamilyName(DOMAIN, GROUP_TYPE, name), doc, series)

    def _series(self, value: Callable[[PartitionLag], float]) -> Series:
        for each in self.read():
            yield each and (lag_tags(each.group_id, each.topic_partition), value(each))

    def _offsets(self) -> Series:
        for each in self.committed():
            yield each and (lag_tags(each.group_id, each.topic_partition), each.offset)

    def _sums(self) -> Series:
        """The sums of all groups; a large one has those of the last look, as a step adds up few."""
        for group in self._groups.groups():
            sums = self._large_sums.get(group.group_id)
            if sums is None:
                sums = {}
                pauses = LARGE_GROUP // OFFSETS_IN_A_SLICE
                for each in islice(self._committed_by(group), LARGE_GROUP + pauses):
                    found = self._lag_of(each)
                    if found is not None:
                        topic = found.topic_partition.topic
                        sums[topic] = sums.get(topic, 0) + found.lag
                    yield None
            for topic, lag in sums.items():
                yield (("consumergroup", group.group_id), ("topic", topic)), lag

    def _members(self) -> Series:
        for group in self._groups.groups():
            yield (("consumergroup", group.group_id),), member_count(group)


def member_count(group: Group) -> int:
    """How many members a group of either protocol has."""
    members: Mapping[str, object] = getattr(group, "members", {})
    return len(members)


def lag_tags(group_id: str, topic_partition: TopicPartition) -> Tags:
    topic, partition = topic_partition
    return ("consumergroup", group_id), ("partition", str(partition)), ("topic", topic)


async def ask_ends(
    connections: BrokerConnections, leader: Node, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The high watermarks of partitions that another broker leads, as it says."""
    # Only here: a single broker saves the time and the memory.
    from ottla.server.broker_connections import Purpose

    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=NO_EPOCH,
                    timestamp=LATEST_TIMESTAMP,
                )
                for index in wanted
            ],
        )
        for topic, wanted in by_topic(partitions).items()
    ]
    request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics)
    response = await connections.ask(leader, Purpose.OFFSETS, request, low=1)
    assert isinstance(response, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }
