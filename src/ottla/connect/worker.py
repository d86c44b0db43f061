"""A worker runs connectors and tasks; what runs where is decided by its herder.

The worker's loop only begins and ends things: code of plug-ins runs in threads of its own, and what
hangs there is left behind after task.shutdown.graceful.timeout.ms. Statuses come back to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar, cast

from ottla.config.connect_config import ConnectorConfig, WorkerConfig
from ottla.connect.config_providers import ConfigProviders
from ottla.connect.connector import Connector
from ottla.connect.connector_settings import Checked, Checker, parse_connector
from ottla.connect.conversion import Conversion, make_converter, make_transforms
from ottla.connect.data import shown
from ottla.connect.exactly_once import ExactlyOnceSourceTask
from ottla.connect.offset_storage import OffsetStorage, OwnOffsets, TopicOffsetStorage
from ottla.connect.plugin_thread import PluginContext, PluginThread, State, TargetState
from ottla.connect.plugins import Plugins
from ottla.connect.sink_task import WorkerSinkTask
from ottla.connect.source_task import WorkerSourceTask
from ottla.connect.worker_clients import WorkerClients
from ottla.connect.worker_task import ExactlyOnce, TaskId, TaskParts, WorkerTask
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from ottla.metrics.sensors import WindowedValues
from ottla.runtime import Clock, Runtime
from ottla.runtime.io_thread import run_in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")
PLUGIN_LIMIT_S: Final = 90.0
"""How long a question to a plug-in may take, as long as a request of Kafka's REST API."""

MOST_LOOK_PAUSE_S: Final = 1.0
ENDS_OF_START: Final = (State.RUNNING, State.PAUSED, State.STOPPED, State.FAILED)


