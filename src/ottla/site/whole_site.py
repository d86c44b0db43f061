"""The whole site: brokers, one stream of activity, and every reader of it at the same time.

Wing: starts the others of this room, each reader as a process, and again when it has died. It shows
the flow on a page while it runs, and in the end the fate of every record. The page is one HTML file
that needs no network: it is rewritten, and an open browser shows each new one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ottla import Admin, Consumer, NewTopic, TopicPartition
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.site_traffic import DEFAULT_SEED
from ottla.pipelines.topics import Pace, publish
from ottla.runtime.child_process import ending_with_parent
from ottla.site.activity import FOLLOWS, PARTITIONS, TOPICS, Activity, Happening, generated, in_time
from ottla.site.ledger import Entry, Ledger
from ottla.site.log_replay import replayed
from ottla.site.readers import LATE_JOINER, PAGE, READERS, TOPIC_OF, ReaderProgress
from ottla.testing.processes import BrokerProcess, ClusterProcess

TEMPLATE = Path(__file__).with_name("site.html")


@dataclass(slots=True)
class WholeSite:
    """One run; `entries` is its ledger afterwards."""

    options: SiteOptions
    say: Callable[[str], object]
    entries: list[Entry] = field(default_factory=list)
    incidents: list[tuple[float, str]] = field(default_factory=list)
    _servers: str = ""
    _started_s: float = 0.0
    _processes: dict[str, _Process] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _cluster: ClusterProcess | None = None

    @property
    def page(self) -> Path:
        return self.options.folder / PAGE

    def run(
        self,
        is_over: Callable[[], bool] = lambda: False,
        at_start: Callable[[str], object] = lambda servers: None,
        at_end: Callable[[list[Entry]], object] = lambda entries: None,
    ) -> list[Entry]:
        """Publish and read until the time is over, wait for the readers, and balance the ledger.

        `at_start` gets the brokers' addresses; `at_end` the ledger, while the brokers still run.
        """
        options = self.options
        options.folder.mkdir(parents=True, exist_ok=True)
        activity = self._activity()
        with ExitStack() as stack:
            stack.enter_context(self._brokers())
            at_start(self._servers)
            self._make_topics()
            publish(self._servers, activity.follows)
            self._started_s = time.monotonic()
            stack.callback(self._stop_readers)
            self._start_readers()
            self.say(f"the flow, while it runs: {self.page}")
            with self._publishing(activity.happenings) as publisher:
                self._watch(lambda: is_over() or not publisher.is_alive(), late_s=self._half_s)
            self._start(LATE_JOINER)
            self.say("all is published; the readers read to the end")
            self._watch(self._has_all_read, limit_s=DRAIN_LIMIT_S)
            self._stop_readers()
            self.entries = list(Ledger(self._servers, options.folder).entries())
            self._write_page(refresh_s=0)
            at_end(self.entries)
        return self.entries

    def _activity(self) -> Activity:
        if self.options.log is not None:
            log = AccessLog(self.options.log)
            activity = replayed(log)
            self.say(f"log: {log.ledger.words()}")
            return activity
        # There are about three events for each page view, and the rate is that of all events.
        return generated(self.options.seed, int(self.options.rate * self.options.seconds) + 1)

    @property
    def _half_s(self) -> float:
        return self.options.seconds / 2

    @contextmanager
    def _brokers(self) -> Iterator[None]:
        """The brokers, for as long as the block."""
        folder = self.options.folder / BROKERS
        self.say("starting " + ("a broker" if self.options.brokers == 1 else "a cluster"))
        if self.options.brokers == 1:
            broker = BrokerProcess(folder)
            broker.ends_with_parent = True
            broker.start()
            self._servers = broker.bootstrap_servers
            stop: Callable[[], object] = broker.stop
        else:
            self._cluster = ClusterProcess(folder, self.options.brokers)
            for each in (self._cluster.zookeeper, *self._cluster.brokers.values()):
                each.ends_with_parent = True
            self._cluster.start()
            self._servers = self._cluster.bootstrap_servers
            stop = self._cluster.stop
        try:
            yield
        finally:
            stop()

    def _make_topics(self) -> None:
        with Admin(self._servers) as admin:
            create_missing_topics(
                admin,
                (
                    NewTopic(
                        topic,
                        PARTITIONS,
                        configs={"cleanup.policy": "compact"} if topic == FOLLOWS else {},
                    )
                    for topic in TOPICS
                ),
            )

    @contextmanager
    def _publishing(self, happenings: Iterator[Happening]) -> Iterator[threading.Thread]:
        """Publish in a thread: made-up activity at its rate until the time is over, a log whole."""
        options, over = self.options, threading.Event()
        ends_s = time.monotonic() + options.seconds

        def is_over() -> bool:
            return over.is_set() or (options.log is None and time.monotonic() >= ends_s)

        if options.log is not None:
            events = in_time(happenings, options.speed, is_over)
            rate = None
        else:
            events = (each.event for each in happenings)
            rate = options.rate
        thread = threading.Thread(
            target=lambda: publish(self._servers, events, Pace(rate, is_over)),
            name="publisher",
            daemon=True,
        )
        thread.start()
        try:
            yield thread
        finally:
            over.set()
            thread.join()

    # Readers

    def _start_readers(self) -> None:
        for name in (*READERS, SPARK):
            words = ["--bootstrap-server", self._servers, "--folder", str(self.options.folder)]
            if name == SPARK:
                words += ["--master", self.options.master]
                words += ["--progress"] if self.options.has_progress else []
            module = ["ottla.site.spark_readers"] if name == SPARK else ["ottla.site.readers", name]
            command = [sys.executable, "-P", "-m", *module, *words]
            log = self.options.folder / f"{name}.log"
            self._processes[name] = _Process(name, command, log)
            if name != LATE_JOINER:
                self._start(name)

    def _start(self, name: str) -> None:
        process = self._processes[name]
        if process.running is None:
            process.start()

    def _stop_readers(self) -> None:
        for process in self._processes.values():
            process.stop()

    def _mend(self) -> None:
        """Start dead processes again; gives up on one that dies each time."""
        for process in self._processes.values():
            if not process.has_died:
                continue
            if process.starts > START_AGAIN_LIMIT:
                raise SiteError(
                    f"the reader {process.name} has died {process.starts} times; {process.log} "
                    "has what it said"
                )
            self._note(f"{process.name} has died, and is started again")
            process.start()

    def _note(self, what: str) -> None:
        at_s = time.monotonic() - self._started_s
        self.incidents.append((at_s, what))
        self.say(f"{at_s:6.1f} s  {what}")

    def _cause_incidents(self) -> None:
        """Kill one reader of each kind and, of a cluster, the broker that leads the most."""
        for name in READERS:
            if name != LATE_JOINER:
                self._note(f"{name} is killed")
                self._processes[name].kill()
        self._note("the Spark application is killed")
        self._processes[SPARK].kill()
        if self._cluster is not None:
            broker_id = max(self._cluster.live_brokers)
            self._note(f"broker {broker_id} is killed")
            self._cluster.kill_broker(broker_id)

    # The flow

    def _watch(
        self,
        is_done: Callable[[], bool],
        *,
        late_s: float | None = None,
        limit_s: float | None = None,
    ) -> None:
        """Keep the readers alive and the page new until it is done."""
        began_s = time.monotonic()
        told_s = 0.0
        while not is_done():
            elapsed_s = time.monotonic() - began_s
            if limit_s is not None and elapsed_s > limit_s:
                raise SiteError(f"the readers did not read to the end within {limit_s:.0f} s")
            if late_s is not None and elapsed_s >= late_s:
                late_s = None
                self._start(LATE_JOINER)
                self._note(f"{LATE_JOINER} comes, and reads from the beginning")
                if self.options.with_incidents:
                    self._cause_incidents()
            self._mend()
            if time.monotonic() - told_s >= PAGE_EVERY_S:
                told_s = time.monotonic()
                self._write_page(refresh_s=int(PAGE_EVERY_S))
            time.sleep(STEP_S)

    def _has_all_read(self) -> bool:
        ends = self._ends()
        return all(
            ReaderProgress.read(self.options.folder / reader).next_offsets.get(number, 0) >= end
            for reader, topic in TOPIC_OF.items()
            for number, end in ends[topic].items()
        )

    def _ends(self) -> dict[str, dict[int, int]]:
        """The end offset of each partition of each topic."""
        with Consumer(self._servers) as consumer:
            partitions = [
                TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)
            ]
            found = consumer.end_offsets(partitions)
        ends: dict[str, dict[int, int]] = {topic: {} for topic in TOPICS}
        for partition, end in found.items():
            ends[partition.topic][partition.partition] = end
        return ends

    def _write_page(self, refresh_s: int) -> None:
        ends = self._ends()
        sizes = {topic: sum(offsets.values()) for topic, offsets in ends.items()}
        at_s = time.monotonic() - self._started_s
        readers = []
        for reader, topic in TOPIC_OF.items():
            status = ReaderProgress.read(self.options.folder / reader)
            read = sum(status.next_offsets.values())
            readers.append(ReaderRow(reader, topic, read, sizes[topic] - read, status.late))
        write_page(
            PageState(
                at_s,
                [TopicRow(topic, sizes[topic], sizes[topic] / max(at_s, 1)) for topic in TOPICS],
                readers,
                self.incidents,
                self.entries,
                refresh_s,
            ),
            self.page,
        )


class TopicRow(NamedTuple):
    """A topic: its records, and how many a second came on average."""

    name: str
    records: int
    per_second: float


class ReaderRow(NamedTuple):
    """A reader: how much of its topic it has read, waiting records, and late ones."""

    name: str
    topic: str
    read: int
    lag: int
    late: int


@dataclass(frozen=True, slots=True)
class PageState:
    """All that the page shows, `at_s` seconds after the start.

    `entries` is empty until the end.
    """

    at_s: float
    topics: Sequence[TopicRow]
    readers: Sequence[ReaderRow]
    incidents: Sequence[tuple[float, str]]
    entries: Sequence[Entry]
    refresh_s: int

    @property
    def published(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def is_right(self) -> bool:
        return all(entry.is_right for entry in self.entries)


def write_page(flow: PageState, path: Path) -> None:
    """Replace the page atomically: a browser sees the old one or the new one."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    fresh = path.with_suffix(".part")
    fresh.write_text(template.render(flow=flow), encoding="utf-8")
    os.replace(fresh, path)


