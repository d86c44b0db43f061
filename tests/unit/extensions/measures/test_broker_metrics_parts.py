"""What each part of a broker shows of itself, in virtual time and without HTTP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
from apis_world import Client
from broker_world import BrokerWorld

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.measures import (
    controller_metrics,
    coordinator_metrics,
    network_metrics,
    replica_metrics,
    server_metrics,
    topic_metrics,
)
from ottla.extensions.measures.measures import Measures
from ottla.metrics import MetricsReporter
from ottla.metrics.metrics_registry import Kind, MetricsRegistry, attributes
from ottla.metrics.sensors import TICK_MS
from ottla.network.traffic import Traffic
from ottla.registry.tree import SessionState
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.registry.zookeeper_session import ZooKeeperSettings
from ottla.replication.replica_stats import TopicStats
from ottla.runtime import Runtime
from ottla.structs import Node, TopicPartition
from ottla.testing import mock_runtime

ME = __name__
SETTINGS = {
    "zookeeper_connect": "here:2181",
    "broker_id": 0,
    "metric_reporters": f"{ME}:Keeper",
    "metric_reporters_interval_ms": "1000",
}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Keeper(MetricsReporter):
    """Somebody has to want metrics."""

    reports: ClassVar = []

    def report(self, beans):
        Keeper.reports[:] = [beans]


class Shown:
    """A registry, and what it shows of some names."""

    def __init__(self):
        self.runtime = mock_runtime()
        self.registry = MetricsRegistry(self.runtime)

    def read(self, name):
        """The attributes by the values of the tags."""
        now_ms = self.registry.now_ms
        return {
            tuple(value for _, value in tags): attributes(value, now_ms)
            for family, tags, value in filter(None, self.registry.read())
            if name in (family.name.name, family.name.type)
        }

    def value(self, name):
        """That of a gauge without tags."""
        return self.read(name)[()]["Value"]


@pytest.fixture
def shown() -> Shown:
    return Shown()


# The broker as a whole


def test_every_part_of_a_broker_is_shown():
    """One that is left out would be missed when it is needed."""
    world = BrokerWorld(**SETTINGS).start()
    world.create("t")
    world.runtime.advance(1_500)
    (beans,) = Keeper.reports
    types = {name.partition("type=")[2].partition(",")[0] for name in beans}

    assert types >= {
        "AddPartitionsToTxnManager",
        "BrokerTopicMetrics",
        "ClientQuotaManager",
        "ControllerEventManager",
        "ControllerStats",
        "DelayedFetchMetrics",
        "DelayedOperationPurgatory",
        "FetchSessionCache",
        "GroupMetadataManager",
        "KafkaController",
        "KafkaRequestHandlerPool",
        "KafkaServer",
        "Log",
        "LogFlushStats",
        "LogManager",
        "Partition",
        "Processor",
        "ReplicaFetcherManager",
        "ReplicaManager",
        "RequestChannel",
        "SessionExpireListener",
        "SocketServer",
        "TransactionMarkerChannelManager",
        "app-info",
        "group-coordinator-metrics",
        "transaction-coordinator-metrics",
    }
    families = world.broker.find(Measures).reporters.registry.families
    assert {"Certificates", "consumergroup"} <= {name.type for name in families}
    assert "RequestMetrics" in {name.type for name in families}


def test_broker_that_has_stopped_measures_nothing():
    """Its requests are neither counted nor timed."""
    world = BrokerWorld(**SETTINGS).start()
    assert world.broker.apis.meter is not None
    assert world.broker.processor.sent.on_sent is not None
    world.stop()

    assert world.broker.apis.meter is None
    assert world.broker.processor.sent.on_sent is None


def test_broker_without_what_some_metrics_are_of_has_none_of_them():
    """No compaction, no tokens, no ZooKeeper, no single partitions."""
    world = BrokerWorld(
        metric_reporters=f"{ME}:Keeper",
        log_cleaner_enable="false",
        metrics_partitions_enable="false",
    ).start()
    types = {name.type for name in world.broker.find(Measures).reporters.registry.families}

    assert not types & {"LogCleaner", "DelegationTokens", "SessionExpireListener", "Partition"}
    assert "ReplicaManager" in types


@pytest.mark.parametrize("text", [None, "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\n"])
def test_bytes_of_disks_are_those_that_the_system_counts(text):
    """Where it counts them; the number of MBeans leaves out itself."""
    world = BrokerWorld(**SETTINGS)
    if text is not None:
        world.disk.make_dirs("/proc/self")
        world.disk.replace("/proc/self/io", text.encode())
    world.start()
    shown = Shown()
    shown.registry = world.broker.find(Measures).reporters.registry
    found = {
        f"linux-disk-{kind}-bytes": shown.read(f"linux-disk-{kind}-bytes")
        for kind in ("read", "write")
    }

    expected = [{}, {}] if text is None else [{(): {"Value": 4096}}, {(): {"Value": 8192}}]
    assert list(found.values()) == expected
    count = shown.value("yammer-metrics-count")
    assert count > 50
    registry = shown.registry
    kafka = Kind.KAFKA
    found = [reading.family for reading in registry.read() if reading is not None]
    beans = [family.name.name for family in found if family.kind is not kafka]
    assert count == len(beans) - 1
    if text is not None:
        world.disk.unlink("/proc/self/io")
        assert shown.read("linux-disk-read-bytes") == {}


# Topics and replicas


class Stats:
    """What has happened to topics; those that are gone are in the sum."""

    def __init__(self):
        self.topics = {}
        self.replication_bytes_out = 0
        self.gone = 0

    def total(self):
        whole = TopicStats()
        whole.messages_in = self.gone + sum(each.messages_in for each in self.topics.values())
        return whole


def test_topics_have_meters_while_they_are_here(shown):
    """One that comes again begins anew; their sum never falls."""
    stats = Stats()
    copied = {"a": SimpleNamespace(bytes=5), "b": SimpleNamespace(bytes=6)}
    replicas = SimpleNamespace(stats=stats, fetchers=SimpleNamespace(copied=copied))
    topic_metrics.of_topics(shown.registry, replicas)
    shown.registry.start()

    def counts():
        return {tags: each["Count"] for tags, each in shown.read("MessagesInPerSec").items()}

    assert counts() == {(): 0}
    stats.topics["t"] = first = TopicStats()
    first.messages_in = 7
    assert counts() == {(): 7, ("t",): 7}
    first.messages_in = 9
    assert counts() == {(): 9, ("t",): 9}
    stats.gone, stats.topics = 9, {}
    assert counts() == {(): 9}
    ticked = len(shown.registry._ticked)
    stats.topics["t"] = TopicStats()
    assert counts() == {(): 9, ("t",): 0}
    stats.topics = {}
    counts()
    assert len(shown.registry._ticked) == ticked
    stats.replication_bytes_out = 3
    assert shown.read("ReplicationBytesInPerSec")[()]["Count"] == 11
    assert shown.read("ReplicationBytesOutPerSec")[()]["Count"] == 3


def test_many_new_topics_get_their_meters_in_slices(shown, monkeypatch):
    """Some may go before it is their turn."""
    works = []
    monkeypatch.setattr(topic_metrics, "NEW_IN_A_SLICE", 2)
    monkeypatch.setattr(Runtime, "begin", lambda self, work, name: works.append(work))
    stats = Stats()
    replicas = SimpleNamespace(stats=stats, fetchers=SimpleNamespace(copied={}))
    topic_metrics.of_topics(shown.registry, replicas)
    stats.topics = {f"t{number}": TopicStats() for number in range(5)}

    def topics():
        return sum(tags != () for tags in shown.read("MessagesInPerSec"))

    assert topics() == 0
    work = works.pop()
    next(work)
    assert (topics(), works) == (2, [])
    del stats.topics["t4"]
    assert list(work) == [None]
    assert topics() == 4


def partition(committed, replicas=3, min_isr=2, *, is_leader=True):
    in_sync = SimpleNamespace(committed=range(committed))
    leadership = SimpleNamespace(in_sync=in_sync, min_isr=min_isr) if is_leader else None
    return SimpleNamespace(
        leadership=leadership, replicas=range(replicas), is_leader=is_leader,
        high_watermark=9, last_stable_offset=4, topic_partition=T0,
        log=SimpleNamespace(
            producer_state_manager=SimpleNamespace(producers={1: None, 2: None}),
            size_in_bytes=100, log_start_offset=1, log_end_offset=11,
            segments=SimpleNamespace(items=[1, 2]),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("committed", "is_leader", "under_replicated", "under", "at"),
    [(3, True, 0, 0, 0), (2, True, 1, 0, 1), (1, True, 1, 1, 0), (1, False, 0, 0, 0)],
)
def test_partitions_with_few_replicas_in_sync_are_counted(
    shown, committed, is_leader, under_replicated, under, at
):
    """By their leader alone."""
    one = partition(committed, is_leader=is_leader)
    stats = SimpleNamespace(isr_shrinks=1, isr_expands=2, failed_isr_updates=3)
    replicas = SimpleNamespace(partitions={T0: one}, stats=stats, offline_partitions={T1})
    replica_metrics.of_replicas(shown.registry, replicas)
    replica_metrics.of_partitions(shown.registry, replicas)
    names = ("UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount")

    assert [shown.value(name) for name in names] == [under_replicated, under, at]
    assert [shown.value(name) for name in ("LeaderCount", "PartitionCount")] == [is_leader, 1]
    assert (shown.value("OfflineReplicaCount"), shown.value("ProducerIdCount")) == (1, 2)
    meters = ("IsrShrinksPerSec", "IsrExpandsPerSec", "FailedIsrUpdatesPerSec")
    assert [shown.read(name)[()]["Count"] for name in meters] == [1, 2, 3]
    for name, value in {
        "UnderReplicated": under_replicated,
        "UnderMinIsr": under,
        "AtMinIsr": at,
        "InSyncReplicasCount": committed if is_leader else 0,
        "ReplicasCount": 3 if is_leader else 0,
        "LastStableOffsetLag": 5,
        "Size": 100,
        "LogStartOffset": 1,
        "LogEndOffset": 11,
        "NumLogSegments": 2,
    }.items():
        assert shown.read(name)[("0", "t")]["Value"] == value, name


def test_followers_show_their_lag_and_what_they_copy(shown):
    """One that does not know its lag yet has none; the leader is named once."""
    followers = [
        SimpleNamespace(lag=None, failure_count=0, topic_partition=T0),
        SimpleNamespace(lag=7, failure_count=1, topic_partition=T1),
        SimpleNamespace(lag=3, failure_count=2, topic_partition=TopicPartition("u", 0)),
    ]
    numbers = SimpleNamespace(requests=4, bytes=50)
    fetchers = SimpleNamespace(
        followers=lambda: iter(followers), copied={Node(2, "two", 9092): numbers}
    )
    replica_metrics.of_fetchers(shown.registry, SimpleNamespace(fetchers=fetchers), True)

    assert shown.read("MaxLag")[("Replica",)]["Value"] == 7
    assert shown.read("FailedPartitionsCount")[("Replica",)]["Value"] == 2
    lags = {tags[1:]: each["Value"] for tags, each in shown.read("ConsumerLag").items()}
    assert lags == {("1", "t"): 7, ("0", "u"): 3}
    for _ in range(2):
        key = ("ReplicaFetcherThread-0-2", "two", "9092")
        assert shown.read("RequestsPerSec")[key]["Count"] == 4
        assert shown.read("BytesPerSec")[key]["Count"] == 50
        numbers.requests, numbers.bytes = 4, 50
    followers.clear()
    assert shown.read("MaxLag")[("Replica",)]["Value"] == 0


def test_requests_that_wait_are_counted_by_kind(shown):
    """Fetches of both kinds are one."""

    def purgatory(number):
        return SimpleNamespace(watched=number, delayed=10 * number, expired=100 * number)

    delayed = SimpleNamespace(
        produces=purgatory(1),
        fetches=purgatory(2),
        follower_fetches=purgatory(3),
        delete_records=purgatory(4),
    )
    replica_metrics.of_purgatories(shown.registry, delayed)
    sizes = {tags: each["Value"] for tags, each in shown.read("PurgatorySize").items()}
    waiting = {tags: each["Value"] for tags, each in shown.read("NumDelayedOperations").items()}

    assert sizes == {("Produce",): 1, ("Fetch",): 5, ("DeleteRecords",): 4}
    assert waiting == {("Produce",): 10, ("Fetch",): 50, ("DeleteRecords",): 40}


# The controller and the coordinators


class Context:
    """Of t's three partitions the first is led by its preferred replica, and the last by none."""

    topics: ClassVar = {
        "t": SimpleNamespace(
            name="t",
            partitions=[0, 1, 2],
            assignment=dict.fromkeys(range(3), (1, 2)),
            states={0: SimpleNamespace(leader=1), 1: SimpleNamespace(leader=2)},
        )
    }
    brokers: ClassVar = {1: None, 2: None}
    topics_to_delete: ClassVar = set()
    leaders: ClassVar = {0: 1, 1: 2}

    def has_live_leader(self, index):
        return index in self.leaders

    def held_back(self):
        return []

    def replicas_of(self, partitions):
        return partitions


