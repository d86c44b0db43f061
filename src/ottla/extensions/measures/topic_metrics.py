"""The bytes and records produced to topics and fetched from them, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.extensions.measures.domains import SERVER
from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
)
from ottla.metrics.sensors import Meter
from ottla.replication.replica_stats import TopicStats
from ottla.runtime.scheduler import Work

if TYPE_CHECKING:
    from ottla.replication.replica_manager import ReplicaManager

NEW_IN_A_SLICE: Final = 200
"""Topics that get their meters in one step."""
TOPIC_METERS: Final[dict[str, tuple[str, str, str]]] = {
    "MessagesInPerSec": ("messages_in", "messages", "Records that were appended."),
    "BytesInPerSec": ("bytes_in", "bytes", "Bytes that were appended, without replication."),
    "BytesOutPerSec": ("bytes_out", "bytes", "Bytes sent to consumers, without replication."),
    "BytesRejectedPerSec": ("bytes_rejected", "bytes", "Bytes of batches that were too large."),
    "TotalProduceRequestsPerSec": ("produces", "requests", "Partitions produced to."),
    "TotalFetchRequestsPerSec": ("fetches", "requests", "Partitions read for fetches."),
    "FailedProduceRequestsPerSec": ("failed_produces", "requests", "Partitions that refused."),
    "FailedFetchRequestsPerSec": ("failed_fetches", "requests", "Partitions that failed."),
}
"""A metric's attribute of `TopicStats`, the event that it counts, and its text, by its name."""


class TopicMeters:
    """The meters of every topic that has a partition here, and of all topics together."""

    def __init__(self, registry: MetricsRegistry, replicas: ReplicaManager) -> None:
        self._registry = registry
        self._stats = replicas.stats
        self._total = self._stats.total()
        self._meters: dict[str, dict[str, Meter]] = {}
        self._is_adding = False
        self._of_all = self._make(lambda: self._total)
        registry.before_read(self._follow)

    def _make(self, stats: Callable[[], TopicStats]) -> dict[str, Meter]:
        return {
            name: self._registry.new_meter(partial(_number_of, stats, attribute), event_type)
            for name, (attribute, event_type, _) in TOPIC_METERS.items()
        }

    def _follow(self) -> None:
        """Have meters for the topics that are here now."""
        self._total = self._stats.total()
        for topic in [topic for topic in self._meters if topic not in self._stats.topics]:
            for meter in self._meters.pop(topic).values():
                self._registry.forget(meter)
        if not self._is_adding:
            self._registry.runtime.begin(self._add_new(), "have meters for many new topics")

    def _add_new(self) -> Work[None]:
        self._is_adding = True
        new = [topic for topic in self._stats.topics if topic not in self._meters]
        for number, topic in enumerate(new, 1):
            stats = self._stats.topics.get(topic)
            if stats is not None:
                self._meters[topic] = self._make(partial(_same, stats))
            if not number % NEW_IN_A_SLICE:
                yield
        self._is_adding = False

    def read(self, name: str) -> Series:
        yield NO_TAGS, self._of_all[name]
        for topic, meters in list(self._meters.items()):
            yield (("topic", topic),), meters[name]


def _same(stats: TopicStats) -> TopicStats:
    return stats


def _number_of(stats: Callable[[], TopicStats], attribute: str) -> int:
    return int(getattr(stats(), attribute))


def of_topics(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """The writes and reads of topics, for each and for all together."""
    meters = TopicMeters(registry, replicas)
    for name, (_, _, doc) in TOPIC_METERS.items():
        family = FamilyName(SERVER, "BrokerTopicMetrics", name)
        read = partial(meters.read, name)
        registry.register(Family(family, Kind.METER, doc, read, unbounded=True))
    for name, read_count, doc in (
        (
            "ReplicationBytesInPerSec",
            lambda: sum(copied.bytes for copied in replicas.fetchers.copied.values()),
            "Bytes that this broker's followers have copied.",
        ),
        (
            "ReplicationBytesOutPerSec",
            lambda: replicas.stats.replication_bytes_out,
            "Bytes sent to followers on other brokers.",
        ),
    ):
        registry.meter(FamilyName(SERVER, "BrokerTopicMetrics", name), doc, read_count, "bytes")