class RunningConnector(PluginThread):
    """The planning object of a connector, and the thread in which it watches."""

    KIND = "Connector"
    ABANDONED = "Connector %s does not stop: it is left behind. %s"

    def __init__(
        self,
        name: str,
        given: Mapping[str, str],
        properties: Mapping[str, str],
        offsets: OffsetStorage,
        on_status: Callable[[str, State, str | None], object],
        request_reconfiguration: Callable[[], object],
        clock: Clock,
    ) -> None:
        started = TargetState.STARTED
        super().__init__(name, properties, offsets, request_reconfiguration, started, clock)
        self.given = given
        """Its properties as they are kept; in `properties` references are resolved."""
        self.made: Future[Connector] = Future()
        """The object, once its constructor has returned."""
        self.planning = asyncio.Lock()
        """Of the loop, while the object is asked for its tasks and they are stored."""
        self._on_status = on_status

    def begin(
        self, plugins: Plugins, target: TargetState, problem: Exception | None = None
    ) -> None:
        """With a `problem`, of its properties, it fails at once."""
        self._target = target
        run = partial(self._run, plugins, problem)
        self.finished = run_in_thread(run, f"connector-{self.name}")

    @property
    def is_stopping(self) -> bool:
        """Whether `watch` is to return: also while the connector is paused."""
        return self._is_stopping or self._target is not TargetState.STARTED

    def report(self, state: State, trace: str | None) -> None:
        self._on_status(self.name, state, trace)

    def _run(self, plugins: Plugins, problem: Exception | None) -> None:
        try:
            if problem is not None:
                raise problem
            connector_class = plugins.connector(self.properties["connector.class"])
            _, settings = parse_connector(connector_class, self.properties)
            with self.calls.during("the constructor"):
                connector = connector_class(settings, PluginContext(self))
            self.made.set_result(connector)
            self._serve(connector)
        except BaseException as error:
            if not self.made.done():
                self.made.set_exception(error)
            if not self._is_abandoned:
                logger.exception("Connector %s failed", self.name)
                self.show(State.FAILED, "".join(traceback.format_exception(error)))
        else:
            if self._shown is not State.FAILED:
                self.show(State.UNASSIGNED)

    def _serve(self, connector: Connector) -> None:
        """Watch while it is started, wait while it is paused."""
        while not self._is_stopping:
            target = self._target
            if target is TargetState.STARTED:
                self.show(State.RUNNING)
                connector.watch()
            else:
                self.show(State.PAUSED if target is TargetState.PAUSED else State.STOPPED)
            self._wait_for_other_target(target)

    def _wait_for_other_target(self, target: TargetState) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._target is not target)

    def split(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Ask it for its tasks, in the thread that waits for them."""
        connector = self.made.result()
        with self.calls.during("tasks"):
            return checked_tasks(connector.tasks(tasks_max))


def checked_tasks(found: Any) -> Sequence[Mapping[str, str]]:
    """What a connector has returned as its tasks; ConfigError unless it is settings, as text."""
    is_list = isinstance(found, Sequence) and not isinstance(found, str | bytes)
    if not is_list or not all(isinstance(each, Mapping) for each in found):
        raise ConfigError(f"tasks returned {shown(found)}: must be a list of settings")
    for word in (word for each in found for item in each.items() for word in item):
        try:
            word.encode()
        except (AttributeError, UnicodeError):
            raise ConfigError(f"tasks returned the setting {shown(word)}: must be text") from None
    return cast(Sequence[Mapping[str, str]], found)


class Startups:
    """How often connectors, or tasks, were started here, and how that ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.attempts = self.successes = self.failures = 0
        self._under_way: set[object] = set()
        self.successful = WindowedValues()
        """1 for a start that succeeded, 0 for one that did not."""

    def begin(self, what: object) -> None:
        self.attempts += 1
        self._under_way.add(what)

    def follow(self, what: object, state: State) -> None:
        """A start is at its end with the first state that says how."""
        if state not in ENDS_OF_START or what not in self._under_way:
            return
        self._under_way.discard(what)
        is_failed = state is State.FAILED
        self.failures += is_failed
        self.successes += not is_failed
        self.successful.record(float(not is_failed), self._clock.monotonic_ms())


def _contained(work: Callable[[], T], what: str) -> Callable[[], T]:
    """The work, with errors that a loop can bear: SystemExit of a plug-in would end the worker."""

    def run() -> T:
        try:
            return work()
        except StopIteration as error:
            raise RuntimeError(f"{what}: {error!r}") from error
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{what}: {error!r}") from error

    return run


class Worker:
    """All connectors and tasks that run here. Every method is for the loop of the worker.

    Invariant: a connector or a task runs here at most once; one that was left behind counts no
    longer.
    """

    def __init__(
        self,
        config: WorkerConfig,
        properties: Mapping[str, str],
        runtime: Runtime,
        offsets: OffsetStorage,
    ) -> None:
        self.config = config
        self.properties = properties
        self.runtime = runtime
        self.offsets = offsets
        self.plugins = Plugins(config.plugin_path)
        self.providers = ConfigProviders(properties)
        self.checker = Checker(self.plugins, config, properties)
        self.connectors: dict[str, RunningConnector] = {}
        self.tasks: dict[TaskId, WorkerTask] = {}
        self.connector_starts = Startups(runtime.clock)
        self.task_starts = Startups(runtime.clock)
        self.on_connector_status: Callable[[str, State, str | None], object] = _ignore
        self.on_task_status: Callable[[TaskId, State, str | None], object] = _ignore
        self.on_topic: Callable[[TaskId, str], object] = _ignore
        self.on_reconfiguration: Callable[[str], object] = _ignore
        self.exactly_once: Callable[[TaskId], ExactlyOnce] | None = None
        """Set where sources are exactly once."""
        self.open_offsets: Callable[[str], TopicOffsetStorage] | None = None
        """Opens the topic that a connector wants its offsets in; set in groups."""
        self._own_offsets: dict[str, OwnOffsets] = {}
        self._ending: dict[PluginThread, None] = {}
        """Those that are stopping, and are waited for."""
        self._loop = asyncio.get_running_loop()
        self._committing: dict[TaskId, Future[Any]] = {}
        self._commits = asyncio.create_task(self._commit_at_intervals(), name="commit offsets")
        self._looks = asyncio.create_task(self._look_at_intervals(), name="look at calls")

    async def ask(self, work: Callable[[], T], what: str, limit_s: float = PLUGIN_LIMIT_S) -> T:
        """Run code of a plug-in in a thread; KafkaTimeoutError if it does not return in time."""
        future = asyncio.wrap_future(run_in_thread(_contained(work, what), f"connect-{what}"))
        try:
            return await asyncio.wait_for(future, limit_s)
        except TimeoutError:
            if future.done() and not future.cancelled():
                raise  # the plug-in's own
            raise KafkaTimeoutError(
                f"Request timed out. The worker is currently {what}, for more than {limit_s:g} s"
            ) from None

    def check(self, given: Mapping[str, str]) -> Checked:
        """Check properties as code will see them; what is said of them has their references."""
        used, hide = self.providers.resolve(given), self.providers.hide
        checked = self.checker.check(used)
        of_providers = {key: used[key] for key, text in given.items() if used[key] != text}
        for key, value in of_providers.items():
            if checked.values.get(key) is not None:
                checked.values[key] = given[key]
            if key in checked.errors:
                texts = checked.errors[key]
                checked.errors[key] = [each.replace(value, given[key]) for each in texts]
        checked.errors = {key: [*map(hide, texts)] for key, texts in checked.errors.items()}
        return checked

    # Connectors

    def start_connector(
        self, name: str, properties: Mapping[str, str], target: TargetState
    ) -> None:
        """Begin to run the planning object; its status says how it goes."""
        assert name not in self.connectors, f"{name} runs here"
        self.connector_starts.begin(name)
        resolved, problem = dict(properties), None
        try:
            resolved = self.providers.resolve(properties)
        except Exception as error:  # a value that is not there is this connector's trouble alone
            problem = error
        running = RunningConnector(
            name,
            properties,
            resolved,
            self.offsets_of(resolved),
            self._from_thread(self._note_connector),
            self._from_thread(lambda: self.on_reconfiguration(name)),
            self.runtime.clock,
        )
        self.connectors[name] = running
        running.begin(self.plugins, target, problem)

    async def stop_connector(self, name: str) -> None:
        """Stop the planning object, or leave it behind."""
        await self.stop_connectors([name])

    async def stop_connectors(self, names: Iterable[str]) -> None:
        """Stop planning objects, all at once."""
        stopping = [self.connectors.pop(each) for each in list(names) if each in self.connectors]
        for running in stopping:
            running.request_stop()
        await self._end(stopping)

    async def plan(self, name: str) -> list[dict[str, str]]:
        """The settings of the tasks into which the connector splits its work."""
        running = self.connectors[name]
        connector_class = self.plugins.connector(running.properties["connector.class"])
        config, _ = parse_connector(connector_class, running.properties)

        try:
            planned = await self.ask(
                lambda: running.split(config.tasks_max), f"asking connector {name} for its tasks"
            )
        except Exception as error:
            running.fail(error)
            raise
        if len(planned) > config.tasks_max and config.tasks_max_enforce:
            too_many = ConfigError(
                f"tasks.max={config.tasks_max}: connector {name} splits its work into "
                f"{len(planned)} tasks; tasks.max.enforce=false permits that"
            )
            running.fail(too_many)
            raise too_many
        base = {**running.given, "task.class": _class_name(connector_class)}
        put_back = self.providers.put_back
        return [base | put_back(running.given, running.properties, each) for each in planned]

    # Tasks

    def start_task(
        self, task_id: TaskId, properties: Mapping[str, str], target: TargetState
    ) -> None:
        """Begin to run a task; what is wrong with it becomes its status."""
        assert task_id not in self.tasks, f"{task_id} runs here"
        self.task_starts.begin(task_id)
        try:
            task = self._make_task(task_id, properties, target)
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            logger.error("Task %s cannot be made: %s", task_id, error)
            self._note_task(task_id, State.FAILED, trace)
            return
        self.tasks[task_id] = task
        task.begin()

    def _make_task(
        self, task_id: TaskId, properties: Mapping[str, str], target: TargetState
    ) -> WorkerTask:
        resolved = self.providers.resolve(properties)
        connector_class = self.plugins.connector(resolved["connector.class"])
        config, settings = parse_connector(connector_class, resolved)
        parts = TaskParts(
            id=task_id,
            connector_class=connector_class,
            properties=resolved,
            config=config,
            settings=settings,
            worker_config=self.config,
            conversion=self.conversion(config, resolved),
            clients=WorkerClients(self.config, self.properties, resolved),
            offsets=self.offsets_of(resolved),
            runtime=self.runtime,
            on_status=self._from_thread(self._note_task),
            on_topic=self._from_thread(self.on_topic),
            request_reconfiguration=self._from_thread(
                lambda: self.on_reconfiguration(task_id.connector)
            ),
            exactly_once=self.exactly_once and self.exactly_once(task_id),
            hide=self.providers.hide,
        )
        return self.task_of(parts, target)

    def task_of(self, parts: TaskParts, target: TargetState) -> WorkerTask:
        """The task for a source or a sink."""
        if parts.connector_class.kind == "sink":
            return WorkerSinkTask(parts, target)
        is_once = parts.exactly_once is not None
        return (ExactlyOnceSourceTask if is_once else WorkerSourceTask)(parts, target)

    def offsets_of(self, properties: Mapping[str, str]) -> OffsetStorage:
        """Where a source's offsets are: in the worker's storage, or in a topic of its own."""
        topic = properties.get("offsets.storage.topic")
        if not topic or self.open_offsets is None or topic == self.offsets.topic:
            return self.offsets
        if topic not in self._own_offsets:
            self._own_offsets[topic] = OwnOffsets(self.open_offsets(topic), self.offsets)
        return self._own_offsets[topic]

    def conversion(self, config: ConnectorConfig, properties: Mapping[str, str]) -> Conversion:
        """The converters and transforms of a connector, made for one task."""
        worker = (self.config, self.properties)
        key, value, header = (
            make_converter(self.plugins, kind, worker, (config, properties))
            for kind in ("key", "value", "header")
        )
        return Conversion((key, value, header), make_transforms(self.plugins, config, properties))

    async def stop_tasks(self, task_ids: Iterable[TaskId]) -> None:
        """Stop tasks, all at once; those that do not end in time are left behind."""
        stopping = [self.tasks.pop(each) for each in list(task_ids) if each in self.tasks]
        for task in stopping:
            task.request_stop()
        await self._end(stopping)

    def tasks_of(self, connector: str) -> list[TaskId]:
        """The tasks of a connector that run here."""
        return sorted(each for each in self.tasks if each.connector == connector)

    def set_target(self, connector: str, target: TargetState) -> None:
        """Pause or resume what runs of a connector."""
        running = self.connectors.get(connector)
        if running is not None:
            running.set_target(target)
        for task_id in self.tasks_of(connector):
            self.tasks[task_id].set_target(target)

    async def close(self) -> None:
        """Stop all connectors and tasks."""
        self._commits.cancel()
        self._looks.cancel()
        await self.stop_tasks(list(self.tasks))
        await self.stop_connectors(self.connectors)
        for storage in (*self._own_offsets.values(), self.offsets):
            await self.ask(storage.close, "closing the offset store")

    async def _end(self, ending: Sequence[WorkerTask | RunningConnector]) -> None:
        """Wait for threads to end, for as long as all of them together may take."""
        waits = [asyncio.wrap_future(each.finished) for each in ending]
        if not waits:
            return
        limit_s = self.config.task_shutdown_graceful_timeout_ms / 1000
        self._ending |= dict.fromkeys(ending)
        await asyncio.wait(waits, timeout=limit_s)
        for each in ending:
            self._ending.pop(each, None)
        for each, wait in zip(ending, waits, strict=True):
            if not wait.done():
                each.abandon()
                if isinstance(each, WorkerTask):
                    run_in_thread(each.close_clients, "connect-abandon")

    async def _commit_at_intervals(self) -> None:
        """Store the offsets of sources; a store that hangs delays its own task alone."""
        while True:
            await asyncio.sleep(self.config.offset_flush_interval_ms / 1000)
            for task_id, task in self.tasks.items():
                before = self._committing.get(task_id)
                if isinstance(task, WorkerSourceTask) and (before is None or before.done()):
                    work = run_in_thread(task.commit_offsets, f"connect-commit-{task_id}")
                    self._committing[task_id] = work
            self._committing = {t: f for t, f in self._committing.items() if not f.done()}

    async def _look_at_intervals(self) -> None:
        """Report calls of plug-ins that do not return."""
        limit_ms = self.config.plugin_call_warn_ms
        while True:
            await asyncio.sleep(min(limit_ms / 2000, MOST_LOOK_PAUSE_S))
            calls = [running.calls for running in self.connectors.values()]
            calls += [task.calls for task in (*self.tasks.values(), *self._ending)]
            for each in calls:
                each.look(limit_ms)

    def _note_connector(self, name: str, state: State, trace: str | None) -> None:
        self.connector_starts.follow(name, state)
        self.on_connector_status(name, state, trace and self.providers.hide(trace))

    def _note_task(self, task_id: TaskId, state: State, trace: str | None) -> None:
        self.task_starts.follow(task_id, state)
        self.on_task_status(task_id, state, trace and self.providers.hide(trace))

    def _from_thread(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Has the loop call it, from any thread, until the loop has ended."""

        def post(*arguments: object) -> None:
            try:
                self._loop.call_soon_threadsafe(callback, *arguments)
            except RuntimeError:
                logger.debug("the worker has ended; %s is not heard", arguments)

        return post


def _ignore(*arguments: object) -> None:
    """Until a herder listens."""


def _class_name(connector_class: type[Connector]) -> str:
    return connector_class.kafka_class or f"{connector_class.__module__}.{connector_class.__name__}"


def refusal(status: int, message: str) -> ConnectRestError:
    """What REST answers with this HTTP status."""
    return ConnectRestError(status, message)


class ConnectRestError(KafkaError):
    """A request to a herder that it does not carry out; `status` is what HTTP says of it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)
        self.status = status
