"""How far groups lag behind, in records and seconds, from the coordinator itself.

The coordinator knows what its groups have committed. It knows the ends of the partitions that this
broker leads, and asks other leaders for theirs every few seconds. How old the first record is that
a group has not committed follows from when the ends were seen to pass it: exact to one interval,
and no log is read for it.

Wing: attaches to `coordinators`, for metrics; the core works without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.metrics_registry import FamilyName, MetricsRegistry, Series, Tags
from ottla.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    Node,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group
    from ottla.server.broker_connections import BrokerConnections
    from ottla.server.parts import Parts

logger = logging.getLogger(__name__)

DOMAIN: Final = "kafka"
GROUP_TYPE: Final = "consumergroup"
REMOTE_INTERVAL_MS: Final = 10_000
MAX_MARKS: Final = 32


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
        self._remote_at_ms = 0
        self._is_asking = False
        registry.on_tick(self.follow)
        registry.before_read(lambda: self._note_own(self._wanted()))
        self._register(registry)

    # -- where partitions end

    def follow(self) -> None:
        """Forget partitions without committed offsets; ask others for their ends now and then.

        The ends of its own partitions are noted before each tick, as before each reading.
        """
        wanted = self._wanted()
        for gone in self._histories.keys() - wanted:
            del self._histories[gone]
        now_ms = self._runtime.clock.monotonic_ms()
        if self._connections is None or self._is_asking or now_ms < self._remote_at_ms:
            return
        self._remote_at_ms = now_ms + REMOTE_INTERVAL_MS
        remote = [tp for tp in wanted if not self._is_led_here(tp)]
        if remote:
            self._is_asking = True
            asking = self._ask_leaders(self._connections, remote)
            self._runtime.scheduler.spawn(asking, "ask for the ends of partitions")

    def _wanted(self) -> set[TopicPartition]:
        return {
            tp
            for group in self._groups.groups()
            for tp in group.offsets.current(self._cache.is_deleted)
        }

    def _is_led_here(self, topic_partition: TopicPartition) -> bool:
        partition = self._partitions.get(topic_partition)
        return partition is not None and partition.is_leader

    def _note_own(self, wanted: Iterable[TopicPartition]) -> None:
        """What consumers may read ends at the high watermark."""
        now_ms = self._runtime.clock.monotonic_ms()
        for topic_partition in wanted:
            partition = self._partitions.get(topic_partition)
            if partition is not None and partition.is_leader:
                self._note(topic_partition, partition.high_watermark, now_ms)

    def _note(self, topic_partition: TopicPartition, end: int, now_ms: int) -> None:
        history = self._histories.get(topic_partition)
        if history is None:
            history = self._histories[topic_partition] = EndHistory()
        history.note(end, now_ms)

    async def _ask_leaders(
        self, connections: BrokerConnections, wanted: Iterable[TopicPartition]
    ) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic_partition in wanted:
            by_leader.setdefault(self._cache.leader(topic_partition), []).append(topic_partition)
        try:
            for leader, partitions in by_leader.items():
                try:
                    ends = await ask_ends(connections, connections.node(leader), partitions)
                except (KafkaError, OSError) as error:
                    logger.debug("ends of partitions of broker %d: %s", leader, error)
                    continue
                now_ms = self._runtime.clock.monotonic_ms()
                for topic_partition, end in ends.items():
                    self._note(topic_partition, end, now_ms)
        finally:
            self._is_asking = False

    # -- reading

    def read(self) -> Iterator[PartitionLag]:
        """Every committed offset whose partition's end is known."""
        now_ms = self._runtime.clock.monotonic_ms()
        for group in list(self._groups.groups()):
            for topic_partition, committed in group.offsets.current(self._cache.is_deleted).items():
                history = self._histories.get(topic_partition)
                if history is not None:
                    lag = max(0, history.end - committed.offset)
                    age_ms = history.age_ms(committed.offset, now_ms)
                    yield PartitionLag(
                        group.group_id, topic_partition, committed.offset, lag, age_ms
                    )

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
            yield lag_tags(each.group_id, each.topic_partition), value(each)

    def _offsets(self) -> Series:
        for group in list(self._groups.groups()):
            for topic_partition, committed in group.offsets.current(self._cache.is_deleted).items():
                yield lag_tags(group.group_id, topic_partition), committed.offset

    def _sums(self) -> Series:
        sums: dict[tuple[str, str], int] = {}
        for each in self.read():
            key = each.group_id, each.topic_partition.topic
            sums[key] = sums.get(key, 0) + each.lag
        for (group_id, topic), lag in sums.items():
            yield (("consumergroup", group_id), ("topic", topic)), lag

    def _members(self) -> Series:
        for group in list(self._groups.groups()):
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
