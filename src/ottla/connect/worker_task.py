"""A task of a connector, in a thread of its own: begun, paused, stopped, watched.

    UNASSIGNED -> RUNNING <-> PAUSED          what a person wants
                     '----------'-> FAILED    it raised: its trace is the status's
                     '----------'-> UNASSIGNED, when it has stopped

A call of the connector that does not return for long is told in the trace of the state that the
task is in, which stays as it is: nobody knows whether the call will return. A task that does not
stop in time is abandoned: its clients are closed under it, so that it can write nothing any longer,
and what it reports is not heard.
"""

from __future__ import annotations

import logging
import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final, NamedTuple

from ottla.clients.client_metrics import Counted
from ottla.config.config_def import ConfigTable
from ottla.config.connect_config import ConnectorConfig, WorkerConfig
from ottla.connect.connector import Connector
from ottla.connect.conversion import Conversion
from ottla.connect.offset_storage import OffsetStorage
from ottla.connect.tolerance import Tolerance, may_succeed_later
from ottla.connect.worker_clients import WorkerClients
from ottla.metrics.metrics_registry import Beans
from ottla.metrics.sensors import WindowedValues
from ottla.runtime import Clock, Runtime
from ottla.runtime.io_thread import Condition, Lock, get_ident, run_in_thread, stack_of

logger = logging.getLogger(__name__)


class WorkerTask(ABC):
    """Runs one task. `begin` once, then `pause`, `resume`, `stop` from any thread.

    `finished` is done when the thread has ended; it holds no error.
    """

    MEASURED: ClassVar[tuple[str, ...]] = ()
    """The totals that it counts, by Kafka's names."""
    tolerance: Tolerance

    def __init__(self, parts: TaskParts, target: TargetState) -> None:
        self.id = parts.id
        self.parts = parts
        self.finished: Future[None] = Future()
        self._target = target
        self._changed = Condition()
        self._is_stopping = False
        self._is_abandoned = False
        self._shown: State | None = None
        self._topics: set[str] = set()
        self.calls = PluginCalls(parts.runtime.clock, self._tell_of_call)
        self.measures = TaskMeasures(parts.runtime.clock, *self.MEASURED)
        self.beans = Beans(parts.runtime.clock)
        """What the connector measures by itself."""

    # From the worker, in any thread

    def begin(self) -> None:
        self.finished = run_in_thread(self._run, f"connect-task-{self.id}")

    def set_target(self, target: TargetState) -> None:
        """Pause or resume."""
        with self._changed:
            self._target = target
            self._changed.notify_all()
        self.wake()

    def request_stop(self) -> None:
        """Have it stop soon."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self.wake()

    def abandon(self) -> None:
        """It has not stopped in time: nothing more is heard of it, nor, once its clients are
        closed, written by it."""
        trace = self.calls.under_way()
        with self._changed:
            self._is_abandoned = True
            self.parts.on_status(self.id, State.UNASSIGNED, trace and f"Left behind: {trace}")
        logger.error(
            "Graceful stop of task %s failed: it is left behind, with its clients closed. %s",
            self.id,
            trace or "",
        )

    def wake(self) -> None:
        """End a wait of the task for records."""

    @abstractmethod
    def close_clients(self) -> None:
        """Close what the task writes with, from another thread."""

    # For the task, in its thread

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def is_paused(self) -> bool:
        return self._target is not TargetState.STARTED

    def wait(self, seconds: float) -> bool:
        """Sleep; True at once if the task is to stop."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_stopping, seconds)

    def call_until_up(self, method: str, call: Callable[[], object]) -> bool:
        """Call a method of the plug-in, again and again while its system is down.

        False if the task is to stop before that is over.
        """
        for attempts in count(1):
            try:
                with self.calls.during(method):
                    call()
                return True
            except Exception as error:
                if not may_succeed_later(error):
                    raise
                logger.warning("%s: %s is tried again: %s", self.id, method, error)
                if self.wait(self.tolerance.pause_s(attempts)):
                    return False
        raise AssertionError("it counts without end")

    def wait_while_paused(self) -> None:
        """Sleep until it is to run, or to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or not self.is_paused)

    def show(self, state: State, trace: str | None = None) -> None:
        """Report a state, if it is a new one."""
        with self._changed:
            if state is not self._shown and not self._is_abandoned:
                self._shown = state
                self.measures.enter(state)
                self.parts.on_status(self.id, state, trace)

    @property
    def shown(self) -> State:
        """The state that was reported last."""
        return self._shown or State.UNASSIGNED

    def _tell_of_call(self, trace: str | None) -> None:
        """Report the state that it is in once more, with what is known of its call."""
        with self._changed:
            if self._shown is not State.FAILED and not self._is_abandoned:
                self.parts.on_status(self.id, self._shown or State.UNASSIGNED, trace)
                logger.warning("Task %s: %s", self.id, trace or "the call has returned")

    def note_topic(self, topic: str) -> None:
        """Report a topic that it uses, once."""
        if topic not in self._topics and not self._is_abandoned:
            self._topics.add(topic)
            self.parts.on_topic(self.id, topic)

    @abstractmethod
    def work(self) -> None:
        """Start the connector and serve it until it is to stop."""

    @abstractmethod
    def close(self) -> None:
        """Stop the connector and close what it used, after `work` has ended or raised."""

    def _run(self) -> None:
        trace = None
        try:
            if not self._is_stopping:
                self.work()
        except BaseException as error:  # SystemExit of a plug-in as well: it ends only its task
            trace = "".join(traceback.format_exception(error))
            if not self._is_abandoned:
                logger.exception("Task %s failed, and stays so until it is restarted.", self.id)
        try:
            self.close()
        except BaseException as error:  # what `stop` raises does not change the outcome
            logger.warning("Task %s did not close in order: %r", self.id, error)
        if trace is not None:
            self.show(State.FAILED, trace)
        else:
            self.show(State.UNASSIGNED)


class State(StrEnum):
    """The states of connectors and tasks; the names are Kafka's."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


