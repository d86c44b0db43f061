"""A thread that runs an object of a plug-in, from its start to its end or until it is left behind.

A worker has one for the planning object of each connector that runs here, and one for each task.
"""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect.connector import Context
from ottla.connect.offset_storage import OffsetStorage
from ottla.runtime import Clock
from ottla.runtime.io_thread import Condition, Lock, get_ident, stack_of

logger = logging.getLogger(__name__)


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
    """The state that a person has set for a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
"""The states with which a connector may be created (KIP-980)."""


class PluginThread(ABC):
    """Follows the target state of one connector, and reports each new state of its own.

    Its methods are for any thread. `finished` is done when the thread has ended; it holds no error.
    """

    KIND: ClassVar[str]
    """The kind of object, as the log calls it."""
    ABANDONED: ClassVar[str]
    """The line of the log for one that is left behind: its name, and the call that it hangs in."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, str],
        offsets: OffsetStorage,
        request_reconfiguration: Callable[[], object],
        target: TargetState,
        clock: Clock,
    ) -> None:
        """`name` is the connector's, `properties` are those that the object is made of."""
        self.name = name
        self.properties = properties
        self.offsets = offsets
        self.request_reconfiguration = request_reconfiguration
        self.finished: Future[None] = Future()
        self.calls = PluginCalls(clock, self._tell_of_call)
        self._target = target
        self._changed = Condition()
        self._is_stopping = False
        self._is_abandoned = False
        self._shown: State | None = None

    @property
    def title(self) -> str:
        """The name that the log has for it."""
        return self.name

    @property
    def is_stopping(self) -> bool:
        """Whether the object is to end."""
        return self._is_stopping

    def wait(self, seconds: float) -> bool:
        """Sleep; True at once if the object is to end."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_stopping, seconds)

    @abstractmethod
    def report(self, state: State, trace: str | None) -> None:
        """Pass a state on to the worker."""

    def wake(self) -> None:
        """End a wait that is not for `_changed`."""

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
        """Leave it behind, as it has not stopped in time: it reports nothing any longer."""
        trace = self.calls.under_way()
        with self._changed:
            self._is_abandoned = True
            self.report(State.UNASSIGNED, trace and f"Left behind: {trace}")
        logger.error(self.ABANDONED, self.title, trace or "")

    def show(self, state: State, trace: str | None = None) -> None:
        """Report a state, if it is a new one."""
        with self._changed:
            if state is not self._shown and not self._is_abandoned:
                self._shown = state
                self.enter(state)
                self.report(state, trace)

    def enter(self, state: State) -> None:
        """Note that a state begins."""

    def fail(self, error: BaseException) -> None:
        """Report an error that the object does not raise itself, and have it stop."""
        self.show(State.FAILED, "".join(traceback.format_exception(error)))
        self.request_stop()

    def _tell_of_call(self, trace: str | None) -> None:
        """Report the state that it is in once more, with what is known of its call."""
        with self._changed:
            if self._shown is not State.FAILED and not self._is_abandoned:
                self.report(self._shown or State.UNASSIGNED, trace)
                logger.warning("%s %s: %s", self.KIND, self.title, trace or "the call has returned")


class PluginContext(Context):
    """The services of a worker for the object in a thread."""

    def __init__(self, thread: PluginThread) -> None:
        self._thread = thread
        self.name = thread.name
        self.properties = thread.properties

    @property
    def is_stopping(self) -> bool:
        return self._thread.is_stopping

    def wait(self, seconds: float) -> bool:
        with self._thread.calls.waiting():
            return self._thread.wait(seconds)

    def request_task_reconfiguration(self) -> None:
        self._thread.request_reconfiguration()

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._thread.offsets.table.get(self.name, partition)

    def fail(self, error: BaseException) -> None:
        self._thread.fail(error)


class PluginCall(NamedTuple):
    """A method of a plug-in that a thread is in."""

    method: str
    thread: int
    began_ms: int
    since_ms: int
    """The same moment by the clock on the wall."""


class PluginCalls:
    """The calls of one plug-in that have not returned.

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
        """Report a call that has lasted so long, once; for the loop, at intervals."""
        with self._lock:
            call = self._longest()
            if call is None or self._told is not None:
                return
            if self._clock.monotonic_ms() - call.began_ms >= limit_ms:
                self._told = call
                self._tell(_described(call))

    def under_way(self) -> str | None:
        """The longest call under way and its stack, as text; None if there is none."""
        with self._lock:
            call = self._longest()
            return None if call is None else _described(call)

    def _longest(self) -> PluginCall | None:
        return min(self._calls.values(), key=lambda call: call.began_ms, default=None)


def _described(call: PluginCall) -> str:
    since = datetime.fromtimestamp(call.since_ms // 1000, UTC).isoformat()
    return f"{call.method} has not returned since {since}:\n{stack_of(call.thread)}"
