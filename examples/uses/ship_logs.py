"""The log files of many hosts become a topic: how late its readers are, and how safe the lines.

    python examples/uses/ship_logs.py --bootstrap-server localhost:9092 --replication-factor 3

Log aggregation, with low latency and replication. Hosts write to
`<folder>/<host>/app.log`, and one rotates its file meanwhile; `LogFolderSource` follows them all in
a Connect worker.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from threading import Thread

from ottla import Admin, Consumer, KafkaError, NewTopic, TopicPartition
from ottla.connect.connect_worker import ConnectWorker

TOPIC = "logs"
PARTITIONS = 4
PAUSE_S = 0.01


class Host(Thread):
    """A program that writes a line now and then; each begins with the time of its writing."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        super().__init__(name=name)
        self.path = folder / name / "app.log"
        self.path.parent.mkdir()
        self.count = count

    def run(self) -> None:
        for number in range(self.count):
            if number == self.count // 2 and self.name == "web-0":
                self.path.rename(self.path.with_name("app.log.1"))
            with self.path.open("a") as file:
                file.write(f"{time.time_ns()} {number}\n")
            time.sleep(PAUSE_S)


def worker(servers: str, folder: Path) -> ConnectWorker:
    """A worker in this process; `ottla connect-standalone` is one in a process of its own."""
    strings = "org.apache.kafka.connect.storage.StringConverter"
    return ConnectWorker.standalone(
        {
            "bootstrap.servers": servers,
            "key.converter": strings,
            "value.converter": strings,
            "offset.storage.file.filename": str(folder / "offsets"),
            "listeners": "http://127.0.0.1:0",
        }
    )


def read(servers: str, count: int) -> tuple[dict[str, list[int]], list[float]]:
    """The numbers of each host's lines in order, and how many ms each line took to come here."""
    numbers: dict[str, list[int]] = defaultdict(list)
    late_ms: list[float] = []
    with Consumer(servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        while len(late_ms) < count:
            for record in reader.poll(timeout_ms=100):
                written, number = record.value.split()
                late_ms.append((time.time_ns() - int(written)) / 1e6)
                numbers[record.key.decode()].append(int(number))
    return numbers, late_ms


def run(servers: str, hosts: int = 20, lines: int = 100, replicas: int = 1) -> dict[str, object]:
    """Ship the lines of all hosts while they are written; returns what came of it."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas)])
    with TemporaryDirectory() as name, worker(servers, Path(name)) as connect:
        folder = Path(name) / "logs"
        folder.mkdir()
        connect.create(
            {
                "name": "ship-logs",
                "connector.class": "LogFolderSource",
                "path": f"{folder}/*/*.log",
                "topic": TOPIC,
                "scan.interval.ms": "20",
            }
        )
        writers = [Host(folder, f"web-{number}", lines) for number in range(hosts)]
        for writer in writers:
            writer.start()
        numbers, late_ms = read(servers, hosts * lines)
        for writer in writers:
            writer.join()
    with Admin(servers) as admin:
        partitions = admin.describe_topics([TOPIC])[TOPIC].partitions
    in_sync = [len(partition.isr) for partition in partitions]
    is_whole = all(found == list(range(lines)) for found in numbers.values())
    percent = quantiles(late_ms, n=100)
    print(f"{hosts} hosts wrote {hosts * lines} lines, and one of them rotated its file")
    print(f"{len(late_ms)} lines came, each host's once and in order: {is_whole}")
    print(f"from the file to a reader: half within {percent[49]:.0f} ms, 99 % in {percent[98]:.0f}")
    print(f"each line is on {min(in_sync)} brokers, of {replicas} that it should be on")
    return {
        "hosts": len(numbers),
        "whole": is_whole,
        "late": late_ms,
        "in sync": in_sync,
    }


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    arguments.add_argument("--replication-factor", type=int, default=1)
    given = arguments.parse_args()
    try:
        run(given.bootstrap_server, replicas=given.replication_factor)
    except KafkaError as error:
        raise SystemExit(error.message) from None  # as at a second run, while the topic is there