class TargetState(StrEnum):
    """What a person wants a connector to do."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
"""The states with which a connector may be created (KIP-980)."""


class TaskId(NamedTuple):
    """A task of a connector, by its number."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


BATCH_SIZE: Final = "batch-size"
COMMIT_TIME: Final = "offset-commit"
COMMIT_SUCCESS: Final = "offset-commit-success"
"""1 for offsets that were stored, 0 for those that were not."""

OnStatus = Callable[["TaskId", State, "str | None"], object]
OnTopic = Callable[["TaskId", str], object]


@dataclass(frozen=True)
class ExactlyOnce:
    """What a task of an exactly-once source asks of its group; both may take a while."""

    transactional_id: str
    fence: Callable[[], object]
    """Have the producers of tasks of before fenced, where that was not done yet."""
    check: Callable[[], object]
    """KafkaError unless the task is this worker's, with the settings that it has."""


@dataclass(frozen=True)
class TaskParts:
    """All that a task is made of."""

    id: TaskId
    connector_class: type[Connector]
    properties: Mapping[str, str]
    config: ConnectorConfig
    settings: ConfigTable
    worker_config: WorkerConfig
    conversion: Conversion
    clients: WorkerClients
    offsets: OffsetStorage
    runtime: Runtime
    on_status: OnStatus
    on_topic: OnTopic
    request_reconfiguration: Callable[[], object]
    exactly_once: ExactlyOnce | None = None
    """The transactions of a source in a group that supports them."""
    hide: Callable[[str], str] = str
    """Puts references in the place of secrets in what a connector says."""


class PluginCall(NamedTuple):
    """A method of a plug-in that a thread is in."""

    method: str
    thread: int
    began_ms: int
    since_ms: int
    """The same moment by the clock on the wall."""


