"""Workers in the test's process, connectors that misbehave on demand, and a client of REST."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal
from typing import ClassVar

from ottla.config.config_def import REQUIRED, ConfigTable, config_key
from ottla.connect.connect_worker import ConnectWorker
from ottla.connect.connector import SinkConnector, SourceConnector, TryAgainError
from ottla.connect.data import DataError, SourceRecord
from ottla.testing import wait_until

STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def worker_properties(broker, folder, **more):
    """The properties of a standalone worker whose files are in a folder."""
    properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "50",
        "offset.flush.timeout.ms": "60000",
        "task.shutdown.graceful.timeout.ms": "60000",
        "plugin.call.warn.ms": "100",
        "listeners": "http://127.0.0.1:0",
    }
    return properties | {key.replace("_", "."): str(value) for key, value in more.items()}


def standalone(broker, folder, **more):
    return ConnectWorker.standalone(worker_properties(broker, folder, **more))


def ask(worker, method, path, body=None, headers=None):
    """Status and JSON of an answer; None where it has no body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        worker.url + path.lstrip("/"), data, {"Content-Type": "application/json"}, method=method
    )
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        with error:
            content = error.read()
            return error.code, json.loads(content) if content else None


def state_of(worker, name):
    """The state of a connector, and those of its tasks; none where the worker does not know it."""
    code, status = ask(worker, "GET", f"/connectors/{name}/status")
    if code == 404:
        return ()
    return status["connector"]["state"], *(task["state"] for task in status["tasks"])


def wait_for_state(worker, name, *states):
    """Wait until a connector and its tasks are in these states."""
    wait_until(
        lambda: state_of(worker, name) == states,
        f"{name} in {states}",
        seen=lambda: ask(worker, "GET", f"/connectors/{name}/status"),
    )


GATE = threading.Event()
"""What the misbehaving connectors wait for when they hang; set at the end of a test."""


class Settings(ConfigTable):
    """Where it writes, and where it hangs or raises."""

    topic: str = config_key(default="t", doc="The topic.")
    hangs: str = config_key(default="", doc="In which method it hangs.")
    raises: str = config_key(default="", doc="In which method it raises.")
    count: int = config_key(default=3, doc="How many records.")


class Moody:
    """Hangs or raises where its settings say."""

    def at(self, method):
        if self.settings.hangs == method:
            GATE.wait()
        if self.settings.raises == f"exit in {method}":
            raise SystemExit(method)
        if self.settings.raises == method:
            raise RuntimeError(f"raised in {method}")
        if self.settings.raises == f"outage in {method}" and not GATE.is_set():
            raise TryAgainError("the system is down")


class MoodySource(Moody, SourceConnector):
    """Counts."""

    Settings = Settings
    idle_s = 0.01

    def tasks(self, max_tasks):
        self.at("tasks")
        return super().tasks(max_tasks)

    def start(self):
        self.at("start")

    def records(self, offset):
        kind = Decimal if self.settings.raises == "offset" else int
        for number in range(offset["n"] + 1 if offset else 0, self.settings.count):
            is_unread = self.settings.raises == "unread" and number % 2
            yield SourceRecord(
                topic=self.settings.topic,
                value=str(number),
                source_partition={},
                source_offset={"n": kind(number)},
                error=ValueError(f"number {number} cannot be read") if is_unread else None,
            )

    def poll(self):
        self.at("poll")
        return super().poll()

    def stop(self):
        self.at("stop")


class MoodySink(Moody, SinkConnector):
    """Keeps what it is given in `got`, by the connector's name."""

    Settings = Settings
    got: ClassVar = {}

    def start(self):
        self.at("start")

    def open(self, partitions):
        self.at("open")

    def put(self, records):
        self.at("put")
        kept = self.got.setdefault(self.context.name, [])
        for record in records:
            if self.settings.raises == "poison" and record.value == "poison":
                self.context.report(record, ValueError("a poison record"))
            else:
                kept.append(record.value)

    def stop(self):
        self.at("stop")


