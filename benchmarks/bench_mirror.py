"""`ottla mirror` between two brokers: MB a second from a topic that is full to its copy.

Each line is one codec of the source's batches. The brokers write to disk, and they and the mirror
are processes that share the cores; the time counts from the first copied record to the last. MB/s
are of bytes in the source's log; what they hold uncompressed is beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.bench_clients import value_of
from ottla import Admin, Producer, TopicPartition
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.topic_offsets import OffsetSpec
from ottla.testing.processes import BrokerProcess

RECORDS = int(os.environ.get("BENCH_RECORDS", "1000000"))
SIZE = 1024
PARTITIONS = 4
CODECS = ("none", "lz4", "zstd")
LIMIT_S = 300


def fill(servers: str, topic: str, codec: str, records: int = RECORDS) -> None:
    """Write the records, each with a number of its own."""
    text = value_of(SIZE)
    settings = {"compression.type": codec, "linger.ms": 50, "batch.size": 1 << 18}
    with Producer(servers, settings) as producer:
        for number in range(records):
            producer.send(topic, b"%d%s" % (number, text[:-7]), partition=number % PARTITIONS)


def end_of(admin: Admin, topic: str) -> int:
    """The records of a topic, 0 if it is not there."""
    if topic not in admin.list_topics():
        return 0
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = admin.list_offsets(dict.fromkeys(places, int(OffsetSpec.LATEST)))
    return sum(each.offset for each in found.values())


def log_bytes(folder: Path, topic: str) -> int:
    """What a topic takes up in a data directory."""
    return sum(path.stat().st_size for path in folder.glob(f"{topic}-*/*.log"))


def properties(a: BrokerProcess, b: BrokerProcess, topic: str, folder: Path) -> Path:
    path = folder / f"{topic}.properties"
    path.write_text(
        f"""clusters = a, b
a.bootstrap.servers = {a.bootstrap_servers}
b.bootstrap.servers = {b.bootstrap_servers}
a->b.enabled = true
topics = {topic}
emit.heartbeats.enabled = false
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
offset.storage.replication.factor = 1
""",
        encoding="utf-8",
    )
    return path


def measure(admin: Admin, topic: str, file: Path) -> float:
    """Seconds from the first copied record to the last."""
    words = [sys.executable, "-m", "ottla", "mirror", str(file), "--status-interval", "0"]
    mirror = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        begun: float | None = None
        limit = time.perf_counter() + LIMIT_S
        while (end := end_of(admin, f"a.{topic}")) < RECORDS:
            if begun is None and end:
                begun = time.perf_counter()
            if time.perf_counter() > limit:
                raise RuntimeError(f"{end} of {RECORDS} records within {LIMIT_S} s")
            time.sleep(0.02)
        return time.perf_counter() - (begun or limit - LIMIT_S)
    finally:
        mirror.terminate()
        mirror.wait()


def main() -> None:
    print(machine.describe())
    print(f"{RECORDS:,} records of {SIZE} bytes in {PARTITIONS} partitions")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
        folder = Path(scratch)
        a = BrokerProcess(folder / "a").start()
        b = BrokerProcess(folder / "b").start()
        try:
            with Admin(a.bootstrap_servers) as source, Admin(b.bootstrap_servers) as target:
                for codec in CODECS:
                    topic = f"pages-{codec}"
                    source.create_topics([NewTopic(topic, PARTITIONS, 1)])
                    fill(a.bootstrap_servers, topic, codec)
                    seconds = measure(target, topic, properties(a, b, topic, folder))
                    stored = log_bytes(folder / "a", topic) / 1e6
                    plain = RECORDS * len(value_of(SIZE)) / 1e6
                    print(
                        f"{codec:5} {stored / seconds:8.1f} MB/s of the log, "
                        f"{plain / seconds:9.1f} MB/s of values, "
                        f"{RECORDS / seconds:12,.0f} records/s",
                        flush=True,
                    )
        finally:
            a.stop()
            b.stop()


if __name__ == "__main__":
    main()
