"""Each command in a process of its own, against a real broker, as the articles print them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ottla.testing.broker_process import BrokerProcess

LIMIT_S = 120
Completed = subprocess.CompletedProcess[str]
Run = Callable[..., Completed]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run `ottla` with these words to its end."""

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
        started.append(subprocess.Popen(command, text=True, **pipes))
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


@pytest.fixture
def topic(ottla: Run, unique: Callable[[str], str]) -> str:
    """A topic with three partitions."""
    name = unique("three")
    ottla("topics", "--create", "--partitions", 3, "--replication-factor", 1, "--topic", name)
    return name


@pytest.fixture
def narrow(ottla: Run, unique: Callable[[str], str]) -> str:
    """A topic with one partition, so that records keep their order."""
    name = unique("narrow")
    ottla("topics", "--create", "--partitions", 1, "--topic", name)
    return name


@pytest.fixture
def group(ottla: Run, narrow: str) -> str:
    """A group that has read ten records of the narrow topic, and has left."""
    name = f"{narrow}-group"
    ottla("console-producer", "--topic", narrow, stdin="".join(f"{n}\n" for n in range(10)))
    words = ("--topic", narrow, "--from-beginning", "--group", name)
    ottla("console-consumer", *words, "--max-messages", 10)
    return name
