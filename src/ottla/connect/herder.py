"""The herder knows which connectors there are, answers for them, and carries out what is asked.

Reading is answered at once, from what is known here. What changes something is done for one
connector after the other, while questions to plug-ins run elsewhere: a connector that hangs delays
only what is asked of itself.

    StandaloneHerder     one worker; connectors are in memory and come back from their files
    DistributedHerder    a group of workers; connectors are in a topic, one of them leads
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Final

from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import INT, LONG, STRING, ConfigType
from ottla.connect.connector import Connector, Place
from ottla.connect.connector_settings import (
    Checked,
    common_table,
    definitions_json,
    parse_connector,
    required_name,
    validation_json,
)
from ottla.connect.offset_storage import SourceOffset, check_stored
from ottla.connect.plugin_thread import State, TargetState
from ottla.connect.plugins import (
    CONNECTORS,
    CONVERTERS,
    HEADER_CONVERTERS,
    PREDICATES,
    TRANSFORMS,
    Plugin,
    aliases,
    version_of,
)
from ottla.connect.statuses import Status, Statuses
from ottla.connect.worker import ConnectRestError, RunningConnector, Worker, refusal
from ottla.connect.worker_clients import WorkerClients
from ottla.connect.worker_task import TaskId
from ottla.errors import ConfigError, KafkaError
from ottla.runtime import log_levels
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

START_WAIT_S: Final = 1.0
"""How long an answer waits for a connector to say its tasks, before it is given without them."""
PLAN_PAUSE_S: Final = 1.0
"""Between two times that a connector is asked for its tasks because it wants that."""
STORE_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Between times that tasks are stored which could not be; the last again and again."""
KINDS: Final = {
    CONVERTERS: "converter",
    HEADER_CONVERTERS: "header_converter",
    TRANSFORMS: "transformation",
    PREDICATES: "predicate",
}


@dataclass
class ConfigState:
    """All connectors, as a person configured them, and the tasks that were planned for them."""

    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, TargetState] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    """How often the tasks of each were planned."""
    fenced: dict[str, int] = field(default_factory=dict)
    """How many tasks of each had producers when others were fenced last (KIP-618)."""
    unfenced: set[str] = field(default_factory=set)
    """Those whose tasks were planned since."""

    def target(self, name: str) -> TargetState:
        return self.targets.get(name, TargetState.STARTED)

    def has_task(self, task_id: TaskId) -> bool:
        """Whether a task was planned; at once, however many there are."""
        return 0 <= task_id.task < len(self.tasks.get(task_id.connector, ()))

    def task_ids(self, name: str) -> list[TaskId]:
        return [TaskId(name, number) for number in range(len(self.tasks.get(name, ())))]


LEVELS: Final = {"ALL": 1, **log_levels.LEVELS, "OFF": logging.CRITICAL + 10}
"""Kafka's names, from the most that is logged to nothing."""


def is_level(word: Any) -> bool:
    """Whether a level of the log has this name, in any case."""
    return isinstance(word, str) and word.upper() in LEVELS