class Events:
    """One waits."""

    under_way = "create topics"
    on_event = None

    def __len__(self):
        return 1


def test_controller_shows_what_is_wrong_with_leaders(shown):
    """Topics that are being deleted need none."""
    context, events = Context(), Events()
    controller = SimpleNamespace(
        context=context, is_active=True, events=events, unclean_elections=2
    )
    controller_metrics.of_controller(shown.registry, controller)
    assert shown.value("PreferredReplicaImbalanceCount") == 1
    assert shown.value("OfflinePartitionsCount") == 1
    assert (shown.value("GlobalPartitionCount"), shown.value("ActiveBrokerCount")) == (3, 2)
    assert shown.value("EventQueueSize") == 1
    context.topics_to_delete = {"t"}
    assert shown.value("PreferredReplicaImbalanceCount") == 0
    assert shown.value("OfflinePartitionsCount") == 0

    events.on_event("create topics", 5, 7)
    events.on_event("something else", 9, 11)
    waits = shown.read("EventQueueTimeMs")[()]
    assert (waits["Count"], waits["Min"], waits["Max"]) == (2, 5, 9)
    topics = shown.read("TopicChangeRateAndTimeMs")[()]
    assert (topics["Count"], topics["Max"]) == (1, 7)


def test_groups_are_counted_by_their_states(shown):
    """All of them together, too."""
    groups = [
        SimpleNamespace(state_name=state, offsets=[1, 2]) for state in ("Stable", "Empty", "Stable")
    ]
    counts = SimpleNamespace(commits=4, expirations=0, deletions=0, rebalances=0)
    manager = SimpleNamespace(
        groups=lambda: groups, counts=counts, partitions=SimpleNamespace(last_loads_ms=[2, 4])
    )
    coordinator_metrics.of_groups(shown.registry, manager)
    states = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty")

    assert [shown.value(f"NumGroups{state}") for state in states] == [0, 0, 2, 1]
    assert (shown.value("NumGroups"), shown.value("NumOffsets")) == (3, 6)
    found = shown.read("group-coordinator-metrics")[()]
    assert (found["offset-commit-count"], found["partition-load-time-avg"]) == (4, 3)


