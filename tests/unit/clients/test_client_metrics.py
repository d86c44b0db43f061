"""What producers and consumers tell of themselves, under the names of Kafka's clients."""

from __future__ import annotations

import math

import pytest

import ottla
from ottla.clients.client_metrics import Counted, metric_lines
from ottla.errors import KafkaError
from ottla.structs import ClientEntity
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker() as running:
        yield running


def test_producer_counts_what_it_sends(broker):
    """Records, batches and requests, in all and by topic; and how long answers take (J01, J03)."""
    broker.create_topic("sent")
    with ottla.Producer(broker.bootstrap_servers) as producer:
        before = producer.metrics()["producer-metrics"]
        for _ in range(100):
            producer.send("sent", bytes(50))
        producer.flush()
        metrics = producer.metrics()
    found, of_topic = metrics["producer-metrics"], metrics["producer-topic-metrics.sent"]

    assert before["record-send-total"] == 0
    assert math.isnan(before["batch-size-avg"])
    assert found["record-send-total"] == of_topic["record-send-total"] == 100
    assert found["record-send-rate"] > 0
    assert of_topic["byte-total"] > 100 * 50
    assert found["batch-size-max"] <= of_topic["byte-total"]
    assert found["request-latency-max"] >= found["request-latency-avg"] >= 0
    assert found["connection-count"] >= 1
    assert found["buffer-available-bytes"] == found["buffer-total-bytes"]
    assert found["produce-throttle-time-max"] == 0


def test_producer_counts_what_fails(broker):
    """Records that were given up, as the application was told."""
    broker.create_topic("narrow", max_message_bytes=1_000)
    with ottla.Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaError):
            producer.send("narrow", bytes(5_000)).result(60)
        found = producer.metrics()["producer-topic-metrics.narrow"]

    assert found["record-error-total"] == 1


def test_producer_tells_how_long_it_was_held(broker):
    """The delay that the broker asks for (Y10)."""
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({ClientEntity(client_id="held"): {"producer_byte_rate": 10_000}})
    with ottla.Producer(broker.bootstrap_servers, client_id="held") as producer:
        producer.send("held", bytes(150_000)).result(60)
        assert producer.metrics()["producer-metrics"]["produce-throttle-time-max"] > 0
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.alter_client_quotas(
                {ClientEntity(client_id="held"): {"producer_byte_rate": None}}
            )


def test_closed_producer_has_no_metrics(broker):
    """As it has nothing else."""
    producer = ottla.Producer(broker.bootstrap_servers)
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.metrics()


def test_consumer_counts_what_it_reads_and_its_lag(broker):
    """Records, bytes and fetches; how far it is behind, in all and by partition (J01, J03)."""
    broker.create_topic("read")
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send("read", bytes(50))
    with ottla.Consumer(
        broker.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        max_poll_records=10,
    ) as consumer:
        consumer.subscribe(["read"])
        wait_until(lambda: consumer.poll(100), "records")
        consumer.commit()
        metrics = consumer.metrics()
    fetches = metrics["consumer-fetch-manager-metrics"]
    group = metrics["consumer-coordinator-metrics"]

    assert fetches["records-consumed-total"] == 10
    assert fetches["bytes-consumed-total"] > 10 * 50
    assert fetches["fetch-total"] >= 1
    assert fetches["fetch-latency-max"] >= 0
    assert fetches["records-lag-max"] == 90
    assert metrics["consumer-fetch-manager-metrics.read-0"]["records-lag"] == 90
    assert group["assigned-partitions"] == 1
    assert group["commit-total"] == 1
    assert group["join-total"] >= 1
    assert metrics["consumer-metrics"]["last-poll-seconds-ago"] < 60


def test_windows_of_rates_begin_anew():
    """A rate is that of the last window and the present one."""
    number = 0
    counted = Counted(0, record_send=lambda: number)
    number = 300
    counted.tick(30_000)
    counted.tick(60_000)

    assert counted.shown(60_000) == {"record-send-rate": 0.0, "record-send-total": 300}


def test_lines_are_kafkas():
    """A name, and its value with three places."""
    assert metric_lines({"producer-metrics": {"b": 1, "aa": 2.5}}) == [
        "Metric Name          Value",
        "producer-metrics:aa : 2.500",
        "producer-metrics:b  : 1.000",
    ]