SPARK: Final = "spark"
BROKERS: Final = "brokers"
PAGE_EVERY_S: Final = 2.0
STEP_S: Final = 0.2
DRAIN_LIMIT_S: Final = 600.0
STOP_LIMIT_S: Final = 60.0
START_AGAIN_LIMIT: Final = 5


class SiteError(Exception):
    """The site could not go on; the text says why, and where its logs are."""


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """The activity to publish, for how long, and with which incidents.

    Either `log` is replayed, `speed` times as fast as it was written, or activity is made up:
    `rate` events a second. With `has_progress` the readers on Spark write their batches to the
    topic of progress, for a console. `with_incidents` kills a reader of each kind in the middle
    and, of a cluster, a broker.
    """

    folder: Path
    seconds: float = 180.0
    rate: float = 100.0
    seed: int = DEFAULT_SEED
    log: Path | None = None
    speed: float = 60.0
    brokers: int = 1
    master: str = "local[2]"
    with_incidents: bool = False
    has_progress: bool = False


@dataclass(slots=True)
class _Process:
    """A reader's process, and how often it was started."""

    name: str
    command: list[str]
    log: Path
    running: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ending_with_parent(),  # noqa: PLW1509 - it takes no lock
            )

    @property
    def has_died(self) -> bool:
        return self.running is not None and self.running.poll() is not None

    def kill(self) -> None:
        """End it and whatever it has started, at once."""
        if self.running is not None:
            os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()

    def stop(self) -> None:
        """Let it end its work."""
        if self.running is None:
            return
        self.running.terminate()
        try:
            self.running.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass  # it is ended below
        try:
            os.killpg(self.running.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing is left of it
        self.running.wait()