class LogLevels:
    """The levels of the loggers of this process; a restart brings those of the start back."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._changed_ms: dict[str, int] = {}

    def all(self) -> dict[str, dict[str, Any]]:
        """Those that were given a level; the others have that of the logger above them."""
        names = sorted({log_levels.ROOT, *logging.root.manager.loggerDict})
        return {
            name: self.of(name)
            for name in names
            if name == log_levels.ROOT or logging.getLogger(name).level != logging.NOTSET
        }

    def of(self, name: str) -> dict[str, Any]:
        """The level in force, and when it was changed; ConnectRestError 404 if there is none."""
        if name != log_levels.ROOT and name not in logging.root.manager.loggerDict:
            raise refusal(404, f"Logger {name} not found.")
        number = logging.getLogger(name).getEffectiveLevel()
        level = next((level for level, least in LEVELS.items() if number <= least), "OFF")
        return {"level": level, "last_modified": self._changed_ms.get(name)}

    def set(self, name: str, level: str) -> list[str]:
        """Change the level of a logger and of those below it; the names of those it changed."""
        number = LEVELS[level.upper()]
        logging.getLogger(name)  # from now on there is one of this name
        known = list(logging.root.manager.loggerDict.items())
        names = [each for each, found in known if isinstance(found, logging.Logger)]
        below = [each for each in names if name == log_levels.ROOT or each.startswith(f"{name}.")]
        before = {each: logging.getLogger(each).getEffectiveLevel() for each in (name, *below)}
        logging.getLogger(name).setLevel(number)
        for each in below:
            if logging.getLogger(each).level != logging.NOTSET:
                logging.getLogger(each).setLevel(number)
        changed = sorted(each for each, was in before.items() if was != number)
        self._changed_ms |= dict.fromkeys(changed, self._now_ms())
        return changed


class Herder(ABC):
    """What REST and commands ask. Every method is for the loop of the worker."""

    def __init__(self, worker: Worker, state: ConfigState, statuses: Statuses) -> None:
        self.worker = worker
        self.state = state
        self.statuses = statuses
        self.worker_id = ""
        """Host and port under which this worker's REST API is reached."""
        self.kafka_cluster_id: str | None = None
        self.log_levels = LogLevels(worker.runtime.clock.now_ms)
        self._locks: dict[str, asyncio.Lock] = {}
        self._planning: dict[str, asyncio.Lock] = {}
        self._asked: set[str] = set()
        """Connectors that wait for being asked for their tasks."""
        self._under_way: set[asyncio.Task[Any]] = set()
        worker.on_connector_status = self._on_connector_status
        worker.on_task_status = self._on_task_status
        worker.on_topic = self._on_topic
        worker.on_reconfiguration = self._on_reconfiguration

    # Reading

    @property
    def health(self) -> tuple[str, str]:
        """healthy, starting or unhealthy, and a sentence (KIP-1017)."""
        return "healthy", "Worker has completed startup and is ready to handle requests."

    def names(self) -> list[str]:
        return sorted(self.state.connectors)

    def config(self, name: str) -> dict[str, str]:
        """The properties of a connector; ConnectRestError 404 if there is none."""
        found = self.state.connectors.get(name)
        if found is None:
            raise refusal(404, f"Connector {name} not found")
        return found

    def used_config(self, name: str) -> dict[str, str]:
        """The same for code alone, with what references stand for; ConfigError where one fails."""
        return self.worker.providers.resolve(self.config(name))

    def info(self, name: str) -> dict[str, Any]:
        config = self.config(name)
        tasks = [{"connector": name, "task": task} for _, task in self.state.task_ids(name)]
        return {"name": name, "config": config, "tasks": tasks, "type": self.kind_of(config)}

    def kind_of(self, config: Mapping[str, str]) -> str:
        """source or sink; unknown if its class cannot be found."""
        try:
            return self.worker.plugins.connector(config.get("connector.class", "")).kind
        except KafkaError:
            return "unknown"

    def status(self, name: str) -> dict[str, Any]:
        config = self.config(name)
        found = self.statuses.connectors.get(name)
        if found is None:
            found = Status(State.UNASSIGNED, self.worker_id)
        known = self.state.task_ids(name)
        tasks = [{"id": each.task, **self._task_status(each).json()} for each in known]
        kind = self.kind_of(config)
        return {"name": name, "connector": found.json(), "tasks": tasks, "type": kind}

    def task_status(self, task_id: TaskId) -> dict[str, Any]:
        self._check_task(task_id)
        return {"id": task_id.task, **self._task_status(task_id).json()}

    def task_configs(self, name: str) -> list[dict[str, Any]]:
        self.config(name)
        return [
            {"id": {"connector": name, "task": number}, "config": config}
            for number, config in enumerate(self.state.tasks.get(name, ()))
        ]

    def topics(self, name: str) -> dict[str, Any]:
        """The topics that a connector has used (KIP-558)."""
        if not self.worker.config.topic_tracking_enable:
            raise refusal(403, "Topic tracking is disabled.")
        self.config(name)
        return {name: {"topics": sorted(self.statuses.topics.get(name, ()))}}

    def reset_topics(self, name: str) -> None:
        config = self.worker.config
        if not (config.topic_tracking_enable and config.topic_tracking_allow_reset):
            raise refusal(403, "Topic tracking reset is disabled.")
        self.config(name)
        self.statuses.reset_topics(name)

    def _task_status(self, task_id: TaskId) -> Status:
        found = self.statuses.tasks.get(task_id)
        return found or Status(State.UNASSIGNED, self.worker_id)

    def _check_task(self, task_id: TaskId) -> None:
        self.config(task_id.connector)
        if not self.state.has_task(task_id):
            raise refusal(404, f"Task {task_id.connector}-{task_id.task} not found")

    # Plug-ins and their settings; their code is run, so that these may take a while

    async def plugins(self, connectors_only: bool) -> list[dict[str, Any]]:
        def found() -> list[dict[str, Any]]:
            groups = [CONNECTORS] if connectors_only else [CONNECTORS, *KINDS]
            return [
                {
                    "class": plugin.name,
                    "type": KINDS.get(group) or plugin.plugin.kind,
                    "version": plugin.version,
                }
                for group in groups
                for plugin in self.worker.plugins.list(group)
            ]

        return await self.worker.ask(found, "listing plug-ins")

    async def plugin_config(self, word: str) -> list[dict[str, Any]]:
        """The settings of a plug-in of any kind."""

        def found() -> list[dict[str, Any]]:
            plugin = self._plugin(word)
            table = plugin.Settings
            if isinstance(plugin, type) and issubclass(plugin, Connector):
                common = common_table(plugin)
                found = [*definitions_json(table), *definitions_json(common)]
                version = next(e for e in found if e["name"] == "connector.plugin.version")
                version["default_value"] = version_of(plugin)
                return found
            return definitions_json(table)

        return await self.worker.ask(found, f"describing plug-in {word}")

    def _plugin(self, word: str) -> Any:
        for group in (CONNECTORS, *KINDS):
            for plugin in self.worker.plugins.list(group):
                if _is_named(plugin, word):
                    return plugin.plugin
        raise refusal(404, f"Unknown plugin {word}.")

    async def validate(self, word: str, properties: Mapping[str, str]) -> dict[str, Any]:
        """What is wrong with the properties of a connector, key by key."""
        plugins = self.worker.plugins
        if "connector.class" in properties:
            named = await self.worker.ask(lambda: plugins.connector(word), f"finding {word}")
            try:
                given = plugins.connector(properties["connector.class"])
            except KafkaError:
                given = named
            if given is not named:
                raise refusal(
                    400,
                    f"Included connector type {properties['connector.class']} does not match "
                    f"request type {word}",
                )
        checked = await self.check({"connector.class": word, **properties})
        try:
            plugins.connector(word)
        except KafkaError:
            raise refusal(404, f"Unknown plugin {word}.") from None
        return validation_json(checked)

    async def check(self, properties: Mapping[str, str]) -> Checked:
        what = f"validating connector {properties.get('name', '')}"
        return await self.worker.ask(lambda: self.worker.check(properties), what)

    # Changing

    async def put_config(
        self,
        name: str,
        properties: Mapping[str, str | None],
        may_replace: bool,
        target: TargetState | None = None,
        is_patch: bool = False,
    ) -> tuple[bool, dict[str, Any]]:
        """Create a connector or change it: whether it is new, and its info.

        A patch changes single settings; None takes one away (KIP-477). ConnectRestError 400 with
        all that is wrong, 409 if it is there and may not be replaced.
        """
        name = name.strip()
        async with self._lock(name):
            given = {**self.config(name), **properties} if is_patch else properties
            try:
                wanted = required_name(name, {k: v for k, v in given.items() if v is not None})
            except KafkaError as error:
                raise refusal(400, error.message) from None
            is_new = name not in self.state.connectors
            if not is_new and not may_replace:
                raise refusal(409, f"Connector {name} already exists")
            checked = await self.check(wanted)
            if checked.error_count:
                raise refusal(400, checked.text())
            await self.store_config(name, wanted, target)
        await self.settle(name)
        return is_new, self.info(name)

    async def delete(self, name: str) -> None:
        async with self._lock(name):
            self.config(name)
            await self.remove_config(name)

    async def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop."""
        async with self._lock(name):
            self.config(name)
            await self.store_target(name, target)
        await self.settle(name)

    async def restart(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restart a connector, and its tasks if wanted (KIP-745); the status says RESTARTING."""
        async with self._lock(name):
            self.config(name)
            await self.carry_out_restart(name, include_tasks, only_failed)
            found = self.status(name)
        await self.settle(name)
        return found

    async def restart_task(self, task_id: TaskId) -> None:
        async with self._lock(task_id.connector):
            self._check_task(task_id)
            await self.carry_out_task_restart(task_id)

    async def set_group_level(self, name: str, level: str) -> None:
        """Change a level of the log in all workers; a worker that is alone is all of them."""
        self.log_levels.set(name, level)

    async def settle(self, name: str) -> None:
        """Give a change a moment to take effect, before it is answered."""

    @abstractmethod
    async def store_config(
        self, name: str, properties: dict[str, str], target: TargetState | None
    ) -> None:
        """Keep checked properties, and have the connector run with them."""

    @abstractmethod
    async def remove_config(self, name: str) -> None:
        """Forget a connector, and have it stop."""

    @abstractmethod
    async def store_target(self, name: str, target: TargetState) -> None:
        """Keep what a connector is to do, and have it do that."""

    @abstractmethod
    async def store_tasks(self, name: str, tasks: list[dict[str, str]]) -> None:
        """Keep how a connector's work is split, and have the tasks run."""

    @abstractmethod
    async def carry_out_restart(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        """Restart where it runs."""

    @abstractmethod
    async def carry_out_task_restart(self, task_id: TaskId) -> None:
        """Restart where it runs."""

    # Offsets (KIP-875)

    async def offsets(self, name: str) -> dict[str, Any]:
        """The offsets of a connector: those of its source, or of its consumer group."""
        config = self.used_config(name)
        if self.kind_of(config) == "sink":
            found = await self.worker.ask(
                lambda: self._sink_offsets(name, config), f"reading offsets of {name}"
            )
            return {"offsets": found}
        storage = self.worker.offsets_of(config)
        await self.worker.ask(lambda: storage.refresh(30_000), f"reading offsets of {name}")
        return {
            "offsets": [
                {"partition": dict(partition), "offset": offset}
                for _, partition, offset in storage.table.of(name)
            ]
        }

    async def alter_offsets(self, name: str, wanted: Sequence[tuple[Place, Place | None]]) -> str:
        """Set offsets of a stopped connector; returns the sentence of the answer."""
        async with self._lock(name):
            return await self._write_offsets(name, wanted, "altered")

    async def reset_offsets(self, name: str) -> str:
        """Forget the offsets of a stopped connector."""
        async with self._lock(name):
            await self._check_stopped(name)
            found = (await self.offsets(name))["offsets"]
            wanted = [(each["partition"], None) for each in found]
            return await self._write_offsets(name, wanted, "reset")

    async def _write_offsets(
        self, name: str, wanted: Sequence[tuple[Place, Place | None]], verb: str
    ) -> str:
        await self._check_stopped(name)
        config = self.used_config(name)
        write = (
            self._alter_sink_offsets
            if self.kind_of(config) == "sink"
            else self._alter_source_offsets
        )
        is_known = await self.worker.ask(
            lambda: write(name, config, wanted), f"writing offsets of {name}"
        )
        return _outcome(verb, is_known)

    async def _check_stopped(self, name: str) -> None:
        self.config(name)
        if self.state.target(name) is not TargetState.STOPPED or self.state.tasks.get(name):
            raise refusal(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint",
            )

    def _alter_source_offsets(
        self, name: str, config: Mapping[str, str], wanted: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        connector: Any = self.worker.plugins.connector(config["connector.class"])
        for partition, offset in wanted:
            check_stored(partition, "partition", is_key=True)
            check_stored(offset or {}, "offset", is_key=True)
        is_known = connector.alter_offsets(parse_connector(connector, config)[1], wanted)
        entries = [SourceOffset(name, partition, offset) for partition, offset in wanted]
        self.worker.offsets_of(config).write(entries, 30_000)
        return bool(is_known)

    def _sink_offsets(self, name: str, config: Mapping[str, str]) -> list[dict[str, Any]]:
        clients = WorkerClients(self.worker.config, self.worker.properties, config)
        with clients.admin(name) as admin:
            found = admin.list_group_offsets(clients.consumer_group(name))
        return [
            {
                "partition": {"kafka_topic": place.topic, "kafka_partition": place.partition},
                "offset": {"kafka_offset": offset.offset},
            }
            for place, offset in sorted(found.items())
        ]

    def _alter_sink_offsets(
        self, name: str, config: Mapping[str, str], wanted: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        connector: Any = self.worker.plugins.connector(config["connector.class"])
        offsets = dict(_sink_place(*each) for each in wanted)
        is_known = connector.alter_offsets(parse_connector(connector, config)[1], offsets)
        clients = WorkerClients(self.worker.config, self.worker.properties, config)
        group = clients.consumer_group(name)
        with clients.admin(name) as admin:
            kept = {p: OffsetAndMetadata(n) for p, n in offsets.items() if n is not None}
            if kept:
                admin.alter_group_offsets(group, kept)
            gone = [place for place, number in offsets.items() if number is None]
            if gone:
                admin.delete_group_offsets(group, gone)
        return bool(is_known)

    # What the worker reports

    def _on_connector_status(self, name: str, state: State, trace: str | None) -> None:
        if name in self.state.connectors:
            self.statuses.put_connector(name, self.own_status(name, state, trace))

    def _on_task_status(self, task_id: TaskId, state: State, trace: str | None) -> None:
        if self.state.has_task(task_id):  # else it is one that is gone
            self.statuses.put_task(task_id, self.own_status(task_id.connector, state, trace))

    generation = 0
    """That of the group that this worker is in."""

    def own_status(self, name: str, state: State, trace: str | None = None) -> Status:
        """A status of a connector, or a task of it, that is this worker's."""
        try:
            word = self.state.connectors.get(name, {}).get("connector.class", "")
            version = version_of(self.worker.plugins.connector(word))
        except KafkaError:
            version = None
        return Status(state, self.worker_id, self.generation, trace, version)

    def _on_topic(self, task_id: TaskId, topic: str) -> None:
        if self.worker.config.topic_tracking_enable:
            self.statuses.add_topic(task_id, topic)

    def _on_reconfiguration(self, name: str) -> None:
        """However often a connector asks: what it asks for meanwhile is done once, later."""
        if name not in self._asked:
            self._asked.add(name)
            self.spawn(self._plan_as_asked(name), f"split the work of {name}")

    async def _plan_as_asked(self, name: str) -> None:
        async with self._planning.setdefault(name, asyncio.Lock()):
            self._asked.discard(name)
            await self.plan(name)
            await asyncio.sleep(PLAN_PAUSE_S)

    async def plan(self, name: str) -> None:
        """Ask a connector for its tasks, and have them run if they are others than before.

        One that is stopped has none. While they cannot be stored it is asked again and again.
        """
        for pause_s in chain(STORE_PAUSES_S, repeat(STORE_PAUSES_S[-1])):
            try:
                await self._plan_once(name)
                break
            except KafkaError as error:
                logger.warning("The tasks of %s are not stored yet: %s", name, error.message)
            await asyncio.sleep(pause_s)

    async def _plan_once(self, name: str) -> None:
        running = self.worker.connectors.get(name)
        if running is None:
            return
        if self.state.target(name) is TargetState.STOPPED:
            await self._store_planned(running, [], is_for_stopped=True)
            return
        async with running.planning:  # an answer of before does not replace a later one
            try:
                planned = await self.worker.plan(name)
            except Exception as error:
                logger.error("Connector %s has no tasks: %s", name, error)
            else:
                await self._store_planned(running, planned, is_for_stopped=False)

    async def _store_planned(
        self, running: RunningConnector, planned: list[dict[str, str]], is_for_stopped: bool
    ) -> None:
        async with self._lock(name := running.name):
            is_same = self.worker.connectors.get(name) is running
            is_stopped = self.state.target(name) is TargetState.STOPPED
            if is_same and is_stopped is is_for_stopped and planned != self.state.tasks.get(name):
                await self.store_tasks(name, planned)

    def spawn(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Do something without waiting for its end; what it raises is logged."""
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: %s", task.get_name(), task.exception(), exc_info=task.exception())

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def close(self) -> None:
        """Stop all that runs here."""
        for task in list(self._under_way):
            task.cancel()
        await self.worker.close()
        await self.statuses.close()


def _is_named(plugin: Plugin, word: str) -> bool:
    return word in aliases(plugin.name)


def _outcome(what: str, is_known: bool) -> str:
    if is_known:
        return f"The offsets for this connector have been {what} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {what} successfully. "
        "However, if this connector manages offsets externally, they will need to be manually "
        f"{what} in the system that the connector uses."
    )


def _sink_place(partition: Place, offset: Place | None) -> tuple[TopicPartition, int | None]:
    """A partition and an offset of Kafka, of what a person wrote."""
    try:
        number = _whole("kafka_partition", partition["kafka_partition"], INT)
        place = TopicPartition(STRING.parse("kafka_topic", partition["kafka_topic"]), number)
        if offset is None:
            return place, None
        return place, _whole("kafka_offset", offset["kafka_offset"], LONG)
    except (KeyError, TypeError, ConfigError):
        raise ConnectRestError(
            400,
            f"partition={dict(partition)}, offset={offset}: must have kafka_topic, "
            "kafka_partition and kafka_offset, which are whole numbers from 0 on",
        ) from None


def _whole(name: str, value: Any, kind: ConfigType) -> int:
    """A number as JSON or text has it; ConfigError for another value."""
    number: int = kind.parse(name, str(value))
    if number < 0:
        raise ConfigError(f"{name}={number}: must not be negative")
    return number


class StandaloneHerder(Herder):
    """Carries everything out at once. Offsets are all that outlives the process."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker, ConfigState(), Statuses())

    async def store_config(
        self, name: str, properties: dict[str, str], target: TargetState | None
    ) -> None:
        await self._stop(name)
        self.state.connectors[name] = properties
        if target is not None:
            self.state.targets[name] = target
        self.worker.start_connector(name, properties, self.state.target(name))

    async def remove_config(self, name: str) -> None:
        await self._stop(name)
        self.state.connectors.pop(name)
        self.state.targets.pop(name, None)
        self.state.tasks.pop(name, None)
        self.statuses.remove_connector(name)

    async def store_target(self, name: str, target: TargetState) -> None:
        self.state.targets[name] = target
        if target is TargetState.STOPPED:
            await self.store_tasks(name, [])
        self.worker.set_target(name, target)

    async def store_tasks(self, name: str, tasks: list[dict[str, str]]) -> None:
        await self.worker.stop_tasks(self.worker.tasks_of(name))
        self.state.tasks[name] = tasks
        known = self.state.task_ids(name)
        self.statuses.remove_tasks(e for e in self.statuses.tasks_of(name) if e not in known)
        for task_id in known:
            self._start_task(task_id)

    async def carry_out_restart(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        status = self.statuses.connectors.get(name)
        if not only_failed or (status is not None and status.state is State.FAILED):
            self.statuses.put_connector(name, self.own_status(name, State.RESTARTING))
            await self.worker.stop_connector(name)
            self.worker.start_connector(name, self.state.connectors[name], self.state.target(name))
        if include_tasks:
            for task_id in self.state.task_ids(name):
                found = self.statuses.tasks.get(task_id)
                if not only_failed or (found is not None and found.state is State.FAILED):
                    await self.carry_out_task_restart(task_id)

    async def carry_out_task_restart(self, task_id: TaskId) -> None:
        await self.worker.stop_tasks([task_id])
        self.statuses.put_task(task_id, self.own_status(task_id.connector, State.RESTARTING))
        self._start_task(task_id)

    def _start_task(self, task_id: TaskId) -> None:
        name, number = task_id
        config = self.state.tasks[name][number]
        self.worker.start_task(task_id, config, self.state.target(name))

    async def settle(self, name: str) -> None:
        """Wait for the connector's tasks, but not long: it may hang."""
        planning = self.spawn(self.plan(name), f"split the work of {name}")
        await asyncio.wait([planning], timeout=START_WAIT_S)

    async def _stop(self, name: str) -> None:
        await self.worker.stop_tasks(self.worker.tasks_of(name))
        await self.worker.stop_connector(name)
        self.state.tasks.pop(name, None)
