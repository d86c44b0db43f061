"""Each command in a process of its own, against a real broker, as the articles print them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from command_here import run_here
from forked_process import ForkedProcess

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.testing.processes import BrokerProcess

LIMIT_S = 120
Completed = subprocess.CompletedProcess[str]
Run = Callable[..., Completed]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run `ottla` with these words to its end, in this process."""
    return run_here


@pytest.fixture(scope="session")
def run_process() -> Run:
    """The same in a process of its own: for brokers, and once for the tools of each quickstart."""

    def run_to_its_end(*words: object, stdin: str = "") -> Completed:
        return subprocess.run(
            [sys.executable, "-m", "ottla", *map(str, words)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run_to_its_end


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `ottla` with these words; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start_process(*words: object, **streams: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [sys.executable, "-m", "ottla", *map(str, words)]
        started.append(ForkedProcess(command, text=True, **pipes))
        return started[-1]

    yield start_process
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ottla(run: Run, broker: BrokerProcess) -> Run:
    """Run a tool against the broker; it has to succeed."""

    def run_tool(name: str, *words: object, stdin: str = "") -> Completed:
        done = run(name, "--bootstrap-server", broker.bootstrap_servers, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done

    return run_tool


@pytest.fixture
def fails(run: Run, broker: BrokerProcess) -> Callable[..., str]:
    """Run a tool that has to fail with one line, and return that line."""

    def run_tool(name: str, *words: object) -> str:
        done = run(name, "--bootstrap-server", broker.bootstrap_servers, *words)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    return run_tool


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """For what tests only begin with: a command would take half a second."""
    with Admin(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(admin: Admin, unique: Callable[[str], str]) -> str:
    """A topic with three partitions."""
    name = unique("three")
    admin.create_topics([NewTopic(name, 3, 1)])
    return name


@pytest.fixture
def narrow(admin: Admin, unique: Callable[[str], str]) -> str:
    """A topic with one partition, so that records keep their order."""
    name = unique("narrow")
    admin.create_topics([NewTopic(name, 1, 1)])
    return name


@pytest.fixture
def group(broker: BrokerProcess, narrow: str) -> str:
    """A group that has read ten records of the narrow topic, and has left."""
    name = f"{narrow}-group"
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(narrow, str(number))
    settings = {"group_id": name, "auto_offset_reset": "earliest", "topics": [narrow]}
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        count = 0
        while count < 10:
            count += len(consumer.poll(1000))
        consumer.commit()
    return name
