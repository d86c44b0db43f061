"""A group of Connect workers as processes, and what kills one of them under load."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forked_process import ForkedProcess

from ottla import Consumer
from ottla.runtime.free_port import free_port
from ottla.structs import TopicPartition
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

STARTUP_SECONDS = 180
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
SESSION_MS = 6000


def group_properties(servers: str, **more: object) -> dict[str, str]:
    """The properties of a worker in the group that a test has."""
    return {
        "bootstrap.servers": servers,
        "group.id": "workers",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "3",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "2",
        "offset.flush.interval.ms": "200",
        "scheduled.rebalance.max.delay.ms": "0",
    } | {name.replace("_", "."): str(value) for name, value in more.items()}


class WorkerProcess:
    """A worker of a group, by `ottla connect-distributed`. It keeps its port over restarts."""

    kind = "ottla"

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        port = free_port("127.0.0.1")
        self.id = f"127.0.0.1:{port}"
        self.url = f"http://{self.id}"
        self._log_path = folder / f"{self.kind}-{port}.log"
        self.file = folder / f"{self.kind}-{port}.properties"
        given = {"listeners": self.url, **properties}
        self.file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [sys.executable, "-m", "ottla", "connect-distributed", str(self.file)]

    @property
    def runs(self) -> bool:
        return self._process is not None

    def launch(self) -> WorkerProcess:
        """Start without waiting."""
        with self._log_path.open("ab") as log:
            self._process = ForkedProcess(self.command(), stdout=log, stderr=log)
        return self

    def start(self) -> WorkerProcess:
        """Start, and wait until it is in the group."""
        return self.launch().wait_until_ready()

    def wait_until_ready(self) -> WorkerProcess:
        wait_until(self._is_ready, f"a worker of {self.kind}", STARTUP_SECONDS, seen=self.tail)
        return self

    def tail(self) -> str:
        """The end of what it has logged."""
        return self._log_path.read_text(errors="replace")[-6000:]

    def _is_ready(self) -> bool:
        assert self._process is not None, "launched"
        assert self._process.poll() is None, f"{self.kind} ended:\n{self.tail()}"
        try:
            return self.ask("GET", "/health")[0] == 200
        except (OSError, ValueError):
            return False  # Kafka's server answers in HTML before its own API is there

    def kill(self) -> None:
        """As by kill -9; nothing where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STARTUP_SECONDS)
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer; None where it has no body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                content = error.read()
                return error.code, json.loads(content) if content else None


SOURCE = '''
from ottla.config.config_def import REQUIRED, ConfigTable, config_key
from ottla.connect.connector import SourceConnector
from ottla.connect.data import SourceRecord


class Numbers(SourceConnector):
    """Each task counts, in batches, and says which task it is."""

    class Settings(ConfigTable):
        topic: str = config_key(default=REQUIRED, doc="The topic.")
        count: int = config_key(default=REQUIRED, doc="How many of each task.")
        batch: int = config_key(default=REQUIRED, doc="How many at once.")
        number: int = config_key(default=0, doc="Of the task.")

    idle_s = 0.05

    def tasks(self, max_tasks):
        return [{"number": str(number)} for number in range(max_tasks)]

    def partition(self):
        return {"task": self.settings.number}

    def records(self, offset):
        first = offset["n"] + 1 if offset else 0
        for number in range(first, self.settings.count):
            yield SourceRecord(
                topic=self.settings.topic,
                value=f"{self.settings.number}:{number}",
                source_partition=self.partition(),
                source_offset={"n": number},
            )
            if number % self.settings.batch == self.settings.batch - 1:
                yield None

    @classmethod
    def is_exactly_once(cls, settings):
        return True
'''


