"""The metrics of a broker, under Kafka's names: which there are, and what they are read from.

Each part of the broker has a function here that registers its families. Most are read when they
are asked for, from the state that the broker has anyway; what only grows is counted by the parts as
plain numbers. There is no metric here that would always show the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ottla.extensions.measures.consumer_lag import ConsumerLag
from ottla.extensions.measures.log_metrics import of_log_dirs, of_open_transactions
from ottla.extensions.measures.login_metrics import LoginRates, of_logins
from ottla.extensions.measures.request_metrics import RequestMetrics
from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Attributes,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
    Tags,
)
from ottla.metrics.sensors import Meter, WindowedRate
from ottla.network.processor import Processor, Traffic
from ottla.registry.tree import Registry, SessionState
from ottla.replication.partition import Partition
from ottla.replication.replica_requests import TopicStats
from ottla.runtime import Clock, Disk
from ottla.runtime.scheduler import BusyTime
from ottla.structs import TopicPartition
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.controller.controller import Controller
    from ottla.controller.controller_context import ControllerContext
    from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
    from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from ottla.replication.replica_manager import DelayedOperations, ReplicaManager
    from ottla.server.fetch_session import FetchSessionCache
    from ottla.server.parts import Parts

SERVER: Final = "kafka.server"
NETWORK: Final = "kafka.network"
CONTROLLER: Final = "kafka.controller"
LOG: Final = "kafka.log"
PROCESSOR_TAGS: Final[Tags] = (("networkProcessor", "0"),)
"""A broker of Ottla has one processor."""


def partition_tags(topic_partition: TopicPartition) -> Tags:
    return ("partition", str(topic_partition.partition)), ("topic", topic_partition.topic)


class BrokerMetrics:
    """Everything that one broker measures; it is made when all parts of the broker are there."""

    def __init__(self, parts: Parts, registry: MetricsRegistry) -> None:
        self._parts = parts
        processor = parts.processor
        self.requests = RequestMetrics(registry, processor.sent)
        parts.apis.meter = self.requests
        processor.sent.on_sent = self.requests.on_sent
        replicas = parts.replica_manager
        of_topics(registry, replicas)
        of_replicas(registry, replicas)
        if parts.config.metrics_partitions_enable:
            of_partitions(registry, replicas)
        of_fetchers(registry, replicas, parts.config.metrics_partitions_enable)
        of_log_dirs(registry, parts.log_manager)
        of_purgatories(registry, replicas.delayed)
        of_fetch_sessions(registry, parts.fetch_sessions)
        of_controller(registry, parts.controller)
        of_groups(registry, parts.coordinators.groups.manager)
        of_transactions(registry, parts.coordinators.transactions)
        verifier, longest_ms = parts.coordinators.verifier, parts.config.transaction_max_timeout_ms
        of_open_transactions(registry, replicas, verifier, longest_ms)
        self.lag = ConsumerLag(parts, registry)
        of_processor(registry, processor)
        of_logins(registry, lambda: iter(processor.sasl.values()))
        of_certificates(registry, processor, parts.runtime.clock)
        for extension in parts.extensions.values():
            extension.measure(registry)
        of_loop(registry)
        if parts.config.zookeeper_connect is not None:
            of_session(registry, parts.registry)
        of_server(registry, parts)

    def close(self) -> None:
        """Measure nothing any longer."""
        self._parts.apis.meter = None
        self._parts.processor.sent.on_sent = None


# Topics


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
"""By name: the attribute of `TopicStats`, the event that is counted, and what it is."""


class TopicMeters:
    """The meters of every topic that has a partition here, and of all topics together."""

    def __init__(self, registry: MetricsRegistry, replicas: ReplicaManager) -> None:
        self._registry = registry
        self._stats = replicas.stats
        self._total = self._stats.total()
        self._meters: dict[str, dict[str, Meter]] = {}
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
        for topic, stats in self._stats.topics.items():
            if topic not in self._meters:
                self._meters[topic] = self._make(partial(_same, stats))

    def read(self, name: str) -> Series:
        yield NO_TAGS, self._of_all[name]
        for topic, meters in list(self._meters.items()):
            yield (("topic", topic),), meters[name]


def _same(stats: TopicStats) -> TopicStats:
    return stats


def _number_of(stats: Callable[[], TopicStats], attribute: str) -> int:
    return int(getattr(stats(), attribute))


def of_topics(registry: MetricsRegistry, replicas: ReplicaManager) -> None:
    """What is written to topics and read of them, for each and for all together."""
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


# Replicas


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

    def counted(name: str, doc: str, holds: Callable[[Partition], bool]) -> None:
        gauge(name, doc, lambda: sum(map(holds, partitions.values())))

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
    gauge(
        "ProducerIdCount",
        "Producers that the partitions of this broker remember.",
        lambda: sum(len(each.log.producer_state_manager.producers) for each in partitions.values()),
    )
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
    """Each partition and its log. What only a leader knows is 0 on other brokers, as in Kafka."""

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
    """How far the followers of this broker lag, and what they copy."""
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


# The controller


class ControllerState:
    """What the controller is doing, as the number that Kafka has for it."""

    IDLE = 0
    CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    REASSIGNMENT = 5
    AUTO_BALANCE = 6
    MANUAL_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_ELECTION = 13
    LIST_REASSIGNMENT = 15


STATE_WORDS: Final[tuple[tuple[str, int], ...]] = (
    ("unclean election", ControllerState.UNCLEAN_ELECTION),
    ("preferred_replica_election", ControllerState.MANUAL_BALANCE),
    ("elect leaders", ControllerState.MANUAL_BALANCE),
    ("election", ControllerState.CHANGE),
    ("/brokers/ids", ControllerState.BROKER_CHANGE),
    ("log dir failure", ControllerState.LOG_DIR_CHANGE),
    ("log_dir_event", ControllerState.LOG_DIR_CHANGE),
    ("delete", ControllerState.TOPIC_DELETION),
    ("StopReplica", ControllerState.TOPIC_DELETION),
    ("LeaderAndIsr", ControllerState.LEADER_AND_ISR_RESPONSE),
    ("alter partitions", ControllerState.ISR_CHANGE),
    ("controlled shutdown", ControllerState.CONTROLLED_SHUTDOWN),
    ("list reassignments", ControllerState.LIST_REASSIGNMENT),
    ("reassign", ControllerState.REASSIGNMENT),
    ("leader rebalance", ControllerState.AUTO_BALANCE),
    ("topic", ControllerState.TOPIC_CHANGE),
    ("partitions", ControllerState.TOPIC_CHANGE),
)
"""The first word that is in the name of an event says what the controller does in it."""

EVENT_TIMERS: Final[dict[int, str]] = {
    ControllerState.CHANGE: "ControllerChange",
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.TOPIC_CHANGE: "TopicChange",
    ControllerState.TOPIC_DELETION: "TopicDeletion",
    ControllerState.REASSIGNMENT: "PartitionReassignment",
    ControllerState.AUTO_BALANCE: "AutoLeaderBalance",
    ControllerState.MANUAL_BALANCE: "ManualLeaderBalance",
    ControllerState.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    ControllerState.ISR_CHANGE: "IsrChange",
    ControllerState.LEADER_AND_ISR_RESPONSE: "LeaderAndIsrResponseReceived",
    ControllerState.LOG_DIR_CHANGE: "LogDirChange",
    ControllerState.UNCLEAN_ELECTION: "UncleanLeaderElectionEnable",
    ControllerState.LIST_REASSIGNMENT: "ListPartitionReassignment",
}


def controller_state(event: str) -> int:
    """The state of the controller while it works on an event."""
    found = (state for word, state in STATE_WORDS if word in event)
    return next(found, ControllerState.IDLE)


def offline_partition_count(context: ControllerContext) -> int:
    """Partitions without a live leader, but for those of topics that are being deleted."""
    return sum(
        not context.has_live_leader(partition)
        for partition in context.all_partitions()
        if not context.is_to_be_deleted(partition)
    )


def imbalance_count(context: ControllerContext) -> int:
    """Partitions that another replica than the preferred one leads."""
    count = 0
    for partition in context.all_partitions():
        state = context.state(partition)
        if state is not None and not context.is_to_be_deleted(partition):
            count += state.leader != context.assignment(partition).replicas[0]
    return count


def _read_context(controller: Controller, read: Callable[[ControllerContext], int]) -> int:
    return read(controller.context)


def of_controller(registry: MetricsRegistry, controller: Controller) -> None:
    """The cluster as its controller sees it; 0 on brokers that are not the controller."""
    gauges: dict[str, tuple[str, Callable[[ControllerContext], int]]] = {
        "OfflinePartitionsCount": ("Partitions without a leader.", offline_partition_count),
        "PreferredReplicaImbalanceCount": (
            "Partitions that another replica than the preferred one leads.",
            imbalance_count,
        ),
        "GlobalTopicCount": ("Topics of the cluster.", lambda each: len(each.topics)),
        "GlobalPartitionCount": (
            "Partitions of the cluster.",
            lambda each: sum(len(topic.partitions) for topic in each.topics.values()),
        ),
        "ActiveBrokerCount": ("Brokers that are registered.", lambda each: len(each.brokers)),
        "TopicsToDeleteCount": (
            "Topics that are being deleted.",
            lambda each: len(each.topics_to_delete),
        ),
        "ReplicasToDeleteCount": (
            "Replicas of topics that are being deleted.",
            lambda each: sum(
                len(each.replicas_of(each.topics[name].partitions))
                for name in each.topics_to_delete
            ),
        ),
        "TopicsIneligibleToDeleteCount": (
            "Topics whose deletion waits for a broker or a disk that is away.",
            lambda each: len({replica.topic_partition.topic for replica in each.held_back()}),
        ),
        "ReplicasIneligibleToDeleteCount": (
            "Replicas whose deletion waits for it.",
            lambda each: len(each.held_back()),
        ),
    }
    for name, (doc, read) in gauges.items():
        family = FamilyName(CONTROLLER, "KafkaController", name)
        registry.gauge(family, doc, partial(_read_context, controller, read))
    registry.gauge(
        FamilyName(CONTROLLER, "KafkaController", "ActiveControllerCount"),
        "Whether this broker is the controller: 1 in the whole cluster.",
        lambda: int(controller.is_active),
    )
    registry.gauge(
        FamilyName(CONTROLLER, "KafkaController", "ControllerState"),
        "What the controller is doing, as Kafka's number for it; 0 is nothing.",
        lambda: controller_state(controller.events.under_way),
    )
    registry.meter(
        FamilyName(CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec"),
        "Leaders that were elected without being in sync: records may be lost.",
        lambda: controller.unclean_elections,
        "elections",
    )
    of_controller_events(registry, controller)


def of_controller_events(registry: MetricsRegistry, controller: Controller) -> None:
    """How long events of the controller wait, and how long they take."""
    events = controller.events
    registry.gauge(
        FamilyName(CONTROLLER, "ControllerEventManager", "EventQueueSize"),
        "Events that wait for the controller.",
        lambda: len(events),
    )
    waits = registry.histogram(
        FamilyName(CONTROLLER, "ControllerEventManager", "EventQueueTimeMs"),
        "How long events waited for the controller, in ms.",
    )
    timers = {
        state: registry.timer(
            FamilyName(CONTROLLER, "ControllerStats", f"{name}RateAndTimeMs"),
            "How often this was done, and how long it took, in ms.",
        )
        for state, name in EVENT_TIMERS.items()
    }

    def on_event(name: str, waited_ms: int, took_ms: int) -> None:
        waits.update(waited_ms, registry.now_ms)
        timer = timers.get(controller_state(name))
        if timer is not None:
            timer.update(took_ms, registry.now_ms)

    events.on_event = on_event


# Groups


def of_groups(registry: MetricsRegistry, manager: GroupMetadataManager) -> None:
    """The groups that this broker coordinates; consumer groups (KIP-848) count in NumGroups."""
    type_name = "GroupMetadataManager"
    domain = "kafka.coordinator.group"

    def count(state: str) -> int:
        return sum(group.state_name == state for group in manager.groups())

    registry.gauge(
        FamilyName(domain, type_name, "NumGroups"),
        "Groups that this broker coordinates.",
        lambda: sum(1 for _ in manager.groups()),
    )
    registry.gauge(
        FamilyName(domain, type_name, "NumOffsets"),
        "Offsets that groups of this broker have committed.",
        lambda: sum(len(group.offsets) for group in manager.groups()),
    )
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty"):
        registry.gauge(
            FamilyName(domain, type_name, f"NumGroups{state}"),
            f"Groups of this broker that are {state}.",
            partial(count, state),
        )

    counts = manager.counts
    rates = {
        name: WindowedRate(partial(getattr, counts, attribute), registry.now_ms)
        for name, attribute in (
            ("offset-commit", "commits"),
            ("offset-expiration", "expirations"),
            ("offset-deletion", "deletions"),
            ("group-completed-rebalance", "rebalances"),
        )
    }

    def read() -> Series:
        found = load_times(manager.partitions.last_loads_ms)
        for name, rate in rates.items():
            found[f"{name}-rate"] = rate.value(registry.now_ms)
            found[f"{name}-count"] = rate.read()
        yield NO_TAGS, found

    registry.register(
        Family(
            FamilyName(SERVER, "group-coordinator-metrics"),
            Kind.KAFKA,
            "What groups of this broker do, and how long their partitions took to load, in ms.",
            read,
        )
    )


def load_times(last_ms: Sequence[int]) -> dict[str, float]:
    """How long it took to load partitions of a coordinator's topic; NaN where none was."""
    average = sum(last_ms) / len(last_ms) if last_ms else math.nan
    largest = max(last_ms, default=math.nan)
    return {"partition-load-time-avg": average, "partition-load-time-max": largest}


