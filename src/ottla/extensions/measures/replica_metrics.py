"""Partitions, their replicas and fetchers, and requests that wait for them, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.extensions.measures.domains import LOG, SERVER
from ottla.metrics.metrics_registry import Family, FamilyName, Kind, MetricsRegistry, Series, Tags
from ottla.metrics.sensors import Meter
from ottla.metrics.sums import summed
from ottla.replication.partition import Partition
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.replication.delayed_operations import DelayedOperations
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.server.fetch_session import FetchSessionCache


def partition_tags(topic_partition: TopicPartition) -> Tags:
    return ("partition", str(topic_partition.partition)), ("topic", topic_partition.topic)


def is_under_replicated(partition: Partition) -> bool:
    """Whether this broker leads it and not all replicas are in sync."""
    leadership = partition.leadership
    return leadership is not None and len(leadership.in_sync.committed) < len(partition.replicas)


def is_under_min_isr(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.in_sync.committed) < leadership.min_isr


def is_at_min_isr(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.in_sync.committed) == leadership.min_isr


def of_replicas(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """The partitions of this broker as numbers, and how their in-sync replicas change."""
    partitions = replicas.partitions

    def gauge(name: str, doc: str, read: Callable[[], int]) -> None:
        registry.gauge(FamilyName(SERVER, "ReplicaManager", name), doc, read)

    def added_up(name: str, doc: str, value: Callable[[Partition], int]) -> None:
        family = FamilyName(SERVER, "ReplicaManager", name)
        registry.register(
            Family(family, Kind.GAUGE, doc, lambda: summed(partitions.values(), value))
        )

    def counted(name: str, doc: str, holds: Callable[[Partition], bool]) -> None:
        added_up(name, doc, lambda each: int(holds(each)))

    counted(
        "UnderReplicatedPartitions",
        "Partitions led here of which not all replicas are in sync.",
        is_under_replicated,
    )
    counted(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
        is_under_min_isr,
    )
    counted(
        "AtMinIsrPartitionCount",
        "Partitions led here with just min.insync.replicas in sync.",
        is_at_min_isr,
    )
    counted("LeaderCount", "Partitions that this broker leads.", attrgetter("is_leader"))
    gauge("PartitionCount", "Replicas on this broker.", lambda: len(partitions))
    gauge(
        "OfflineReplicaCount",
        "Replicas in log directories that have failed.",
        lambda: len(replicas.offline_partitions),
    )
    added_up(
        "ProducerIdCount",
        "Producers that the partitions of this broker remember.",
        lambda each: len(each.log.producer_state_manager.producers),
    )
    _of_in_sync_replicas(registry, replicas)


def _of_in_sync_replicas(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """The changes of in-sync replicas."""
    stats = replicas.stats
    for name, read, doc in (
        ("IsrShrinksPerSec", lambda: stats.isr_shrinks, "In-sync replicas became fewer."),
        ("IsrExpandsPerSec", lambda: stats.isr_expands, "In-sync replicas became more."),
        (
            "FailedIsrUpdatesPerSec",
            lambda: stats.failed_isr_updates,
            "Changes of in-sync replicas that the controller refused.",
        ),
    ):
        registry.meter(FamilyName(SERVER, "ReplicaManager", name), doc, read)


def of_partitions(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """Each partition and its log. A leader's figures are 0 on other brokers, as in Kafka."""

    def gauges(name: FamilyName, doc: str, read: Callable[[Partition], int]) -> None:
        def series() -> Series:
            for partition in list(replicas.partitions.values()):
                yield partition_tags(partition.topic_partition), read(partition)

        registry.gauges(name, doc, series)

    partition_gauges: dict[str, tuple[str, Callable[[Partition], int]]] = {
        "UnderReplicated": ("Whether not all replicas are in sync.", is_under_replicated),
        "UnderMinIsr": ("Whether fewer are in sync than must be.", is_under_min_isr),
        "AtMinIsr": ("Whether just as many are in sync as must be.", is_at_min_isr),
        "InSyncReplicasCount": (
            "How many replicas are in sync.",
            lambda each: 0 if each.leadership is None else len(each.leadership.in_sync.committed),
        ),
        "ReplicasCount": (
            "How many replicas there are.",
            lambda each: len(each.replicas) if each.is_leader else 0,
        ),
        "LastStableOffsetLag": (
            "Offsets between the first open transaction and the high watermark.",
            lambda each: each.high_watermark - each.last_stable_offset,
        ),
    }
    log_gauges: dict[str, tuple[str, Callable[[Partition], int]]] = {
        "Size": ("The bytes of the log.", lambda each: each.log.size_in_bytes),
        "LogStartOffset": ("The first offset.", lambda each: each.log.log_start_offset),
        "LogEndOffset": ("The offset after the last.", lambda each: each.log.log_end_offset),
        "NumLogSegments": ("The segments of the log.", lambda each: len(each.log.segments.items)),
    }
    for name, (doc, read) in partition_gauges.items():
        gauges(FamilyName("kafka.cluster", "Partition", name), doc, read)
    for name, (doc, read) in log_gauges.items():
        gauges(FamilyName(LOG, "Log", name), doc, read)


