"""What replication costs a producer: no copies, three with acks=1, three with acks=all.

The classic table of three machines has 0.96 and 0.51 of the unreplicated figure. Here three brokers
and the producer share the cores of one machine, so that every copy is also paid for by the leader.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from ottla.testing.processes import ClusterProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
SIZE, PARTITIONS = 100, 6
RECORDS = int(os.environ.get("BENCH_RECORDS", "1000000"))
CASES = {
    "1 copy, acks=1": (1, "1", None),
    "3 copies, acks=1": (3, "1", 0.96),
    "3 copies, acks=all": (3, "all", 0.51),
}


def produce(bootstrap: str, topic: str, acks: str, count: int) -> float:
    """Records a second, from the first until the last is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * RECORDS,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = os.urandom(SIZE)
    start = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not delivered"
    return count / (time.perf_counter() - start)


def measure(cluster: ClusterProcess, name: str, run: int) -> float:
    """One run on a new topic; returns when the followers have everything, too."""
    replicas, acks, _ = CASES[name]
    topic = f"bench-{replicas}-{acks}-{run}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(topic, PARTITIONS, replicas, config={"min.insync.replicas": "1"})
    admin.create_topics([new])[topic].result(30)
    produce(cluster.bootstrap_servers, topic, "all", PARTITIONS)  # leaders are known and ready
    rate = produce(cluster.bootstrap_servers, topic, acks, RECORDS)
    produce(cluster.bootstrap_servers, topic, "all", PARTITIONS)
    return rate


def main() -> None:
    print(machine.describe())
    print(
        f"one producer (librdkafka), {RECORDS:,} records of {SIZE} bytes, {PARTITIONS} partitions; "
        f"3 brokers, ZooKeeper and the producer on {os.cpu_count()} cores; medians of {RUNS} runs"
    )
    rates: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as folder:
        cluster = ClusterProcess(Path(folder)).start()
        try:
            for run in range(RUNS):
                for name in CASES:
                    rates[name].append(measure(cluster, name, run))
        finally:
            cluster.stop()
    alone = statistics.median(rates["1 copy, acks=1"])
    for name, (_, _, classic) in CASES.items():
        rate = statistics.median(rates[name])
        beside = "" if classic is None else f"   classic three machines {classic:.2f}"
        print(
            f"{name:<20} {rate:>10,.0f} records/s {rate * SIZE / 1e6:>6.1f} MB/s "
            f"ratio {rate / alone:.2f}{beside}"
        )


if __name__ == "__main__":
    main()
