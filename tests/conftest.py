"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_timeout
from _pytest.faulthandler import fault_handler_stderr_fd_key
from breadth import IS_FULL

from ottla.compiled import is_core_compiled
from ottla.runtime.java import JavaMissingError, require_java
from ottla.testing.processes import BrokerProcess, ZooKeeperProcess

if TYPE_CHECKING:
    import trustme

    from ottla.pipelines.python_daemon import ForkServer

_names = itertools.count()

# What is collected is kept: a third of the collection's CPU time went into looking for garbage.
gc.disable()

# A test starts many a Python: compiled once and kept, Ottla is imported twice as fast.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A JVM of a test lives for seconds: what is compiled once, and quickly, serves it better. `make`
# has kept the classes of ZooKeeper in a file, which one of another Java does not look at.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


KEPT_CLASSES = Path(sys.prefix) / "zookeeper-classes.jsa"
FROM_FILE = f"-XX:SharedArchiveFile={KEPT_CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"

os.environ.setdefault(
    "KAFKA_HEAP_OPTS", f"-Xmx512M {QUICK_JVM} {FROM_FILE if KEPT_CLASSES.exists() else ''}"
)
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)

# A shell lets what it runs in the background ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where a machine has much else to do, a JVM alone can take a minute to start; and a test that is
# cut off in the middle of a call leaves a Spark session behind that no other test can use.
SPARK_LIMIT_S = 600
DAY_MS = 24 * 3600 * 1000


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with Spark get more time, unless they name a limit of their own.

    Those marked as wide are for CI, and for who asks for them (`-m wide`, OTTLA_BREADTH=full).
    """
    if not (IS_FULL or config.option.markexpr == "wide"):
        wide = [item for item in items if item.get_closest_marker("wide")]
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
    for item in items:
        is_slow = item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ())
        if is_slow and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_LIMIT_S))


@pytest.fixture
def core_source() -> None:
    """The core as it is read from its source, for a test that replaces a function of it."""
    if is_core_compiled():
        pytest.skip("a compiled function of the core cannot be replaced: OTTLA_PURE=1 runs this")


# An alarm raises an exception in a test that takes too long. Code that swallows exceptions, as the
# callbacks of a loop do, may swallow this one: the process ends after so many times the limit.
LAST_RESORT = 2


class LastResort:
    """Ends the process; begun anew once in a while, as each time a thread ends and one starts.

    On a busy machine that took four milliseconds of a test, and ten thousand tests are one session.
    """

    LATE = 0.1
    """By this share of its limit it may end a test too early."""

    def __init__(self) -> None:
        self.limit_s = self.since_s = 0.0

    def begin(self, limit_s: float, stderr: int) -> None:
        now_s = time.monotonic()
        if limit_s != self.limit_s or now_s - self.since_s > self.LATE * limit_s:
            faulthandler.dump_traceback_later(limit_s, file=stderr, exit=True)
            self.limit_s, self.since_s = limit_s, now_s

    def cancel(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.limit_s = 0.0


last_resort = LastResort()


def limit_time(item: pytest.Item) -> None:
    """Begin a time limit, which holds whatever the test, or its teardown, waits for."""
    settings = pytest_timeout._get_item_settings(item)
    if settings.timeout and not item.config.getoption("usepdb"):
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        last_resort.begin(LAST_RESORT * settings.timeout, stderr)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Limit the time of a test from its first fixture to the end of its teardown.

    A command that it runs in this process sets up logging as for a process of its own.
    """
    root = logging.root
    level, handlers = root.level, [*root.handlers]
    limit_time(item)
    try:
        result = yield
        if nextitem is None:  # after an error of pytest's own the session has teardowns to run yet
            last_resort.cancel()
        return result
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Limit the time of a teardown after a failure as well.

    pytest takes off all alarms at a failure, for those who look around in a debugger then.
    """
    if isinstance(node, pytest.Item):
        last_resort.cancel()
        limit_time(node)


def pytest_collection_finish() -> None:
    """Look for garbage less often, and not among modules and tests: a fifth of the CPU time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def note_for_ci(line: str) -> None:
    """Add a line to the file by which .ci/run knows which tests to run once more."""
    path = os.environ.get("OTTLA_FAILED_TESTS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name each test that fails."""
    if report.failed:
        note_for_ci(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Say that the session came to its end, and how; its workers (pytest-xdist) do not count."""
    if not hasattr(session.config, "workerinput"):
        note_for_ci(f"# ended {int(exitstatus)}")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers with settings of their own; those still running are stopped in the end."""
    started: list[BrokerProcess] = []

    def start(data_dir: Path | None = None, *options: str, **overrides: str | int) -> BrokerProcess:
        process = BrokerProcess(data_dir or tmp_path / f"data-{len(started)}", **overrides)
        process.options = options
        started.append(process)
        return process.start()

    yield start
    for process in started:
        if process.process is not None:
            process.kill()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker that a whole session shares: tests use topics and groups of their own."""
    # Many records are of long ago: what is older than a week would go while a test still reads it.
    settings = {"log_retention_check_interval_ms": DAY_MS}
    process = BrokerProcess(tmp_path_factory.mktemp("shared") / "data", **settings).start()
    yield process
    assert process.stop() == 0, f"the shared broker ended badly:\n{process.log}"


@pytest.fixture(scope="session")
def complaints() -> Callable[[str], str]:
    """What a command with Spark has said on stderr, as far as it is to be taken seriously.

    On a busy machine Spark may find a query's Python late, and says so at length; the query is
    started again then, which is no fault.
    """
    started_again = "is started again: its Python process took longer"
    return lambda said: "" if started_again in said else said


@pytest.fixture
def sockets_left_open() -> Iterator[None]:
    """For tests with kafka-python, which leaves sockets to the collector: what Python warns of
    then is not about the broker. They are collected here, not in the middle of another test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        yield
        gc.collect()
        gc.freeze()  # what is left is not looked at again


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where there is no Java, which Spark and ZooKeeper's server need."""
    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def access_log() -> Path:
    """A real access log of ten thousand requests, kept beside the repository."""
    path = Path(__file__).parents[2] / "shared" / "data" / "access.log"
    if not path.exists():
        pytest.skip(f"the real access log is missing: {path}")
    return path


@dataclass(frozen=True)
class Certificates:
    """PEM files. An authority is the certificate that others are signed with; the rest are a
    private key, its certificate and the chain in one file."""

    ca: str
    """The authority that has signed `server`, `client`, `alice` and `elsewhere`."""
    server: str
    """For localhost and 127.0.0.1."""
    client: str
    alice: str
    """A client with the name CN=alice,OU=Clients,O=Example\\, Inc."""
    elsewhere: str
    """For another host than this one."""
    other_ca: str
    other: str
    """For localhost and 127.0.0.1, signed by the other authority."""

    @property
    def listener(self) -> dict[str, str]:
        """The settings of a broker that serves SSL alone, on a free port."""
        return {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": self.server}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made anew for each session."""
    import trustme  # half of the sessions do without

    folder = tmp_path_factory.mktemp("certificates")

    def write(name: str, *blobs: trustme.Blob) -> str:
        for blob in blobs:
            blob.write_to_path(folder / name, append=True)
        return str(folder / name)

    ca, other_ca = trustme.CA(), trustme.CA()
    here = ("localhost", "127.0.0.1")
    return Certificates(
        write("ca.pem", ca.cert_pem),
        write("server.pem", ca.issue_cert(*here).private_key_and_cert_chain_pem),
        write("client.pem", ca.issue_cert("someone@example.org").private_key_and_cert_chain_pem),
        write(
            "alice.pem",
            ca.issue_cert(
                common_name="alice",
                organization_unit_name="Clients",
                organization_name="Example, Inc.",
            ).private_key_and_cert_chain_pem,
        ),
        write("elsewhere.pem", ca.issue_cert("example.org").private_key_and_cert_chain_pem),
        write("other-ca.pem", other_ca.cert_pem),
        write("other.pem", other_ca.issue_cert(*here).private_key_and_cert_chain_pem),
    )


@pytest.fixture
def start_zookeeper(java: None, tmp_path: Path) -> Iterator[Callable[..., ZooKeeperProcess]]:
    """Starts ZooKeeper servers; those still running are stopped in the end."""
    started: list[ZooKeeperProcess] = []

    def start(**overrides: str | int) -> ZooKeeperProcess:
        process = ZooKeeperProcess(tmp_path / f"zookeeper-{len(started)}", **overrides)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        if process.process is not None:
            process.kill()


@pytest.fixture(scope="session")
def zookeeper(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """One server that a whole session shares: tests work below chroots of their own."""
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper") / "data").start()
    yield process
    assert process.stop() == 0, f"ZooKeeper ended badly:\n{process.log}"


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that no other test uses."""
    return lambda stem: f"{stem}-{next(_names)}"


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """What forks Spark's Python for this process, and for the drivers that its tests start."""
    from ottla.pipelines.python_daemon import ForkServer
    from ottla.pipelines.runner import PYTHONS

    server = ForkServer()
    with pytest.MonkeyPatch.context() as patch:
        for name in PYTHONS if server.is_usable else ():
            patch.setenv(name, server.python)
        yield server
    server.close()


@pytest.fixture(scope="session")
def spark(java: None, fork_server: ForkServer) -> Iterator[object]:
    """One Spark session for all tests that need one."""
    from ottla.pipelines.runner import spark_session

    session = spark_session("tests", short_run=True)
    yield session
    session.stop()
