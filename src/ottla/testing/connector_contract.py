"""Rules of every connector, as tests that authors inherit; and a worker for tests of theirs.

    from ottla.testing.connector_contract import SourceContract

    class TestTicks(SourceContract):
        connector = Ticks
        settings = {"count": "0"}

        def bring(self, count):        # have the source say `count` records more
            ...

The tests run a worker in the process (`connect_worker`) against a broker of each test's own
(`ottla_fresh_broker`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ottla.clients.producer.producer import Producer
from ottla.connect.connect_worker import ConnectWorker
from ottla.connect.connector import Connector
from ottla.errors import KafkaError
from ottla.testing.in_process_broker import InProcessBroker
from ottla.testing.waiting import LIMIT_S, wait_until

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
NAME = "contract"
TOPIC = "contract-topic"


def worker_properties(broker: InProcessBroker, folder: Path) -> dict[str, str]:
    """A standalone worker's, for a test: it stores offsets often and listens at any free port.

    It is patient: a task that a busy machine stops slowly is not left behind.
    """
    limit_ms = str(int(LIMIT_S * 1000))
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "offset.flush.interval.ms": "50",
        "offset.flush.timeout.ms": limit_ms,
        "task.shutdown.graceful.timeout.ms": limit_ms,
        "listeners": "http://127.0.0.1:0",
    }


@pytest.fixture
def connect_worker(ottla_fresh_broker: InProcessBroker, tmp_path: Path) -> Iterator[ConnectWorker]:
    """A standalone worker in the process of the test."""
    with ConnectWorker.standalone(worker_properties(ottla_fresh_broker, tmp_path)) as worker:
        yield worker


class ConnectorContract:
    """Rules that sources and sinks have in common."""

    connector: ClassVar[type[Connector]]
    settings: ClassVar[Mapping[str, str]] = {}
    """Its settings; those of the worker, and the topic or topics, are added."""
    bad_settings: ClassVar[Sequence[Mapping[str, str]]] = ()
    """Changes of the settings each of which must be refused."""

    @pytest.fixture(autouse=True)
    def _world(self, ottla_fresh_broker: InProcessBroker, tmp_path: Path) -> None:
        self.broker = ottla_fresh_broker
        self.folder = tmp_path

    def properties(self, **changes: str) -> dict[str, str]:
        """The whole properties of the connector."""
        own = {key.replace("_", "."): value for key, value in changes.items()}
        place = f"{self.connector.__module__}.{self.connector.__qualname__}"
        return {"name": NAME, "connector.class": place, **self.own_settings(), **own}

    def own_settings(self) -> Mapping[str, str]:
        """The connector's settings, for a class that knows them only in a test."""
        return self.settings

    def worker(self) -> ConnectWorker:
        """A worker; after it is closed, the next one continues from its offsets."""
        return ConnectWorker.standalone(worker_properties(self.broker, self.folder))

    def wait_until_running(self, worker: ConnectWorker) -> None:
        """Wait until all tasks run; a failure is shown with its trace."""

        def is_running() -> bool:
            tasks = worker.status(NAME)["tasks"]
            return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

        wait_until(is_running, "all tasks running", seen=lambda: worker.status(NAME))

    def test_bad_settings_are_refused(self) -> None:
        """Each of `bad_settings` is an error before anything runs."""
        with self.worker() as worker:
            for changes in self.bad_settings:
                with pytest.raises(KafkaError):
                    worker.create({**self.properties(), **changes})

    def test_settings_are_documented(self) -> None:
        """Each setting has a sentence that documents it."""
        assert all(row.doc for row in self.connector.Settings.keys.values())

    def test_it_stops_in_time(self) -> None:
        """A worker that closes need not leave it behind, although it waits for a minute."""
        self.prepare()
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_until_running(worker)
            tasks = list(worker.herder.worker.tasks.values())
        assert all(task.finished.done() for task in tasks)

    def prepare(self) -> None:
        """The preparations of a test before its connector runs."""


class SourceContract(ConnectorContract):
    """A source brings everything once, and continues where it was."""

    topic: ClassVar[str] = TOPIC

    def own_settings(self) -> Mapping[str, str]:
        return {"topic": self.topic, **self.settings}

    def bring(self, count: int) -> None:
        """Have the system that is read say so many records more."""
        raise AssertionError(f"{type(self).__name__} must define bring(count)")

    def arrived(self) -> list[tuple[Any, Any]]:
        """Keys and values in the topic."""
        return [(record.key, record.value) for record in self.broker.records(self.topic)]

    def wait_for(self, count: int) -> list[tuple[Any, Any]]:
        """Wait for so many records."""
        self.broker.wait_for_records(self.topic, count, limit=LIMIT_S)
        return self.arrived()

    def test_records_arrive_while_it_runs(self) -> None:
        """Rows from before the start are delivered, and later ones."""
        self.bring(2)
        with self.worker() as worker:
            worker.create(self.properties())
            assert len(self.wait_for(2)) == 2
            self.bring(3)
            assert len(self.wait_for(5)) == 5

    def test_it_resumes_without_repeating(self) -> None:
        """After a stop in order nothing is missing and nothing there twice."""
        self.bring(3)
        with self.worker() as worker:
            worker.create(self.properties())
            first = self.wait_for(3)
        self.bring(2)
        with self.worker() as worker:
            worker.create(self.properties())
            found = self.wait_for(5)
        assert found[:3] == first
        assert len(found) == 5

    def test_a_restart_repeats_nothing(self) -> None:
        """Tasks that are stopped and started by request."""
        self.bring(2)
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(2)
            worker.run(worker.herder.restart(NAME, include_tasks=True, only_failed=False))
            self.bring(1)
            assert len(self.wait_for(3)) == 3


class SinkContract(ConnectorContract):
    """A sink writes everything, and nothing twice unless it was killed."""

    topic: ClassVar[str] = TOPIC
    partitions: ClassVar[int] = 2

    def own_settings(self) -> Mapping[str, str]:
        return {"topics": self.topic, **self.settings}

    def written(self) -> Sequence[str]:
        """The values that the system holds now."""
        raise AssertionError(f"{type(self).__name__} must define written()")

    def prepare(self) -> None:
        if self.topic not in self.broker.topics():
            self.broker.create_topic(self.topic, partitions=self.partitions)

    def send(self, values: Sequence[str]) -> None:
        """Put records into the topic, round robin over its partitions."""
        self.prepare()
        with Producer(self.broker.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                place = number % self.partitions
                producer.send(self.topic, value.encode(), partition=place)

    def wait_for(self, values: Sequence[str]) -> None:
        """Wait until exactly these are written, in any order."""
        wait_until(
            lambda: sorted(self.written()) == sorted(values),
            f"{len(values)} records at the sink",
            seen=self.written,
        )

    def test_records_are_written(self) -> None:
        """Records from before the start are delivered, and later ones."""
        self.send(["a", "b"])
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(["a", "b"])
            self.send(["c"])
            self.wait_for(["a", "b", "c"])

    def test_it_resumes_without_repeating(self) -> None:
        """After a stop in order it continues behind the records that it has written."""
        self.send(["a", "b"])
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(["a", "b"])
        self.send(["c"])
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(["a", "b", "c"])

    def test_a_rebalance_repeats_nothing(self) -> None:
        """Partitions that move to another task, as the number of tasks grows."""
        self.send(["a", "b"])
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(["a", "b"])
            worker.create(self.properties(tasks_max="2"))
            self.wait_until_running(worker)
            self.send(["c", "d"])
            self.wait_for(["a", "b", "c", "d"])
