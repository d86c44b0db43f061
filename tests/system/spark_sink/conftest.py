"""What the tests of the sink's transactions share: the sink of a query, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import ottla
from ottla.spark.exactly_once import BatchCommitter, TaskAttempt, write_prepared
from ottla.spark.sink_options import SinkOptions
from ottla.testing.processes import BrokerProcess

HERE = Path(__file__).parent


class Drivers:
    """Processes of the crash driver, forks of one that has imported PySpark for all of them."""

    def __init__(self, log_path):
        self.log_path = log_path
        with log_path.open("w") as log:
            self.server = subprocess.Popen(
                [sys.executable, str(HERE / "sink_crash_driver.py"), "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *arguments):
        """Run one to its end; its status, negative if a signal killed it."""
        self.server.stdin.write(json.dumps(arguments) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    @property
    def log(self):
        """The errors of all of them."""
        return self.log_path.read_text()

    def close(self):
        self.server.communicate()


class Sink:
    """A topic of two partitions, written by a query whose id is the topic's name."""

    def __init__(self, servers, topic, drivers, **options):
        self.servers, self.topic, self.drivers = servers, topic, drivers
        self.options = SinkOptions.for_stream(
            {"kafka.bootstrap.servers": servers, "topic": topic, **options}
        )
        with ottla.Admin(servers) as admin:
            admin.create_topics([ottla.NewTopic(topic, 2)])

    def write(self, batch_id, task, *rows, run="run", attempt=0):
        """What a task returns that has written these rows."""
        values = pa.array([row.encode() for row in rows], pa.binary())
        where = TaskAttempt(self.topic, run, batch_id, task, attempt)
        return write_prepared(self.options, where, iter([pa.record_batch([values], ["value"])]))

    def committer(self):
        """A driver's side, as a new process of it would have it."""
        return BatchCommitter(f"ottla-spark-{self.topic}", self.options.client)

    def run(self, name, crash, *batches, way="sink"):
        """One process that writes and commits batches, to the moment at which it dies."""
        return self.drivers.run(way, self.servers, self.topic, name, crash, *batches)

    def values(self):
        """What read_committed readers find, sorted; there is nothing that they must wait for."""
        from committed_records import committed_values

        return committed_values(self.servers, self.topic)


@pytest.fixture(scope="session")
def quick_broker(tmp_path_factory):
    """A broker that looks every few moments for transactions whose time is over."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    process = BrokerProcess(tmp_path_factory.mktemp("sink") / "data", **often).start()
    yield process
    assert process.stop() == 0, process.log


@pytest.fixture(scope="session")
def drivers(tmp_path_factory):
    drivers = Drivers(tmp_path_factory.mktemp("drivers") / "errors.log")
    yield drivers
    drivers.close()


@pytest.fixture
def sink(quick_broker, drivers, unique):
    """A sink that no other test uses."""
    return Sink(quick_broker.bootstrap_servers, unique("once"), drivers)
