"""What a broker measures of itself, read over HTTP while clients use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from http_pages import bean, get, metrics_of, scrape

import ottla
from ottla.errors import KafkaError
from ottla.extensions.measures.controller_metrics import (
    STATE_WORDS,
    ControllerState,
    controller_state,
)
from ottla.extensions.measures.measures import Measures
from ottla.testing import InProcessBroker, wait_until

TOPICS = "kafka_server_brokertopicmetrics"


@pytest.fixture(scope="module")
def broker():
    """A broker with metrics; each test has topics of its own."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        yield running


@pytest.fixture
def url(broker):
    return str(metrics_of(broker.broker).end_point)


def produce(broker, topic, count=10, size=100):
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, b"x" * size)


def test_records_are_counted_by_topic_and_together(broker, url):
    """What comes in and goes out; reading it counts as going out."""
    before = scrape(url)
    broker.create_topic("counted")
    produce(broker, "counted")
    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition("counted", 0)])
        wait_until(lambda: consumer.poll(100), "records")
    found, tags = scrape(url), (("topic", "counted"),)

    assert found[f"{TOPICS}_messagesin_total", tags] == 10
    assert 10 * 100 < found[f"{TOPICS}_bytesin_total", tags] < 10 * 200
    assert found[f"{TOPICS}_bytesout_total", tags] >= found[f"{TOPICS}_bytesin_total", tags]
    assert found[f"{TOPICS}_totalproducerequests_total", tags] >= 1
    assert found[f"{TOPICS}_totalfetchrequests_total", tags] >= 1
    for name in ("messagesin", "bytesin", "bytesout"):
        total = f"{TOPICS}_{name}_total"
        assert found[total, ()] - before[total, ()] == found[total, tags]


def test_totals_do_not_fall_when_a_topic_is_deleted(broker, url):
    """Its own series go, and what they had stays in the sum."""
    broker.create_topic("deleted")
    produce(broker, "deleted")
    before = scrape(url)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics(["deleted"])
    found = scrape(url)

    assert (f"{TOPICS}_messagesin_total", (("topic", "deleted"),)) in before
    assert not [labels for _, labels in found if ("topic", "deleted") in labels]
    assert found[f"{TOPICS}_messagesin_total", ()] == before[f"{TOPICS}_messagesin_total", ()]


def test_batch_that_is_too_large_is_rejected_bytes(broker, url):
    """It is no failed request: the broker has done what it should."""
    broker.create_topic("narrow", max_message_bytes=1_000)
    with (
        ottla.Producer(broker.bootstrap_servers) as producer,
        pytest.raises(KafkaError, match=r"max\.message\.bytes|too large"),
    ):
        producer.send("narrow", b"x" * 5_000).result(120)
    found, tags = scrape(url), (("topic", "narrow"),)

    assert found[f"{TOPICS}_bytesrejected_total", tags] > 5_000
    assert found[f"{TOPICS}_failedproducerequests_total", tags] == 0
    assert found[f"{TOPICS}_messagesin_total", tags] == 0


def test_partition_and_log_are_as_they_are(broker, url):
    """Offsets, size, replicas."""
    broker.create_topic("shown", partitions=2)
    produce(broker, "shown", count=7)
    found = scrape(url)
    ends = [
        found["kafka_log_log_logendoffset", (("partition", str(index)), ("topic", "shown"))]
        for index in range(2)
    ]
    tags = (("partition", "0"), ("topic", "shown"))

    assert sum(ends) == 7
    assert found["kafka_log_log_logstartoffset", tags] == 0
    assert found["kafka_log_log_numlogsegments", tags] == 1
    assert found["kafka_cluster_partition_replicascount", tags] == 1
    assert found["kafka_cluster_partition_insyncreplicascount", tags] == 1
    assert found["kafka_cluster_partition_underreplicated", tags] == 0


def test_too_few_replicas_are_seen(broker, url):
    """min.insync.replicas=2 with one replica: under, and not at it."""
    broker.create_topic("unsafe", min_insync_replicas=2)
    found, tags = scrape(url), (("partition", "0"), ("topic", "unsafe"))

    assert found["kafka_cluster_partition_underminisr", tags] == 1
    assert found["kafka_server_replicamanager_underminisrpartitioncount", ()] == 1
    assert found["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0


def test_single_partitions_can_be_left_out():
    """metrics.partitions.enable=false, for brokers with very many."""
    settings = {"metrics_listener": "http://127.0.0.1:0", "metrics_partitions_enable": "false"}
    with InProcessBroker(**settings) as broker:
        broker.create_topic("t")
        found = scrape(str(metrics_of(broker.broker).end_point))

    assert found["kafka_server_replicamanager_partitioncount", ()] >= 1
    assert not [labels for _, labels in found if dict(labels).get("partition")]


def test_controller_knows_the_cluster(broker, url):
    """It is one, and nothing is offline; its events are timed."""
    broker.create_topic("known")
    found = scrape(url)

    assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount", ()] == 0
    assert found["kafka_controller_kafkacontroller_globaltopiccount", ()] >= 1
    assert found["kafka_controller_kafkacontroller_activebrokercount", ()] == 1
    assert bean(url, "kafka.controller:type=ControllerStats,name=TopicChangeRateAndTimeMs")["Count"]


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("create topics", ControllerState.TOPIC_CHANGE),
        ("delete topics", ControllerState.TOPIC_DELETION),
        ("/admin/delete_topics", ControllerState.TOPIC_DELETION),
        ("broker 1 has answered StopReplica", ControllerState.TOPIC_DELETION),
        ("election", ControllerState.CHANGE),
        ("/brokers/ids", ControllerState.BROKER_CHANGE),
        ("alter partitions", ControllerState.ISR_CHANGE),
        ("partitions of t", ControllerState.TOPIC_CHANGE),
        ("elect leaders", ControllerState.MANUAL_BALANCE),
        ("/admin/preferred_replica_election", ControllerState.MANUAL_BALANCE),
        ("leader rebalance", ControllerState.AUTO_BALANCE),
        ("alter reassignments", ControllerState.REASSIGNMENT),
        ("list reassignments", ControllerState.LIST_REASSIGNMENT),
        ("unclean election", ControllerState.UNCLEAN_ELECTION),
        ("wait", ControllerState.IDLE),
        ("", ControllerState.IDLE),
    ],
)
def test_events_of_the_controller_are_kafkas_states(event, state):
    """By a word in their names."""
    assert controller_state(event) == state
    assert len({word for word, _ in STATE_WORDS}) == len(STATE_WORDS)