# The network, the loop and the registry


def test_traffic_is_that_of_closed_connections_and_of_open_ones(shown):
    """A listener without a connection has none; logins are shown where there are any."""
    closed = Traffic()
    closed.created, closed.closed, closed.received_bytes = 3, 1, 100
    logins = SimpleNamespace(succeeded=5, failed=1, renewed=0, renewals_failed=0, expired=0)
    connection = Client(listener_name="A").connection
    connection.outgoing.sent_bytes, connection.received_bytes = 7, 20
    connection.request_count, connection.is_ready = 2, True
    processor = SimpleNamespace(
        listeners=[SimpleNamespace(name="A"), SimpleNamespace(name="B")],
        connections=[connection, connection],
        traffic={"A": closed},
        sasl={"B": SimpleNamespace(counts=logins)},
    )
    network_metrics.of_processor(shown.registry, processor)
    shown.registry.start()
    shown.runtime.advance(TICK_MS)
    found = shown.read("socket-server-metrics")

    of_a, of_b = found["A", "0"], found["B", "0"]
    assert (of_a["connection-count"], of_b["connection-count"]) == (2, 0)
    assert (of_a["incoming-byte-total"], of_a["outgoing-byte-total"]) == (140, 14)
    assert (of_a["request-total"], of_a["connection-creation-total"]) == (4, 3)
    assert "successful-authentication-total" not in of_a
    assert of_b["successful-authentication-total"] == 5
    assert "incoming-byte-total" not in of_b
    assert (shown.value("RequestQueueSize"), shown.value("ResponseQueueSize")) == (2, 0)