class Telltale(SinkConnector):
    """Says the topic of its settings in all of its errors."""

    Settings = Settings

    def put(self, records):
        for record in records:
            error = ValueError(f"{record.value} is not for {self.settings.topic}")
            if record.value != "poison":
                raise error
            self.context.report(record, error)


def endless():
    while True:
        yield {}


NONSENSE = {
    "no tasks": None,
    "a text as tasks": "ab",
    "texts as tasks": ["ab"],
    "a number as a setting": [{"a": 5}],
    "a number as a name": [{5: "a"}],
    "half an emoji as a setting": [{"a": "\ud83d"}],
    "endless tasks": endless(),
}
PLACES = {"negative": -1, "text": "x", "fraction": 0.5, "missing": 10**6}
"""Partitions that no topic has."""
KEPT = {
    "nothing": None,
    "text": "ab",
    "negative": -1,
    "fraction": 0.5,
    "flag": True,
    "text as offset": "1",
}
"""What a sink may return as offsets, or as each of them."""


class Nonsense(SourceConnector):
    """Returns what no connector may return."""

    Settings = Settings
    idle_s = 0.01
    asked: ClassVar[list[str]] = []

    def tasks(self, max_tasks):
        self.asked.append(self.context.name)
        return NONSENSE.get(self.settings.raises, [{}])

    def watch(self):
        if self.settings.raises == "asks without end":
            for _ in range(2000):
                self.context.request_task_reconfiguration()

    def records(self, offset):
        for number in range(offset["n"] + 1 if offset else 0, self.settings.count):
            yield SourceRecord(
                topic=self.settings.topic,
                value=str(number),
                source_partition={},
                source_offset={"n": number},
                partition=PLACES.get(self.settings.raises) if number == 1 else None,
            )


class NonsenseSink(SinkConnector):
    """Says of its offsets what no sink may say."""

    Settings = Settings

    def put(self, records):
        pass

    def pre_commit(self, offsets):
        kept = KEPT[self.settings.raises]
        return kept if self.settings.raises in ("nothing", "text") else dict.fromkeys(offsets, kept)


class Splitting(SourceConnector):
    """One task for each partition that it is told, which write their number."""

    class Settings(ConfigTable):
        """How many tasks."""

        topic: str = config_key(default=REQUIRED, doc="The topic.")
        number: int = config_key(default=-1, doc="That of the task.")

    def tasks(self, max_tasks):
        return [{"number": str(number)} for number in range(max_tasks)]

    def partition(self):
        return {"number": self.settings.number}

    def records(self, offset):
        if offset is None:
            yield SourceRecord(
                topic=self.settings.topic,
                value=str(self.settings.number),
                source_partition=self.partition(),
                source_offset={"done": True},
            )


def distributed(broker, **more):
    """A worker of a group, with topics of one replica."""
    properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "group.id": "workers",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "2",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "50",
        "heartbeat.interval.ms": "200",
        "session.timeout.ms": "6000",
        "scheduled.rebalance.max.delay.ms": "0",
        "task.shutdown.graceful.timeout.ms": "60000",
        "listeners": "http://127.0.0.1:0",
    }
    return ConnectWorker.distributed(
        properties | {key.replace("_", "."): str(value) for key, value in more.items()}
    )