def of_transactions(registry: MetricsRegistry, coordinator: TransactionCoordinator) -> None:
    """Transactions that this broker coordinates."""
    registry.register(
        Family(
            FamilyName(SERVER, "transaction-coordinator-metrics"),
            Kind.KAFKA,
            "How long partitions of transactions took to load, in ms.",
            lambda: ((NO_TAGS, load_times(coordinator.manager.partitions.last_loads_ms)),),
        )
    )
    registry.gauge(
        FamilyName(
            "kafka.coordinator.transaction",
            "TransactionMarkerChannelManager",
            "LogAppendRetryQueueSize",
        ),
        "Transactions whose markers are to be sent again; where it grows, they are stuck.",
        lambda: coordinator.markers.retry_count,
    )


# The network and the loop


class ListenerTraffic:
    """What passes over each listener, as `socket-server-metrics` has it."""

    COUNTS: Final[Mapping[str, str]] = {
        "connection-creation": "created",
        "connection-close": "closed",
        "incoming-byte": "received_bytes",
        "outgoing-byte": "sent_bytes",
        "request": "request_count",
    }

    def __init__(self, registry: MetricsRegistry, processor: Processor) -> None:
        self._registry = registry
        self._processor = processor
        self._now: dict[str, Traffic] = {}
        self._connections: dict[str, int] = {}
        self._rates: dict[str, dict[str, WindowedRate]] = {}
        self._logins = {
            name: LoginRates(listener.counts, registry.now_ms)
            for name, listener in processor.sasl.items()
        }
        registry.before_read(self._follow)

    def _follow(self) -> None:
        """Add up what has passed over closed connections and over those that are open."""
        now: dict[str, Traffic] = {}
        connections = {listener.name: 0 for listener in self._processor.listeners}
        for name, closed in self._processor.traffic.items():
            total = now[name] = Traffic()
            for attribute in Traffic.__slots__:
                setattr(total, attribute, getattr(closed, attribute))
        for connection in self._processor.connections:
            now[connection.listener_name].add(connection)
            connections[connection.listener_name] += 1
        self._now, self._connections = now, connections
        for name in now.keys() - self._rates.keys():
            self._rates[name] = {
                metric: WindowedRate(partial(self._number, name, attribute), self._registry.now_ms)
                for metric, attribute in self.COUNTS.items()
            }

    def _number(self, listener: str, attribute: str) -> int:
        return int(getattr(self._now[listener], attribute))

    def read(self) -> Series:
        for name, count in self._connections.items():
            yield (("listener", name), *PROCESSOR_TAGS), self._attributes(name, count)

    def _attributes(self, listener: str, connection_count: int) -> Attributes:
        found: dict[str, float] = {"connection-count": connection_count}
        now_ms = self._registry.now_ms
        for metric, rate in self._rates.get(listener, {}).items():
            found[f"{metric}-rate"] = rate.value(now_ms)
            found[f"{metric}-total"] = rate.read()
        if listener in self._logins:
            found.update(self._logins[listener].attributes(now_ms))
        return found


