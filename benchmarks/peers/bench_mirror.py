"""`ottla mirror` beside Kafka's MirrorMaker 2 (4.1): MB a second, to Ottla and back.

The source has a topic that is full; the time counts from the first copied record to the last. Both
mirrors take turns in one run, over the same records, with one task and their own defaults, and
medians are compared. Brokers and mirror are processes that share the cores, so that the processor
time of the mirror, with its start, is beside the rates.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine
from benchmarks.bench_clients import value_of
from benchmarks.bench_mirror import PARTITIONS, SIZE, end_of, fill
from benchmarks.peers.comparison import MILLION, Measured, cpu_seconds, table
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from benchmarks.peers.mirror_maker import MirrorMaker
from ottla import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "300000"))
CODECS = os.environ.get("BENCH_CODECS", "none,lz4").split(",")
LIMIT_S = 1800
RATE, COST = "MB/s", "CPU s per GB"


class Way(NamedTuple):
    """From one of the brokers to the other."""

    source: BrokerProcess | KafkaBroker
    target: BrokerProcess | KafkaBroker
    name: str

    def properties(self, alias: str, topic: str) -> dict[str, str]:
        return {
            "clusters": f"{alias}, there",
            f"{alias}.bootstrap.servers": self.source.bootstrap_servers,
            "there.bootstrap.servers": self.target.bootstrap_servers,
            f"{alias}->there.enabled": "true",
            "topics": topic,
            "emit.heartbeats.enabled": "false",
            "replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
        }


class OurMirror(MirrorMaker):
    """`ottla mirror` with the same file."""

    def start(self) -> OurMirror:
        self.file.write_text(self.text, encoding="utf-8")
        words = [sys.executable, "-m", "ottla", "mirror", str(self.file), "--status-interval", "0"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        return self


def measure(mirror: MirrorMaker, target: str, topic: str) -> tuple[float, float]:
    """Seconds from the first copied record to the last, and processor time of the process."""
    with mirror, Admin(target) as admin:
        mirror.start()
        begun: float | None = None
        limit = time.perf_counter() + LIMIT_S
        while (end := end_of(admin, topic)) < RECORDS:
            if begun is None and end:
                begun = time.perf_counter()
            if time.perf_counter() > limit:
                raise RuntimeError(f"{end} of {RECORDS} within {LIMIT_S} s: {mirror.log[-3000:]}")
            time.sleep(0.02)
        seconds = time.perf_counter() - (begun or limit - LIMIT_S)
        return seconds, cpu_seconds([mirror.pid])


def compare(way: Way, codec: str, folder: Path, theirs: Measured, ours: Measured) -> None:
    """One topic, copied by both in turns."""
    full = f"pages-{codec}"
    with Admin(way.source.bootstrap_servers) as source:
        source.create_topics([NewTopic(full, PARTITIONS, 1)])
    fill(way.source.bootstrap_servers, full, codec, RECORDS)
    volume = RECORDS * len(value_of(SIZE)) / MILLION
    for run in range(RUNS):
        for subject, kind in ((theirs, MirrorMaker), (ours, OurMirror)):
            alias = f"{subject.name.split()[0].lower()}{run}"
            name = f"{alias}-{way.name.split()[0]}-{codec}"
            mirror = kind(way.properties(alias, full), folder, name)
            seconds, cpu = measure(mirror, way.target.bootstrap_servers, f"{alias}.{full}")
            subject.note(f"{way.name}, {codec}: {RATE}", volume / seconds)
            subject.note(f"{way.name}, {codec}: {COST}", cpu * 1000 / volume)
            rate = f"{volume / seconds:.1f} {RATE}, {cpu:.1f} CPU s"
            print(f"{way.name}, {codec}, run {run}: {subject.name}: {rate}", flush=True)


def main() -> None:
    print(machine.describe())
    print(f"{RECORDS:,} records of {SIZE} bytes in {PARTITIONS} partitions, {RUNS} runs in turns")
    theirs, ours = Measured("MirrorMaker 4.1"), Measured("Ottla")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
        folder = Path(scratch)
        kafka = KafkaBroker(KafkaTools("4.1", kafka_jars("4.1")), folder / "kafka").format()
        ottla = BrokerProcess(folder / "ottla")
        try:
            kafka.start()
            ottla.start()
            for way in (Way(kafka, ottla, "to Ottla"), Way(ottla, kafka, "from Ottla")):
                for codec in CODECS:
                    compare(way, codec, folder, theirs, ours)
        finally:
            kafka.stop()
            ottla.kill()
    table(theirs, ours)


if __name__ == "__main__":
    main()