def test_loop_shows_the_share_in_which_it_has_nothing_to_do(shown, monkeypatch):
    """Over the last two ticks; its seconds of rest only grow."""
    busy = SimpleNamespace(ns=10**9)
    monkeypatch.setattr(
        network_metrics, "BusyTime", lambda: SimpleNamespace(read_ns=lambda: busy.ns)
    )
    shown.runtime.clock.advance(10**6)
    network_metrics.of_loop(shown.registry)
    shown.registry.start()
    share = "NetworkProcessorAvgIdlePercent"
    assert shown.value(share) == 0
    for spent_ms, expected in ((TICK_MS // 4, 0.75), (TICK_MS // 4, 0.75), (TICK_MS, 0.375)):
        busy.ns += spent_ms * 10**6
        shown.runtime.advance(TICK_MS)
        assert shown.value(share) == pytest.approx(expected)
    assert shown.read("IdlePercent")[("0",)]["Value"] == pytest.approx(0.375)
    idle = shown.read("RequestHandlerAvgIdlePercent")[()]["Count"]
    assert idle == pytest.approx(1.5 * TICK_MS / 1000)


def test_session_at_the_registry_is_shown(shown):
    """Its state now, and how often it was lost, ended or came back."""
    callbacks = []
    server_metrics.of_session(shown.registry, SimpleNamespace(watch_session=callbacks.append))
    (follow,) = callbacks
    states, connected = [], []
    for state in (
        SessionState.SUSPENDED,
        SessionState.RESUMED,
        SessionState.EXPIRED,
        SessionState.RENEWED,
    ):
        follow(state)
        states.append(shown.value("SessionState"))
        connected.append(shown.value("IsConnected"))

    assert states == ["CONNECTING", "CONNECTED", "EXPIRED", "CONNECTED"]
    assert connected == [0, 1, 0, 1]
    names = ("Disconnects", "Expires", "SyncConnects")
    counts = [shown.read(f"ZooKeeper{name}PerSec")[()]["Count"] for name in names]
    assert counts == [1, 1, 3]
    assert "ZooKeeperRequestLatencyMs" not in {n.name for n in shown.registry.families}


def test_requests_to_zookeeper_are_timed(shown):
    """As long as that is the registry."""
    config = BrokerConfig.parse({"zookeeper.connect": "here:2181"})
    zookeeper = ZooKeeperRegistry(shown.runtime, ZooKeeperSettings.of(config, None))
    server_metrics.of_session(shown.registry, zookeeper)
    zookeeper.session.on_latency(5)

    assert shown.read("ZooKeeperRequestLatencyMs")[()]["Max"] == 5


def test_certificates_are_shown_by_their_listeners(shown):
    """Their days, and the changes of their files that were refused."""
    listener = SimpleNamespace(days_left=lambda now_ms: 30.5, rejected_count=2)
    processor = SimpleNamespace(tls={"SSL": listener})
    network_metrics.of_certificates(shown.registry, processor, shown.runtime.clock)

    assert shown.read("DaysLeft")[("SSL",)]["Value"] == 30.5
    assert shown.read("RejectedChanges")[("SSL",)]["Value"] == 2