def of_processor(registry: MetricsRegistry, processor: Processor) -> None:
    """Connections, and requests and answers that wait for the processor."""
    registry.register(
        Family(
            FamilyName(SERVER, "socket-server-metrics"),
            Kind.KAFKA,
            "What passes over a listener.",
            ListenerTraffic(registry, processor).read,
        )
    )
    registry.gauge(
        FamilyName(NETWORK, "RequestChannel", "RequestQueueSize"),
        "Connections whose requests wait for the processor.",
        lambda: sum(each.is_ready for each in processor.connections),
    )
    registry.gauge(
        FamilyName(NETWORK, "RequestChannel", "ResponseQueueSize"),
        "Connections whose answers wait to be sent.",
        lambda: sum(each.is_queued_to_send for each in processor.connections),
    )


def of_loop(registry: MetricsRegistry) -> None:
    """The share of its time in which the broker's one thread has nothing to do."""
    busy = BusyTime()
    now_ns = registry.runtime.clock.monotonic_ns
    began = (now_ns(), busy.read_ns())
    marks = [began] * 2
    share = 0.0

    def follow() -> None:
        nonlocal share
        marks.append((now_ns(), busy.read_ns()))
        (began_ns, before), _, (now, spent) = marks
        if now > began_ns:
            share = max(0.0, 1 - (spent - before) / (now - began_ns))
        del marks[0]

    def idle_seconds() -> float:
        began_ns, before = began
        return max(0.0, (now_ns() - began_ns) - (busy.read_ns() - before)) / 1e9

    registry.on_tick(follow)
    doc = "The share of time in which the broker's thread has nothing to do, from 0 to 1."
    registry.gauge(
        FamilyName(NETWORK, "SocketServer", "NetworkProcessorAvgIdlePercent"), doc, lambda: share
    )
    registry.register(
        Family(
            FamilyName(NETWORK, "Processor", "IdlePercent"),
            Kind.GAUGE,
            doc,
            lambda: ((PROCESSOR_TAGS, share),),
        )
    )
    # Kafka marks nanoseconds of idleness over the number of threads: the rate is a share.
    registry.meter(
        FamilyName(SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent"),
        doc,
        idle_seconds,
        "percent",
    )


# The registry's session, and the server itself


def of_session(registry: MetricsRegistry, zookeeper: Registry) -> None:
    """What has become of the session at ZooKeeper, and how fast that answers."""
    # Imported only here, where it has been made: kazoo takes its time to load.
    from ottla.registry.zookeeper import ZooKeeperRegistry

    counts = {"Disconnects": 0, "Expires": 0, "SyncConnects": 1}  # it is connected now

    def on_state(state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            counts["Disconnects"] += 1
        elif state is SessionState.EXPIRED:
            counts["Expires"] += 1
        else:
            counts["SyncConnects"] += 1

    state = "CONNECTED"

    def follow(now: SessionState) -> None:
        nonlocal state
        state = {SessionState.SUSPENDED: "CONNECTING", SessionState.EXPIRED: "EXPIRED"}.get(
            now, "CONNECTED"
        )
        on_state(now)

    zookeeper.watch_session(follow)
    registry.gauge(
        FamilyName(SERVER, "SessionExpireListener", "SessionState"),
        "CONNECTED, CONNECTING or EXPIRED.",
        lambda: state,
    )
    registry.gauge(
        FamilyName(SERVER, "SessionExpireListener", "IsConnected"),
        "Whether a server of ZooKeeper answers: SessionState as a number.",
        lambda: int(state == "CONNECTED"),
    )
    if isinstance(zookeeper, ZooKeeperRegistry):
        latencies = registry.histogram(
            FamilyName(SERVER, "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs"),
            "How long requests to ZooKeeper took to be answered, in ms.",
        )
        zookeeper.session.on_latency = lambda ms: latencies.update(ms, registry.now_ms)
    for name in counts:
        registry.meter(
            FamilyName(SERVER, "SessionExpireListener", f"ZooKeeper{name}PerSec"),
            "Changes of the session at ZooKeeper.",
            partial(counts.__getitem__, name),
        )


def of_certificates(registry: MetricsRegistry, processor: Processor, clock: Clock) -> None:
    """How long certificates hold, and which changes of their files were refused."""

    def days() -> Series:
        for name, listener in processor.tls.items():
            yield (("listener", name),), listener.days_left(clock.now_ms())

    def rejected() -> Series:
        for name, listener in processor.tls.items():
            yield (("listener", name),), listener.rejected_count

    for name, doc, read in (
        ("DaysLeft", "Days until the certificate of a listener expires.", days),
        (
            "RejectedChanges",
            "Changed key stores and trust stores that could not be used.",
            rejected,
        ),
    ):
        registry.register(Family(FamilyName(SERVER, "Certificates", name), Kind.GAUGE, doc, read))


def of_server(registry: MetricsRegistry, parts: Parts) -> None:
    """The broker as a whole."""
    registry.gauge(
        FamilyName(SERVER, "KafkaServer", "BrokerState"),
        "1 starting, 2 recovering logs, 3 running, 6 handing leaders over, 7 stopping.",
        lambda: int(parts.state),
    )
    registry.gauge(
        FamilyName(SERVER, "KafkaServer", "ClusterId"),
        "The id of the cluster.",
        lambda: parts.cache.cluster_id,
    )
    registry.gauge(
        FamilyName(SERVER, "KafkaServer", "yammer-metrics-count"),
        "How many MBeans there are.",
        lambda: bean_count(registry),
    )
    started_ms = parts.runtime.clock.now_ms()
    info: Attributes = {"version": __version__, "start-time-ms": started_ms}
    registry.register(
        Family(
            FamilyName(SERVER, "app-info"),
            Kind.KAFKA,
            "The version of the broker, and when it started.",
            lambda: (((("id", str(parts.controller.broker_id)),), info),),
        )
    )
    for name, field in (("read", "read_bytes"), ("write", "write_bytes")):
        read = partial(disk_bytes, parts.runtime.disk, field)
        if read() is not None:
            registry.register(
                Family(
                    FamilyName(SERVER, "KafkaServer", f"linux-disk-{name}-bytes"),
                    Kind.GAUGE,
                    "Bytes that the process has moved from or to its disks.",
                    partial(_disk_series, read),
                )
            )


def bean_count(registry: MetricsRegistry) -> int:
    """How many MBeans there are; of those for each group or topic, how many there were lately."""
    count = 0
    for family in registry.families.values():
        if family.kind is not Kind.KAFKA and not family.name.name.startswith("yammer"):
            known = registry.series_counts.get(family.name) if family.unbounded else None
            count += sum(1 for _ in family.read()) if known is None else known
    return count


def _disk_series(read: Callable[[], int | None]) -> Series:
    found = read()
    if found is not None:
        yield NO_TAGS, found


def disk_bytes(disk: Disk, field: str) -> int | None:
    """What /proc says of the process's input and output; None where there is no such file."""
    try:
        text = disk.read_bytes("/proc/self/io").decode()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name == field:
            return int(value)
    return None
