"""Many records at once: `send_values`, `poll_arrow` and `read_arrow` beside confluent-kafka.

100 bytes each, one partition, acks=all; all take turns with one broker on this machine. CPU time is
that of the client's process. confluent-kafka is called as its own examples do, with a callback.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import confluent_kafka

import ottla
from ottla.testing.processes import BrokerProcess

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = 400_000
VALUES = [b"x" * 100] * RECORDS
LIMIT_S = 60
PEER = "confluent-kafka"


def confluent_send(servers: str, topic: str) -> None:
    """One by one, each with a callback."""
    delivered = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal delivered
        delivered += error is None

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, on_delivery=on_delivery)
        if not number % 1000:
            producer.poll(0)
    producer.flush(LIMIT_S)
    assert delivered == RECORDS, delivered


def send(servers: str, topic: str) -> None:
    """One by one, each with a callback."""
    delivered = 0

    def on_delivery(metadata: object, error: object) -> None:
        nonlocal delivered
        delivered += error is None

    with ottla.Producer(servers, acks="all", linger_ms=5) as producer:
        for value in VALUES:
            producer.send(topic, value, on_delivery=on_delivery)
    assert delivered == RECORDS, delivered


def send_values(servers: str, topic: str) -> None:
    """All at once."""
    with ottla.Producer(servers, acks="all") as producer:
        written = producer.send_values(topic, VALUES).result(LIMIT_S)
    assert sum(each.record_count for each in written) == RECORDS


def confluent_consume(servers: str, topic: str) -> None:
    """500 at a time, whose values are looked at."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = RECORDS
    while left:
        left -= len([message.value() for message in consumer.consume(500, 1)][:left])
    consumer.close()


def poll(servers: str, topic: str) -> None:
    """500 at a time."""
    read(servers, topic, lambda consumer: len(consumer.poll(1000)))


def poll_arrow(servers: str, topic: str) -> None:
    """All that has arrived."""
    read(servers, topic, lambda consumer: consumer.poll_arrow(1000).num_rows)


def read(servers: str, topic: str, count: Callable[[ottla.Consumer], int]) -> None:
    with ottla.Consumer(servers) as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        consumer.seek(ottla.TopicPartition(topic, 0), 0)
        left = RECORDS
        while left > 0:
            left -= count(consumer)


def read_arrow(servers: str, topic: str) -> None:
    """A table of all of it."""
    assert ottla.read_arrow(servers, topic, end=RECORDS).num_rows == RECORDS


ROWS = {
    "send": {PEER: confluent_send, "ottla send": send, "ottla send_values": send_values},
    "read": {
        PEER: confluent_consume,
        "ottla poll": poll,
        "ottla poll_arrow": poll_arrow,
        "ottla read_arrow": read_arrow,
    },
}


def measured(call: Callable[[str, str], None], servers: str, topic: str) -> tuple[float, float]:
    """Records a second, and CPU time of a record in us."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    call(servers, topic)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return RECORDS / wall_s, 1e6 * cpu_s / RECORDS


def main() -> None:
    """Print the medians, and the medians of the ratios to the peer's of the same round."""
    import pyarrow as pa  # its import is of no one's time

    print(f"{RECORDS} records of 100 bytes, medians of {ROUNDS} rounds, pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            for kind, calls in ROWS.items():
                show(kind, take_turns(kind, calls, broker.bootstrap_servers))
        finally:
            broker.stop()


def take_turns(
    kind: str, calls: Mapping[str, Callable[[str, str], None]], servers: str
) -> dict[str, list[tuple[float, float]]]:
    """The rate and the CPU time of each call, once in each round, with a topic of its own."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    with ottla.Admin(servers) as admin:
        for number in range(ROUNDS):
            for name, call in calls.items():
                topic = f"{kind}-{number}-{name.replace(' ', '-')}"
                admin.create_topics([ottla.NewTopic(topic, 1, 1)])
                if kind == "read":
                    send_values(servers, topic)
                found[name].append(measured(call, servers, topic))
                admin.delete_topics([topic])
    return found


def show(kind: str, found: dict[str, list[tuple[float, float]]]) -> None:
    peers = found[PEER]
    for name, rounds in found.items():
        rate, cpu_us = (statistics.median(each) for each in zip(*rounds, strict=True))
        ratios = [
            (own[0] / peer[0], own[1] / peer[1]) for own, peer in zip(rounds, peers, strict=True)
        ]
        faster, cheaper = (statistics.median(each) for each in zip(*ratios, strict=True))
        print(
            f"{kind}  {name:20} {rate / 1000:7.0f} k/s x{faster:.2f}   "
            f"{cpu_us:5.2f} us of CPU x{cheaper:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