class PluginCalls:
    """The calls of one plug-in that have not returned, and what is told of one that lasts long.

    `tell` gets a text when a call has lasted too long, and None when that call has returned.
    """

    def __init__(self, clock: Clock, tell: Callable[[str | None], object]) -> None:
        self._clock = clock
        self._tell = tell
        self._lock = Lock()
        self._calls: dict[int, PluginCall] = {}
        self._told: PluginCall | None = None

    @contextmanager
    def during(self, method: str) -> Iterator[None]:
        """Around a call of the plug-in, in the thread that makes it."""
        self._begin(method)
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a sleep that a plug-in asks for, which ends when it is to stop: it is no hang."""
        call = self._end()
        try:
            yield
        finally:
            if call is not None:
                self._begin(call.method)

    def _begin(self, method: str) -> None:
        clock = self._clock
        call = PluginCall(method, get_ident(), clock.monotonic_ms(), clock.now_ms())
        with self._lock:
            self._calls[call.thread] = call

    def _end(self) -> PluginCall | None:
        with self._lock:
            call = self._calls.pop(get_ident(), None)
            if call is not None and self._told is call:
                self._told = None
                self._tell(None)
        return call

    def look(self, limit_ms: int) -> None:
        """Tell of a call that has lasted so long, once; for the loop, at intervals."""
        with self._lock:
            call = self._longest()
            if call is None or self._told is not None:
                return
            if self._clock.monotonic_ms() - call.began_ms >= limit_ms:
                self._told = call
                self._tell(_described(call))

    def under_way(self) -> str | None:
        """What is told of the call that has lasted longest; None if there is none."""
        with self._lock:
            call = self._longest()
            return None if call is None else _described(call)

    def _longest(self) -> PluginCall | None:
        return min(self._calls.values(), key=lambda call: call.began_ms, default=None)


def _described(call: PluginCall) -> str:
    since = datetime.fromtimestamp(call.since_ms // 1000, UTC).isoformat()
    return f"{call.method} has not returned since {since}:\n{stack_of(call.thread)}"


class TaskMeasures:
    """What a task does: its threads write once a batch, the worker's loop reads.

    `totals` only grow; `times` are those that a task spent in each of its states.
    """

    def __init__(self, clock: Clock, *totals: str) -> None:
        """`totals` are Kafka's names, without `-total`."""
        self._clock = clock
        self._lock = Lock()
        self.totals = dict.fromkeys(totals, 0)
        reads = {name: partial(self.totals.__getitem__, name) for name in totals}
        self._counted = Counted(clock.monotonic_ms(), **reads)
        self._values: dict[str, WindowedValues] = {}
        self._state: State | None = None
        self._since_ms = self._began_ms = clock.monotonic_ms()
        self._lasted_ms: dict[State | None, int] = {}

    def add(self, name: str, count: int) -> None:
        """Add to a total."""
        with self._lock:
            self.totals[name] += count

    def reach(self, name: str, total: int) -> None:
        """A total is so much by now."""
        with self._lock:
            self.totals[name] = max(total, self.totals[name])

    def record(self, name: str, value: float) -> None:
        """A value whose average and maximum are shown."""
        self.record_all({name: value})

    def record_all(self, found: Mapping[str, float]) -> None:
        """Several values at once, which costs less."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for name, value in found.items():
                values = self._values.get(name)
                if values is None:
                    values = self._values[name] = WindowedValues()
                values.record(value, now_ms)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Around storing offsets: how long it takes, and whether it raises."""
        began_ms = self._clock.monotonic_ms()
        is_done = False
        try:
            yield
            is_done = True
            self.record(COMMIT_TIME, self._clock.monotonic_ms() - began_ms)
        finally:
            self.record(COMMIT_SUCCESS, float(is_done))

    def enter(self, state: State) -> None:
        """The task is in another state from now on."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            lasted_ms = self._lasted_ms.get(self._state, 0)
            self._lasted_ms[self._state] = lasted_ms + now_ms - self._since_ms
            self._state, self._since_ms = state, now_ms

    def share_of(self, state: State) -> float:
        """The share of its time that the task was in a state."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            lasted_ms = self._lasted_ms.get(state, 0)
            if state is self._state:
                lasted_ms += now_ms - self._since_ms
            return lasted_ms / max(1, now_ms - self._began_ms)

    def average(self, name: str) -> float:
        """The average of the last 30 to 60 seconds; NaN without values."""
        with self._lock:
            values = self._values.get(name)
            return values.average(self._clock.monotonic_ms()) if values else math.nan

    def maximum(self, name: str) -> float:
        """The same for the largest."""
        with self._lock:
            values = self._values.get(name)
            return values.maximum(self._clock.monotonic_ms()) if values else math.nan

    def tick(self) -> None:
        """Begin new windows; for the loop, every few seconds."""
        with self._lock:
            self._counted.tick(self._clock.monotonic_ms())

    def counted(self) -> dict[str, float]:
        """Totals and rates, by `...-total` and `...-rate`."""
        with self._lock:
            return self._counted.shown(self._clock.monotonic_ms())


class TaskContext:
    """What the contexts of source and sink tasks have in common."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self.name = task.id.connector
        self.properties = task.parts.properties
        self.beans = task.beans

    @property
    def is_stopping(self) -> bool:
        return self._task.is_stopping

    def wait(self, seconds: float) -> bool:
        with self._task.calls.waiting():
            return self._task.wait(seconds)

    def request_task_reconfiguration(self) -> None:
        self._task.parts.request_reconfiguration()

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._task.parts.offsets.table.get(self.name, partition)

    def offsets(self) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        found = self._task.parts.offsets.table.of(self.name)
        return [(each.partition, dict(each.offset)) for each in found if each.offset is not None]

    def fail(self, error: BaseException) -> None:
        self._task.show(State.FAILED, "".join(traceback.format_exception(error)))
        self._task.request_stop()