class Counting(SourceConnector):
    """Counts in batches; with boundaries of its own it may abort one of them."""

    class Settings(ConfigTable):
        """How much, and how fast."""

        topic: str = config_key(default=REQUIRED, doc="The topic.")
        count: int = config_key(default=3, doc="How many records.")
        batch: int = config_key(default=1000, doc="How many records at once.")
        pause: int = config_key(default=0, doc="How many ms between batches.")
        aborted: int = config_key(default=-1, doc="The batch that is aborted.")
        number: int = config_key(default=0, doc="That of the task.")

    idle_s = 0.01

    def tasks(self, max_tasks):
        return [{"number": str(number)} for number in range(max_tasks)]

    def partition(self):
        return {"task": self.settings.number} if self.settings.number else {}

    def start(self):
        found = self.context.offset(self.partition())
        self.next = found["n"] + 1 if found else 0

    def poll(self):
        self.context.wait(self.settings.pause / 1000)
        last = min(self.settings.count, self.next + self.settings.batch)
        if self.next >= last:
            self.context.wait(self.idle_s)
            return []
        found = [
            SourceRecord(
                topic=self.settings.topic,
                value=str(number),
                source_partition=self.partition(),
                source_offset={"n": number},
            )
            for number in range(self.next, last)
        ]
        if self.context.transaction is not None:
            is_aborted = self.next // self.settings.batch == self.settings.aborted
            (self.context.transaction.abort if is_aborted else self.context.transaction.commit)()
        self.next = last
        return found

    @classmethod
    def is_exactly_once(cls, settings):
        return True

    @classmethod
    def sets_boundaries(cls, settings):
        return True


class Failing(SinkConnector):
    """Keeps values, unless the method that is called is to fail: its system is down."""

    Settings = Settings
    kept: ClassVar[list[str]] = []
    closed: ClassVar[set[str]] = set()
    failing: ClassVar[set[str]] = set()
    failed: ClassVar[Counter[str]] = Counter()
    standing: ClassVar[threading.Lock] = threading.Lock()
    """Who has it has the sink stand still in the method that is called next."""

    @classmethod
    def begin(cls):
        for each in (cls.kept, cls.closed, cls.failing, cls.failed):
            each.clear()

    def put(self, records):
        self.context.retry_after(100)
        self.at("put")
        self.kept.extend(record.value for record in records)
        self.context.request_commit()

    def pre_commit(self, offsets):
        self.at("pre_commit")
        return offsets

    def close(self, partitions):
        self.closed.update(place.topic for place in partitions)

    def at(self, method):
        with self.standing:
            is_failing = method in self.failing
        if is_failing:
            self.failed[method] += 1
            raise TryAgainError(f"{method}: the system is down")


class Reporting(SinkConnector):
    """Reports each record as one that its system refuses, and keeps none."""

    Settings = Settings

    def put(self, records):
        for record in records:
            self.context.report(record, DataError("refused"))
        self.context.request_commit()


class Growing(Counting):
    """Has as many tasks as `splits` says, and asks to be split again when that has changed."""

    splits = 1
    standing: ClassVar[threading.Lock] = threading.Lock()
    """Who has it has tasks stand still with what they have read."""

    def poll(self):
        found = super().poll()
        with self.standing:
            return found

    slow_to_say = 0
    """With so many tasks its answer waits for who has `saying`."""
    saying: ClassVar[threading.Lock] = threading.Lock()

    def tasks(self, max_tasks):
        count = self.seen = type(self).splits
        if count == self.slow_to_say:
            with self.saying:
                pass
        return [{"number": str(number)} for number in range(count)]

    seen = 0

    def watch(self):
        while not self.context.wait(self.idle_s):
            if self.seen != type(self).splits:
                self.seen = type(self).splits
                self.context.request_task_reconfiguration()


class Swapping(Counting):
    """Two tasks that count apart; which of them has which count, `shift` says."""

    shift = 0
    planned = 0
    standing: ClassVar[threading.Lock] = threading.Lock()
    """Who has it has the first count stand still with what was read."""

    def tasks(self, max_tasks):
        self.planned = type(self).shift
        return [{"number": str((number + self.planned) % 2)} for number in range(2)]

    def watch(self):
        while not self.context.wait(self.idle_s):
            if self.planned != type(self).shift:
                self.planned = type(self).shift
                self.context.request_task_reconfiguration()

    def poll(self):
        found = super().poll()
        with self.standing if self.settings.number == 0 else nullcontext():
            return found
