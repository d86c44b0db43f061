"""confluent-kafka (librdkafka) against a broker: records a second, produced and consumed.

Each line is one case: record size, partitions, codec. The broker writes to disk and shares the
cores with the client. MB/s are of values; the machine's own limits stand above the table.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
RECORDS = {100: 2_000_000, 1024: 400_000}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def cases() -> list[tuple[int, int, str]]:
    """Size, partitions, codec: every codec at 1 partition, no codec at 12 as well."""
    sizes = sorted(RECORDS)
    return [(size, 1, codec) for size in sizes for codec in CODECS] + [
        (size, 12, "none") for size in sizes
    ]


def value_of(size: int) -> bytes:
    """JSON-like bytes, so that codecs have something to do."""
    text = b'{"user": 1234567, "page": "/articles/the-log", "referrer": "/index", "ms": 17}, '
    return (text * (size // len(text) + 1))[:size]


def produce(
    bootstrap: str, topic: str, size: int, count: int, codec: str, **settings: str | int
) -> float:
    """Records a second, until the last is acknowledged, after one that opens the connections."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "acks": 1,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    value = value_of(size)
    producer.produce(topic, value)
    producer.flush(60)  # connected, and the leaders are known
    start = time.perf_counter()
    for number in range(count):
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.1)
            producer.produce(topic, value)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not delivered"
    return count / (time.perf_counter() - start)


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    seen = 0
    start = time.perf_counter()
    while seen < count:
        seen += len(consumer.consume(min(10_000, count - seen), 10))
    elapsed = time.perf_counter() - start
    consumer.close()
    return seen / elapsed


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def measure(bootstrap: str, size: int, partitions: int, codec: str) -> tuple[float, float]:
    """Medians of records a second, produced and consumed."""
    produced, consumed = [], []
    count = RECORDS[size]
    for run in range(RUNS):
        topic = f"bench-{size}-{partitions}-{codec}-{run}"
        create(bootstrap, topic, partitions)
        produced.append(produce(bootstrap, topic, size, count, codec))
        consumed.append(consume(bootstrap, topic, partitions, count))
    return statistics.median(produced), statistics.median(consumed)


def main() -> None:
    print(machine.describe())
    print(f"librdkafka through confluent-kafka, medians of {RUNS} runs, acks=1, linger 5 ms")
    print(f"{'size':>5} {'parts':>5} {'codec':>7} {'produce rec/s':>14} {'MB/s':>6}", end="")
    print(f" {'consume rec/s':>14} {'MB/s':>6}")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            for size, partitions, codec in cases():
                produced, consumed = measure(broker.bootstrap_servers, size, partitions, codec)
                print(
                    f"{size:>5} {partitions:>5} {codec:>7} {produced:>14,.0f} "
                    f"{produced * size / 1e6:>6.0f} {consumed:>14,.0f} "
                    f"{consumed * size / 1e6:>6.0f}",
                    flush=True,
                )
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
