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
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final, NamedTuple

from ottla.config.config_def import ConfigTable
from ottla.config.connect_config import ConnectorConfig, WorkerConfig
from ottla.connect.connector import Connector
from ottla.connect.conversion import Conversion
from ottla.connect.offset_storage import OffsetStorage
from ottla.connect.plugin_thread import PluginContext, PluginThread, State, TargetState
from ottla.connect.tolerance import Tolerance, may_succeed_later
from ottla.connect.worker_clients import WorkerClients
from ottla.metrics.metrics_registry import Beans
from ottla.metrics.sensors import Counted, WindowedValues
from ottla.runtime import Clock, Runtime
from ottla.runtime.io_thread import Lock, run_in_thread

logger = logging.getLogger(__name__)


class WorkerTask(PluginThread):
    """Runs one task: `begin` once, then pause, resume and stop it from any thread."""

    KIND = "Task"
    ABANDONED = "Graceful stop of task %s failed: it is left behind, with its clients closed. %s"

    MEASURED: ClassVar[tuple[str, ...]] = ()
    """The totals that it counts, by Kafka's names."""
    tolerance: Tolerance

    def __init__(self, parts: TaskParts, target: TargetState) -> None:
        super().__init__(
            parts.id.connector,
            parts.properties,
            parts.offsets,
            parts.request_reconfiguration,
            target,
            parts.runtime.clock,
        )
        self.id = parts.id
        self.parts = parts
        self._topics: set[str] = set()
        self.measures = TaskMeasures(parts.runtime.clock, *self.MEASURED)
        self.beans = Beans(parts.runtime.clock)
        """The measures of the connector itself."""

    # From the worker, in any thread

    def begin(self) -> None:
        self.finished = run_in_thread(self._run, f"connect-task-{self.id}")

    @abstractmethod
    def close_clients(self) -> None:
        """Close what the task writes with, from another thread."""

    # For the task, in its thread

    @property
    def title(self) -> str:
        return str(self.id)

    @property
    def is_paused(self) -> bool:
        return self._target is not TargetState.STARTED

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

    def report(self, state: State, trace: str | None) -> None:
        self.parts.on_status(self.id, state, trace)

    def enter(self, state: State) -> None:
        self.measures.enter(state)

    @property
    def shown(self) -> State:
        """The state that was reported last."""
        return self._shown or State.UNASSIGNED

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


class TaskMeasures:
    """The measures of a task: its threads write once a batch, the worker's loop reads.

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
        """Raise a total to at least `total`."""
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
        """The largest value of the last 30 to 60 seconds; NaN without values."""
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


class TaskContext(PluginContext):
    """What the contexts of source and sink tasks have in common."""

    def __init__(self, task: WorkerTask) -> None:
        super().__init__(task)
        self.beans = task.beans

    def offsets(self) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        found = self._thread.offsets.table.of(self.name)
        return [(each.partition, dict(each.offset)) for each in found if each.offset is not None]
