"""A Parquet sink in a worker that is killed with kill -9, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet
from forked_process import ForkedProcess

from ottla import Producer
from ottla.testing import InProcessBroker, wait_until

TOPIC = "orders"
PARTITIONS = 3
IN_A_FILE = 25
FILES_OF_A_LIFE = 3
"""So many files of each partition become possible while one worker lives."""
LIVES = 4
SETTINGS = {"group_min_session_timeout_ms": 100}
"""Of the broker, which has to see soon that a killed worker is gone."""


class SinkWorker:
    """A worker in a process of its own, with one sink of two tasks."""

    def __init__(self, broker: InProcessBroker, folder: Path) -> None:
        self.folder = folder
        self._files = [folder / "worker.properties", folder / "sink.properties"]
        worker = {
            "bootstrap.servers": broker.bootstrap_servers,
            "key.converter": "StringConverter",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 100,
            "listeners": "http://127.0.0.1:0",
            "consumer.session.timeout.ms": 2000,
            "consumer.heartbeat.interval.ms": 200,
        }
        sink = {
            "name": "lake",
            "connector.class": "FilesSink",
            "tasks.max": 2,
            "topics": TOPIC,
            "url": f"file://{folder}/lake",
            "records.per.file": IN_A_FILE,
            "with.metadata": "true",
        }
        for file, properties in zip(self._files, (worker, sink), strict=True):
            file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return ForkedProcess(
                [sys.executable, "-m", "ottla", "connect-standalone", *map(str, self._files)],
                stdout=log,
                stderr=log,
            )

    def files(self) -> list[Path]:
        """Those that readers of the table see."""
        return sorted(
            path for path in (self.folder / "lake").rglob("*.parquet") if path.name[0] != "."
        )

    def rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        """The table: partition, offset and value, in order."""
        return sorted(
            (row.pop("__partition"), row.pop("__offset"), {"id": row["id"], "tags": row["tags"]})
            for file in self.files()
            for row in pyarrow.parquet.read_table(file, partitioning=None).to_pylist()
        )

    def said(self) -> str:
        return (self.folder / "log").read_text()[-4000:]


def sink_through_kills(broker: InProcessBroker, folder: Path, seed: int) -> None:
    """Fill a topic while workers live and die; in the end the table is the topic."""
    random = Random(seed)
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    worker = SinkWorker(broker, folder)
    number = 0
    for life in range(LIVES):
        process = worker.start()
        try:
            with Producer(broker.bootstrap_servers) as producer:
                for partition in range(PARTITIONS):
                    for _ in range(IN_A_FILE * FILES_OF_A_LIFE):
                        value = {"id": number, "tags": ["x"] * random.randrange(3)}
                        number += 1
                        producer.send(
                            TOPIC, json.dumps(value), key=f"k{number}", partition=partition
                        )
            possible = PARTITIONS * FILES_OF_A_LIFE * (life + 1)
            is_last = life == LIVES - 1
            wanted = possible if is_last else random.randint(len(worker.files()), possible)
            wait_until(
                lambda wanted=wanted: len(worker.files()) >= wanted,  # type: ignore[misc]
                f"{wanted} files, seed {seed}",
                seen=worker.said,
            )
        finally:
            process.kill()
            process.wait()
    topic = [
        (partition, record.offset, json.loads(record.value or b""))
        for partition in range(PARTITIONS)
        for record in broker.records(TOPIC, partition)
    ]
    assert worker.rows() == topic, f"seed {seed}"
