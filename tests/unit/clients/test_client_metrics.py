"""What producers and consumers tell of themselves, under the names of Kafka's clients."""

from __future__ import annotations

import math

import pytest

import ottla
from ottla.clients.client_metrics import (
    ClientMetrics,
    ConsumerMetrics,
    ProducerMetrics,
    RequestTimes,
    metric_lines,
)
from ottla.clients.producer.producer_batch import ProducerBatch
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import HeartbeatResponse
from ottla.structs import ClientEntity, TopicPartition
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker() as running:
        yield running


def test_producer_counts_what_it_sends(broker):
    """Records, batches and requests, in all and by topic; and how long answers take."""
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
    """The delay that the broker asks for."""
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
    """A closed producer has nothing else either."""
    producer = ottla.Producer(broker.bootstrap_servers)
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.metrics()


def test_consumer_counts_what_it_reads_and_its_lag(broker):
    """Records, bytes and fetches; how far it is behind, in all and by partition."""
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


def test_lines_are_kafkas():
    """A name, and its value with three places."""
    assert metric_lines({"producer-metrics": {"b": 1, "aa": 2.5}}) == [
        "Metric Name          Value",
        "producer-metrics:aa : 2.500",
        "producer-metrics:b  : 1.000",
    ]


def metrics_of(runtime, times: RequestTimes | None = None) -> ClientMetrics:
    """The metrics of a client with two connections and three requests in flight."""
    return ClientMetrics(runtime, "g", times or RequestTimes(runtime), lambda: 2, lambda: 3)


def test_requests_are_measured_by_their_answers(runtime):
    """A request that fails or is given up has no latency, and a kind has its own metric."""
    runtime.advance(1000)
    times = RequestTimes(runtime)
    metrics = metrics_of(runtime, times)
    answers = {}
    for name, api_key in {
        "slow": ApiKey.HEARTBEAT,
        "quick": ApiKey.HEARTBEAT,
        "other": ApiKey.METADATA,
        "failed": ApiKey.FETCH,
        "given up": ApiKey.FETCH,
    }.items():
        answers[name] = runtime.scheduler.loop.create_future()
        times.watch(api_key, answers[name])
    runtime.advance(20)
    answers["quick"].set_result(HeartbeatResponse(throttle_time_ms=5))
    answers["failed"].set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    answers["given up"].cancel()
    runtime.advance(10)
    answers["slow"].set_result(HeartbeatResponse())
    runtime.advance(40)
    answers["other"].set_result(None)
    runtime.advance(30_000 - 70)

    assert metrics.read() == {
        "g": {
            "request-rate": 5 / 30,
            "request-total": 5,
            "response-rate": 3 / 30,
            "response-total": 3,
            "request-latency-avg": 40,
            "request-latency-max": 70,
            "connection-count": 2,
            "requests-in-flight": 3,
        },
        "consumer-coordinator-metrics": {
            "heartbeat-latency-avg": 25,
            "heartbeat-latency-max": 30,
            "heartbeat-total": 2,
        },
    }


def test_rates_are_those_of_the_last_windows_until_the_client_is_closed(runtime):
    """Windows begin by the clock although nobody reads, and after close nothing is counted."""
    metrics, reads, number = metrics_of(runtime), [], 0

    def read() -> int:
        reads.append(runtime.clock.monotonic_ms())
        return number

    counted = metrics.count(record_send=read)
    runtime.advance(10_000)
    number = 300
    runtime.advance(55_000)
    assert counted.shown(65_000) == {"record-send-rate": 0.0, "record-send-total": 300}

    metrics.close()
    reads.clear()
    runtime.advance(100_000)
    assert reads == []


def test_batches_are_measured_when_they_are_sent_first(runtime):
    """An attempt that follows is a retry of the records and nothing else."""
    metrics = ProducerMetrics(metrics_of(runtime), 1000, lambda: 600)
    runtime.advance(500)
    for size, count, age_ms in ((100, 1, 10), (300, 5, 30)):
        batch = ProducerBatch(TopicPartition("t", 0), 500 - age_ms, 0)
        batch.encoded = bytes(size)
        batch.records = [(0, None, b"", ())] * count
        for batch.attempts in (1, 2, 3):
            metrics.on_sent(batch)
    metrics.on_failed(batch)
    runtime.advance(29_500)

    shown = {
        "record-send-rate": 6 / 30,
        "record-send-total": 6,
        "byte-rate": 400 / 30,
        "byte-total": 400,
        "record-error-rate": 5 / 30,
        "record-error-total": 5,
        "record-retry-rate": 12 / 30,
        "record-retry-total": 12,
    }
    found = metrics.read()
    # The counts of a topic begin with its first batch, but a rate is over a window at least.
    assert found["producer-topic-metrics.t"] == shown
    assert (
        found["g"]
        | {
            **shown,
            "batch-size-avg": 200,
            "batch-size-max": 300,
            "record-queue-time-avg": 20,
            "record-queue-time-max": 30,
            "records-per-request-avg": 3,
            "buffer-total-bytes": 1000,
            "buffer-available-bytes": 600,
        }
        == found["g"]
    )


def test_polls_and_fetches_are_measured(runtime):
    """An empty poll has no records to average, and the time since the last one goes on."""
    runtime.advance(1000)
    metrics = ConsumerMetrics(metrics_of(runtime), dict)
    for pause_ms, count in ((100, 3), (300, 0), (200, 7)):
        runtime.advance(pause_ms)
        metrics.on_poll()
        metrics.on_records(count)
        metrics.on_fetched(10 * count)
    runtime.advance(5000)
    found = metrics.read(4)

    assert found["g"]["time-between-poll-avg"] == 200
    assert found["g"]["time-between-poll-max"] == 300
    assert found["g"]["last-poll-seconds-ago"] == 5
    fetches = found["consumer-fetch-manager-metrics"]
    assert fetches["records-per-request-avg"] == 5
    assert fetches["fetch-size-avg"] == 100 / 3
    assert fetches["fetch-size-max"] == 70
    assert [fetches[f"{n}-total"] for n in ("records-consumed", "bytes-consumed", "fetch")] == [
        10,
        100,
        3,
    ]
    assert math.isnan(fetches["records-lag-max"])