class CommittedRecords:
    """Keys and values of the committed records of a topic of one partition, read on and on."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self.found: list[tuple[str, str]] = []
        self._place = TopicPartition(topic, 0)
        self._consumer = Consumer(servers, settings)
        self._consumer.assign([self._place])
        self._consumer.seek(self._place, 0)

    def __enter__(self) -> CommittedRecords:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()

    def read(self) -> list[tuple[str, str]]:
        """All that there is by now."""
        end = self._consumer.end_offsets([self._place])[self._place]
        while self._consumer.position(self._place) < end:
            self.found += [
                ((record.key or b"").decode(), (record.value or b"").decode())
                for record in self._consumer.poll(500)
            ]
        return self.found


def records(servers: str, topic: str) -> list[tuple[str, str]]:
    """Keys and values of all committed records of a topic of one partition."""
    with CommittedRecords(servers, topic) as reader:
        return reader.read()


def kill_one_of_three(
    folder: Path, seed: int, is_exactly_once: bool, count: int = 1000
) -> dict[str, Any]:
    """One seed: which worker dies, when, with what delay, and what came of it.

    Each task has `count` records. Nothing but processes can be killed in the middle of a step.
    """
    chance = random.Random(seed)
    tasks = chance.randint(3, 6)
    batch, delay_ms = chance.randint(1, 9), chance.choice([0, 1000, 3000])
    fails_at = chance.uniform(0.05, 0.6) * tasks * count
    (folder / "numbers.py").write_text(SOURCE)
    broker = BrokerProcess(folder / "data").start()
    properties = group_properties(
        broker.bootstrap_servers,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        scheduled_rebalance_max_delay_ms=delay_ms,
        exactly_once_source_support="enabled" if is_exactly_once else "disabled",
        plugin_path=folder,
    )
    workers = [WorkerProcess(folder, properties) for _ in range(3)]
    try:
        for worker in workers:
            worker.launch()
        for worker in workers:
            worker.wait_until_ready()
        config = {"connector.class": "Numbers", "topic": "t", "tasks.max": str(tasks)}
        config |= {"count": str(count), "batch": str(batch)}
        assert workers[0].ask("PUT", "/connectors/load/config", config)[0] == 201
        victim = chance.choice(workers)
        with Consumer(broker.bootstrap_servers, {}) as consumer:
            seen = wait_until(
                lambda: (found := _so_far(consumer, "t")) >= fails_at and found, "a load", 180
            )
        victim.kill()
        killed = time.monotonic()
        left = [worker for worker in workers if worker is not victim]
        wait_until(
            lambda: _all_run(left, tasks), "tasks on those that are left", 180, seen=left[0].tail
        )
        back_s = time.monotonic() - killed
        if chance.random() < 0.5:
            victim.launch()
        wanted = {f"{task}:{number}" for task in range(tasks) for number in range(count)}
        with CommittedRecords(broker.bootstrap_servers, "t") as reader:
            wait_until(
                lambda: (
                    len(reader.read()) >= len(wanted)
                    and wanted <= {value for _, value in reader.found}
                ),
                "every record",
                300,
            )
            found = Counter(value for _, value in reader.read())
    finally:
        for worker in workers:
            worker.kill()
        broker.kill()
    return {
        "seed": seed,
        "killed at": int(seen),
        "back after s": round(back_s, 1),
        "session and delay": (SESSION_MS + delay_ms) / 1000,
        "lost": len(wanted - found.keys()),
        "twice": sum(found.values()) - len(found),
    }


def _so_far(consumer: Consumer, topic: str) -> int:
    if topic not in consumer.list_topics():
        return 0
    place = TopicPartition(topic, 0)
    return consumer.end_offsets([place])[place]


def _all_run(workers: list[WorkerProcess], tasks: int) -> bool:
    status, found = workers[0].ask("GET", "/connectors/load/status")
    states = [found["connector"], *found["tasks"]] if status == 200 else []
    owners = {worker.id for worker in workers}
    return len(states) == tasks + 1 and all(
        each["state"] == "RUNNING" and each["worker_id"] in owners for each in states
    )
