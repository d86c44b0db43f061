"""`ottla cluster` as a person uses it: ZooKeeper and brokers in one command."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from forked_process import ForkedProcess, run_forked

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.testing import wait_until

LIMIT_S = 60
COMMAND = [sys.executable, "-m", "ottla", "cluster"]
FREE_PORTS = ["--base-port", "0", "--zookeeper-port", "0"]


class RunningCluster:
    """The command with two brokers, until it is interrupted; `lines` is what it has printed."""

    def __init__(self, data_dir: Path) -> None:
        self.process = ForkedProcess(
            [
                *COMMAND,
                *("--brokers", "2", "--data-dir", str(data_dir), *FREE_PORTS),
                *("--override", "offsets.topic.num.partitions=1"),
                *("--override", "zookeeper.session.timeout.ms=2000"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.lines: list[str] = []
        self.bootstrap_servers = self.until("The cluster is ready").rpartition(" ")[2]

    def until(self, start: str) -> str:
        """The next line that starts like this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.lines[-1]
        raise AssertionError(f"no line starts with {start!r} in {self.lines}")

    def interrupt(self) -> list[str]:
        """Ctrl-C; what it printed then."""
        before = len(self.lines)
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0
        self.lines += out.splitlines()
        return self.lines[before:]


@pytest.fixture
def start_cluster(java, tmp_path):
    """Starts the command, more than once on the same data if wanted."""
    started = []

    def start() -> RunningCluster:
        started.append(RunningCluster(tmp_path / "data"))
        return started[-1]

    yield start
    for cluster in started:
        cluster.process.kill()  # its children end with it
        cluster.process.communicate()


def refused(*options: str, **environment: str) -> str:
    """The one line on stderr of a cluster that does not start."""
    done = run_forked([*COMMAND, *options], timeout=LIMIT_S, env=os.environ | environment)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    return line


def test_cluster_starts_stops_in_order_and_goes_on(start_cluster, tmp_path):
    """A line for each server; ZooKeeper stops last; the next time all is there.

    A group can begin to read while a broker is dead.
    """
    cluster = start_cluster()
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("kept", 1, 2)])
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        producer.send("kept", b"here").result()

    assert [re.sub(r"(?<=[: ])\d{2,}(?=[,)]|$)", "N", line) for line in cluster.lines] == [
        f"ZooKeeper is ready at 127.0.0.1:N, log {tmp_path}/data/zookeeper.log (process N)",
        f"broker 0 is ready at 127.0.0.1:N, log {tmp_path}/data/server-0.log (process N)",
        f"broker 1 is ready at 127.0.0.1:N, log {tmp_path}/data/server-1.log (process N)",
        "The cluster is ready: --bootstrap-server 127.0.0.1:N,127.0.0.1:N",
    ]
    assert cluster.interrupt() == [
        "broker 1 is stopped",
        "broker 0 is stopped",
        "ZooKeeper is stopped",
    ]

    again = start_cluster()
    os.kill(int(re.findall(r"process (\d+)", again.lines[2])[0]), signal.SIGKILL)
    assert again.until("broker 1") == (
        f"broker 1 has ended: status -9 (see {tmp_path}/data/server-1.log); "
        f"start it again with: ottla broker {tmp_path}/data/server-1.properties"
    )
    assert first_value(again.bootstrap_servers, "kept") == b"here"
    assert again.interrupt() == ["broker 0 is stopped", "ZooKeeper is stopped"]


def first_value(bootstrap_servers: str, topic: str) -> bytes | None:
    """What a group reads first: its coordinator is made by the brokers that are left."""
    with Consumer(bootstrap_servers, auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe([topic])
        records = wait_until(lambda: consumer.poll(timeout_ms=1000), f"a record of {topic}")
    return records[0].value


def test_taken_port_is_one_line(java, tmp_path):
    """Nothing is started when a server could not listen."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--data-dir", str(tmp_path), "--brokers", "1", "--base-port", str(port))

    assert line == f"ottla cluster: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_missing_java_is_one_line(tmp_path):
    """It says what to install."""
    line = refused("--data-dir", str(tmp_path), *FREE_PORTS, PATH="/none", JAVA_HOME="")

    assert line.startswith("ottla cluster: Java is missing: ")
    assert "apt-get install" in line


def test_second_cluster_on_the_same_data_is_refused(java, tmp_path):
    """Two ZooKeepers would ruin each other's files."""
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        line = refused("--data-dir", str(tmp_path), *FREE_PORTS)

    assert line == f"ottla cluster: --data-dir {tmp_path}: another cluster runs on it"


@pytest.mark.parametrize(
    ("below", "why"),
    [
        ("", "--data-dir={}: must be a folder, and no link to one"),
        ("deeper", "--data-dir {}: Not a directory"),
    ],
)
def test_data_dir_that_cannot_be_made_is_one_line(java, tmp_path, below, why):
    """The folder is named."""
    taken = tmp_path / "taken"
    taken.write_bytes(b"")
    line = refused("--data-dir", str(taken / below), *FREE_PORTS)

    assert line == f"ottla cluster: {why.format(taken / below)}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--brokers", "0"], "--brokers takes a number from 1 to 100, not '0'"),
        (["--base-port", "65534"], "--base-port 65534, --zookeeper-port 2181: no ports"),
        (["--override", "listeners=A"], "--override listeners: the cluster gives each broker"),
        (["--override", "listeners"], "--override takes key=value, not 'listeners'"),
        (["--override", "num.partitions=x", *FREE_PORTS], "num.partitions"),
    ],
)
def test_bad_options_are_named(java, tmp_path, options, said):
    """The value and the rule, and nothing has been started."""
    assert said in refused("--data-dir", str(tmp_path), *options)
