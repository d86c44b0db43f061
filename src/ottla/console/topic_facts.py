"""Facts about a few topics: their records, bytes and main settings, by few requests for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from ottla.console.formats import three_digits
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.structs import MS_PER_HOUR, MS_PER_MINUTE, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.metadata import TopicInfo
    from ottla.clients.topic_offsets import ListOffsetsResult
    from ottla.console.console_cluster import ConsoleCluster

SHOWN_SETTINGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
FRESH_MS: Final = 60_000
MOST_KNOWN: Final = 5_000
DAY_MS: Final = 86_400_000


class TopicFacts(NamedTuple):
    """The numbers of a topic; None for those that could not be found out."""

    records: int | None
    """Offsets from the starts to the ends of its logs: no less than there are records."""
    bytes: int | None
    """On the leaders' disks."""
    policy: str
    retention: str


class SlowFacts:
    """Sizes and settings of topics, asked for again after a minute; those asked for last are kept.

    They are few requests, but long answers, and change slowly.
    """

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[int, int | None, dict[str, str | None]]] = {}

    async def of(self, infos: Sequence[TopicInfo]) -> None:
        """Ask for what is not known of these topics."""
        now_ms = self._cluster.runtime.clock.monotonic_ms()
        old_ms = now_ms - FRESH_MS
        asked = [each for each in infos if self._known.get(each.name, (-FRESH_MS,))[0] <= old_ms]
        if not asked:
            return
        sizes, settings = await asyncio.gather(
            partition_sizes(self._cluster, asked),
            main_settings(self._cluster, [each.name for each in asked]),
        )
        for info in asked:
            self._known.pop(info.name, None)
            self._known[info.name] = (now_ms, _bytes(info, sizes), settings.get(info.name, {}))
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def bytes(self, topic: str) -> int | None:
        """The bytes on the leaders' disks; None where they are not known."""
        return self._known[topic][1] if topic in self._known else None

    def settings(self, topic: str) -> dict[str, str | None]:
        """The settings that a list shows; none where they are not known."""
        return self._known[topic][2] if topic in self._known else {}


async def topic_facts(
    cluster: ConsoleCluster, topics: Iterable[TopicInfo]
) -> dict[str, TopicFacts]:
    """The facts of a few topics, by name: four kinds of requests, at the same time."""
    infos = list(topics)
    led = [TopicPartition(info.name, each) for info in infos for each in info.available]
    slow = cluster.part(SlowFacts)
    starts, ends, _ = await asyncio.gather(cluster.starts(led), cluster.ends(led), slow.of(infos))
    return {
        info.name: TopicFacts(
            _records(info, starts, ends),
            slow.bytes(info.name),
            slow.settings(info.name).get("cleanup.policy") or "",
            retention_text(slow.settings(info.name)),
        )
        for info in infos
    }


def _records(
    info: TopicInfo,
    starts: Mapping[TopicPartition, ListOffsetsResult | KafkaError],
    ends: Mapping[TopicPartition, ListOffsetsResult | KafkaError],
) -> int | None:
    total = 0
    for each in info.partitions:
        start = starts.get(TopicPartition(info.name, each))
        end = ends.get(TopicPartition(info.name, each))
        if start is None or end is None:
            return None
        if isinstance(start, KafkaError) or isinstance(end, KafkaError):
            return None
        total += end.offset - start.offset
    return total


def _bytes(info: TopicInfo, sizes: Mapping[tuple[TopicPartition, int], int]) -> int | None:
    led = [(TopicPartition(info.name, p.partition), p.leader) for p in info.partitions.values()]
    known = [sizes[each] for each in led if each in sizes]
    return sum(known) if len(known) == len(led) else None


async def partition_sizes(
    cluster: ConsoleCluster, topics: Iterable[TopicInfo]
) -> dict[tuple[TopicPartition, int], int]:
    """Bytes of the replicas of these topics by partition and broker: one request to each broker.

    Those of brokers that cannot be asked are left out.
    """
    infos = list(topics)
    brokers = {each for info in infos for p in info.partitions.values() for each in p.replicas}
    alive = brokers & cluster.all_topics.cluster.nodes.keys()
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=i.name, partitions=list(i.partitions)) for i in infos]
    )
    asked = [_sizes_on(cluster, broker, request) for broker in sorted(alive)] if infos else []
    found: dict[tuple[TopicPartition, int], int] = {}
    for answer in await asyncio.gather(*asked):
        found |= answer
    return found


async def _sizes_on(
    cluster: ConsoleCluster, broker: int, request: DescribeLogDirsRequest
) -> dict[tuple[TopicPartition, int], int]:
    try:
        answer = cast("DescribeLogDirsResponse", await cluster.client.send(broker, request))
    except KafkaError:
        return {}
    return {
        (TopicPartition(topic.name, each.partition_index), broker): each.partition_size
        for result in answer.results
        for topic in result.topics
        for each in topic.partitions
        if not each.is_future_key
    }


async def main_settings(
    cluster: ConsoleCluster, topics: Iterable[str]
) -> dict[str, dict[str, str | None]]:
    """The settings of topics that a list shows; topics that may not be described are left out."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name=each,
                configuration_keys=list(SHOWN_SETTINGS),
            )
            for each in topics
        ]
    )
    if not request.resources:
        return {}
    try:
        answer = await cluster.admin.any_broker(request, cluster.admin.deadline())
    except KafkaError:
        return {}
    results = cast("DescribeConfigsResponse", answer).results
    return {
        each.resource_name: {config.name: config.value for config in each.configs}
        for each in results
        if each.error_code == ErrorCode.NONE
    }


def retention_text(settings: Mapping[str, str | None]) -> str:
    """How long records are kept, in words."""
    if not settings or "delete" not in (settings.get("cleanup.policy") or "delete"):
        return "newest of each key" if settings else ""
    parts = []
    for name, unit in (("retention.ms", _time_words), ("retention.bytes", _size_words)):
        value = settings.get(name)
        if value and value.lstrip("-").isdigit() and int(value) >= 0:
            parts.append(unit(int(value)))
    return " or ".join(parts) or "for ever"


def _time_words(ms: int) -> str:
    for unit, length in (("day", DAY_MS), ("hour", MS_PER_HOUR), ("minute", MS_PER_MINUTE)):
        if ms >= length and ms % length == 0:
            return f"{ms // length} {unit}{'' if ms == length else 's'}"
    return f"{ms / 1000:g} s" if ms < 1_000_000 else f"{ms // 1000:,} s"


def _size_words(size: int) -> str:
    for unit, length in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= length:
            return f"{three_digits(size / length)} {unit} a partition"
    return f"{size} B a partition"