def test_groups_are_counted_by_state(broker, url):
    """A group with a member is Stable, and its commit is an offset."""
    broker.create_topic("grouped")
    produce(broker, "grouped")
    with ottla.Consumer(
        broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["grouped"])
        wait_until(lambda: consumer.poll(100), "records")
        consumer.commit()
        found = scrape(url)
        base = "kafka_coordinator_group_groupmetadatamanager"
        assert found[f"{base}_numgroups", ()] == 1
        assert found[f"{base}_numgroupsstable", ()] == 1
        assert found[f"{base}_numoffsets", ()] == 1
    wait_until(lambda: scrape(url)[f"{base}_numgroupsempty", ()] == 1, "the member to have left")


def test_traffic_of_a_listener_is_counted(broker, url):
    """Connections that were made and ended, bytes and requests, also of those that are closed."""
    tags = (("listener", "PLAINTEXT"), ("networkProcessor", "0"))
    base = "kafka_server_socket_server_metrics"
    produce(broker, "traffic", count=1, size=10_000)
    before = scrape(url)
    produce(broker, "traffic", count=1, size=10_000)

    def grown(name):
        key = f"{base}_{name}", tags
        return scrape(url)[key] - before[key]

    assert grown("incoming_byte_total") > 10_000
    assert grown("outgoing_byte_total") > 100
    assert grown("request_total") >= 3
    assert grown("connection_creation_total") >= 1
    wait_until(lambda: grown("connection_close_total") >= 1, "the connection to be closed")


def test_waiting_fetches_are_in_the_purgatory(broker, url):
    """A long poll waits there, and expires."""
    broker.create_topic("quiet")
    key = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    tags = (("delayedOperation", "Fetch"),)
    with ottla.Consumer(broker.bootstrap_servers, fetch_max_wait_ms=200) as consumer:
        consumer.assign([ottla.TopicPartition("quiet", 0)])
        consumer.seek(ottla.TopicPartition("quiet", 0), 0)
        wait_until(lambda: consumer.poll(10) or scrape(url)[key, tags] == 1, "a waiting fetch")
        name = "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec,fetcherType=consumer"
        wait_until(lambda: consumer.poll(10) or bean(url, name)["Count"] > 0, "its end")


def test_no_metric_is_a_constant_text_or_missing_doc(broker, url):
    """Each family says what it is, and each name follows Kafka's rules for names."""
    for family in metrics_of(broker.broker).registry.families.values():
        assert family.doc.endswith("."), family.name
        assert family.name.domain.partition(".")[0] == "kafka", family.name
        if family.name.name.endswith("PerSec"):
            assert family.kind.value == "meter", family.name
    _, page = get(f"{url}/metrics")
    named = [line.split(" ", 3)[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(named) == len(set(named))


def test_coordinators_tell_what_groups_do(broker, url):
    """Commits are counted by partition, rebalances by generation; loading takes its time."""
    metrics = "kafka_server_group_coordinator_metrics"
    broker.create_topic("committed")
    produce(broker, "committed")
    with ottla.Consumer(
        broker.bootstrap_servers, group_id="committers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["committed"])
        wait_until(lambda: consumer.poll(100), "records")
        before = scrape(url)
        consumer.commit()
        found = scrape(url)

    assert (
        found[f"{metrics}_offset_commit_count", ()] - before[f"{metrics}_offset_commit_count", ()]
        >= 1
    )
    assert found[f"{metrics}_group_completed_rebalance_count", ()] >= 1
    assert found[f"{metrics}_partition_load_time_max", ()] >= 0
    assert ("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", ()) in found


def test_broker_without_the_setting_measures_nothing():
    """No listener, no timer, no contexts: as if the room were not there."""
    with InProcessBroker() as broker:
        assert broker.broker.find(Measures).listener is None
        assert broker.broker.apis.meter is None
        assert broker.broker.processor.sent.on_sent is None


def test_certificates_have_their_days_left(certificates, tmp_path, monkeypatch):
    """By listener, with the changes of their files that could not be used."""
    monkeypatch.setattr("ottla.network.broker_tls.LOOK_MS", 50)
    store = tmp_path / "store.pem"
    store.write_bytes(Path(certificates.server).read_bytes())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(store),
        "metrics.listener": "http://127.0.0.1:0",
    }
    tags = (("listener", "SSL"),)
    with InProcessBroker(**settings) as broker:
        url = str(metrics_of(broker.broker).end_point)
        assert scrape(url)["kafka_server_certificates_daysleft", tags] > 300_000
        store.write_text("nothing")
        wait_until(
            lambda: scrape(url)["kafka_server_certificates_rejectedchanges", tags] == 1,
            "a change that could not be used",
        )