def of_fetchers(registry: MetricsRegistry, replicas: ReplicaManager, has_partitions: bool) -> None:
    """The lag of the followers of this broker, and the bytes that they copy."""
    fetchers = replicas.fetchers
    client = ("clientId", "Replica")

    def max_lag() -> int:
        lags = (each.lag for each in fetchers.followers())
        return max((lag for lag in lags if lag is not None), default=0)

    def lags() -> Series:
        for follower in list(fetchers.followers()):
            if follower.lag is not None:
                tags = (client, *partition_tags(follower.topic_partition))
                yield tags, follower.lag

    registry.register(
        Family(
            FamilyName(SERVER, "ReplicaFetcherManager", "MaxLag"),
            Kind.GAUGE,
            "The largest lag of a partition that this broker follows, in records.",
            lambda: (((client,), max_lag()),),
        )
    )
    registry.register(
        Family(
            FamilyName(SERVER, "ReplicaFetcherManager", "FailedPartitionsCount"),
            Kind.GAUGE,
            "Partitions that this broker follows and whose last fetch has failed.",
            lambda: (((client,), sum(each.failure_count > 0 for each in fetchers.followers())),),
        )
    )
    if has_partitions:
        registry.gauges(
            FamilyName(SERVER, "FetcherLagMetrics", "ConsumerLag"),
            "Records between the end of a followed partition and its leader's high watermark.",
            lags,
        )
    _of_copied_bytes(registry, replicas)


def _of_copied_bytes(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """The fetches from each leader, and the bytes that came."""
    fetchers = replicas.fetchers
    meters: dict[tuple[str, str], tuple[Tags, Meter]] = {}

    def copied(attribute: str, event_type: str) -> Series:
        for leader, numbers in list(fetchers.copied.items()):
            key = attribute, str(leader)
            if key not in meters:
                tags = (("brokerHost", leader.host), ("brokerPort", str(leader.port)))
                read = partial(getattr, numbers, attribute)
                client_id = ("clientId", f"ReplicaFetcherThread-0-{leader.id}")
                meters[key] = (client_id, *tags), registry.new_meter(read, event_type)
            yield meters[key]

    for name, attribute, doc in (
        ("RequestsPerSec", "requests", "Fetches that were sent to a leader."),
        ("BytesPerSec", "bytes", "Bytes that were copied from a leader."),
    ):
        family = FamilyName(SERVER, "FetcherStats", name)
        series = partial(copied, attribute, attribute)
        registry.register(Family(family, Kind.METER, doc, series))


def of_purgatories(registry: MetricsRegistry, delayed: DelayedOperations) -> None:
    """Requests that wait, and how many were answered because their time was over."""
    purgatories = {
        "Produce": (delayed.produces,),
        "Fetch": (delayed.fetches, delayed.follower_fetches),
        "DeleteRecords": (delayed.delete_records,),
    }

    def sums(attribute: str) -> Series:
        for name, each in purgatories.items():
            count = sum(getattr(purgatory, attribute) for purgatory in each)
            yield (("delayedOperation", name),), count

    for name, attribute, doc in (
        ("PurgatorySize", "watched", "Entries in the lists of the keys that are watched."),
        ("NumDelayedOperations", "delayed", "Requests that wait."),
    ):
        family = FamilyName(SERVER, "DelayedOperationPurgatory", name)
        registry.register(Family(family, Kind.GAUGE, doc, partial(sums, attribute)))
    fetchers = {"consumer": delayed.fetches, "follower": delayed.follower_fetches}
    meters = {
        kind: registry.new_meter(partial(getattr, purgatory, "expired"), "requests")
        for kind, purgatory in fetchers.items()
    }
    registry.register(
        Family(
            FamilyName(SERVER, "DelayedFetchMetrics", "ExpiresPerSec"),
            Kind.METER,
            "Fetches that were answered because their time was over.",
            lambda: [((("fetcherType", kind),), meter) for kind, meter in meters.items()],
        )
    )
    for type_name, purgatory in (
        ("DelayedProduceMetrics", delayed.produces),
        ("DelayedDeleteRecordsMetrics", delayed.delete_records),
    ):
        registry.meter(
            FamilyName(SERVER, type_name, "ExpiresPerSec"),
            "Requests that were answered because their time was over.",
            partial(getattr, purgatory, "expired"),
            "requests",
        )


def of_fetch_sessions(registry: MetricsRegistry, sessions: FetchSessionCache) -> None:
    """Incremental fetch sessions (KIP-227)."""
    registry.gauge(
        FamilyName(SERVER, "FetchSessionCache", "NumIncrementalFetchSessions"),
        "Fetch sessions that are kept.",
        lambda: len(sessions),
    )
    registry.gauge(
        FamilyName(SERVER, "FetchSessionCache", "NumIncrementalFetchPartitionsCached"),
        "Partitions in the fetch sessions.",
        lambda: sessions.partition_count,
    )
    registry.meter(
        FamilyName(SERVER, "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec"),
        "Fetch sessions that had to make room.",
        lambda: sessions.evicted,
        "evictions",
    )
