"""Clients of others that are limited to 1 MB/s get that, and nobody else is held."""

from __future__ import annotations

import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from benchmarks.bench_quotas import LIMIT, limit, rate_of

import ottla
from ottla.testing.processes import BrokerProcess

LIMIT_S = 120
FEW = 20
VALUE = bytes(range(250)) * 40
"""Large, so that a slow client reaches the limit on a busy machine too."""


@pytest.fixture
def servers(tmp_path: Path):
    """A broker in a process of its own, with the topic t."""
    broker = BrokerProcess(tmp_path / "data").start()
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic("t")])
    yield broker.bootstrap_servers
    broker.stop()


def by_kafka_python(servers: str) -> tuple[float, float]:
    """The rate of its producer, and the longest wait that its own metrics know of."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, client_id="python", linger_ms=5, batch_size=1 << 18
    )

    def send_few() -> int:
        for sent in [producer.send("t", VALUE) for _ in range(FEW)]:
            sent.get(LIMIT_S)
        return FEW * len(VALUE)

    rate = rate_of(send_few)
    groups = producer.metrics().values()
    longest_ms = max(group.get("throttle-time-max", 0) for group in groups)
    producer.close()
    return rate, longest_ms


def by_librdkafka(servers: str) -> tuple[float, float]:
    """The same of its producer, as it tells the program."""
    waits: list[float] = [0]
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "librdkafka",
            "linger.ms": 5,
            "throttle_cb": lambda event: waits.append(event.throttle_time),
        }
    )

    def send_few() -> int:
        for _ in range(FEW):
            producer.produce("t", VALUE)
        assert producer.flush(LIMIT_S) == 0
        return FEW * len(VALUE)

    return rate_of(send_few), max(waits)


def of_another(servers: str) -> tuple[float, float]:
    """Ottla's own producer, which has no limit; it lingers, and so leaves the machine to others."""
    slow = {"linger_ms": 100, "batch_size": 1 << 20}
    with ottla.Producer(servers, client_id="other", **slow) as producer:

        def send_few() -> int:
            for sent in [producer.send("t", VALUE) for _ in range(FEW)]:
                sent.result(LIMIT_S)
            return FEW * len(VALUE)

        rate = rate_of(send_few)
        return rate, producer.metrics()["producer-metrics"]["produce-throttle-time-max"]


def test_limited_clients_get_their_limit(servers):
    """Within a tenth over 33 s, by their own metrics too; another is not held."""
    for client_id in ("python", "librdkafka"):
        limit(servers, client_id, producer_byte_rate=LIMIT)
    python = by_kafka_python(servers)  # by itself: it needs the interpreter all the time
    with ThreadPoolExecutor() as pool:
        librdkafka, other = pool.map(lambda work: work(servers), (by_librdkafka, of_another))

    print(f"\nkafka-python, librdkafka, without a limit: {python}, {librdkafka}, {other}")
    for rate, longest in (python, librdkafka):
        assert rate == pytest.approx(LIMIT, rel=0.1)
        assert longest > 0
    assert not other[1] > 0
    with warnings.catch_warnings():  # kafka-python leaves sockets to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
