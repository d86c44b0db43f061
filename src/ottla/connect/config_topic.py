"""The config topic of a group of workers: connectors, their tasks, and their targets.

    connector-<name>       {"properties":{...}}; a tombstone deletes it
    task-<name>-<n>        {"properties":{...}}; kept aside until
    commit-<name>          {"tasks":n}, which makes the tasks 0 to n-1 count
    target-state-<name>    {"state":"PAUSED","state.v2":"STOPPED"}
    tasks-fencing-<name>   {"task-count":n}: producers to fence before the next tasks (KIP-618)
    session-key            {"key":"<base64>","algorithm":"HmacSHA256","creation-timestamp":ms}
    restart-connector-<name>   {"include-tasks":true,"only-failed":false}
    logger-cluster-<name>  {"level":"DEBUG"}: in all workers that run now (KIP-976)

Keys, fields and their order are Kafka's. The leader alone writes, but for levels of the log. A
commit whose tasks are not all there, or that stands before its connector as compaction may leave
it, makes a connector inconsistent: it is asked for its tasks again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.connect.herder import ConfigState, is_level
from ottla.connect.offset_storage import to_json
from ottla.connect.plugin_thread import TargetState
from ottla.record.consumer_record import ConsumerRecord

logger = logging.getLogger(__name__)

Entry = tuple[bytes, bytes | None]
CONNECTOR_PREFIX: Final = "connector-"
TASK_PREFIX: Final = "task-"
COMMIT_PREFIX: Final = "commit-"
TARGET_PREFIX: Final = "target-state-"
RESTART_PREFIX: Final = "restart-connector-"
FENCING_PREFIX: Final = "tasks-fencing-"
LOGGER_PREFIX: Final = "logger-cluster-"
SESSION_KEY: Final = "session-key"


class SessionKey(NamedTuple):
    """The secret with which workers sign requests to each other."""

    key: bytes
    algorithm: str
    created_ms: int


class ConfigChange(NamedTuple):
    """The kind of change of a record: connector, removed, tasks, target, key, restart or level."""

    kind: str
    name: str
    detail: Any = None


class ConfigTopic:
    """The meaning of the topic's records, applied one by one to a `ConfigState`.

    `offset` is behind the last record; `on_change` gets each change, on the same thread.
    """

    def __init__(self, on_change: Callable[[ConfigChange], object]) -> None:
        self.state = ConfigState()
        self.offset = 0
        self.session_key: SessionKey | None = None
        self.inconsistent: set[str] = set()
        self._on_change = on_change
        self._aside: dict[str, dict[int, dict[str, str]]] = {}
        self._committed: set[str] = set()

    def apply(self, record: ConsumerRecord) -> None:
        """Take one record in; one that cannot be read is logged and changes nothing."""
        self.offset = record.offset + 1
        key = (record.key or b"").decode()
        try:
            value = None if record.value is None else json.loads(record.value)
        except ValueError as error:
            logger.error("config topic: value of %s is not JSON: %s", key, error)
            return
        if key == SESSION_KEY:
            self._take_session_key(value)
            return
        handlers: dict[str, Callable[[str, Any], None]] = {
            TARGET_PREFIX: self._take_target,
            RESTART_PREFIX: self._take_restart,
            FENCING_PREFIX: self._take_fencing,
            CONNECTOR_PREFIX: self._take_connector,
            TASK_PREFIX: self._take_task,
            COMMIT_PREFIX: self._take_commit,
            LOGGER_PREFIX: self._take_level,
        }
        for prefix, handler in handlers.items():
            if key.startswith(prefix):
                handler(key.removeprefix(prefix), value)
                return

    def _take_connector(self, name: str, value: Any) -> None:
        state = self.state
        if value is None:
            was_there = state.connectors.pop(name, None) is not None
            state.targets.pop(name, None)
            state.tasks.pop(name, None)
            self._aside.pop(name, None)
            self.inconsistent.discard(name)
            self._committed.discard(name)
            if was_there:
                self._on_change(ConfigChange("removed", name))
            return
        properties = {key: str(text) for key, text in value["properties"].items()}
        is_new = name not in state.connectors
        state.connectors[name] = properties
        state.tasks.setdefault(name, [])
        if name not in self._committed:
            self.inconsistent.add(name)  # its tasks are not known: it is asked for them
        self._on_change(ConfigChange("connector", name, is_new))

    def _take_task(self, rest: str, value: Any) -> None:
        name, _, number = rest.rpartition("-")
        if value is None:
            return
        self._aside.setdefault(name, {})[int(number)] = dict(value["properties"])

    def _take_commit(self, name: str, value: Any) -> None:
        aside = self._aside.pop(name, {})
        if name not in self.state.connectors or value is None:
            return  # of a connector that was deleted
        count = int(value["tasks"])
        known = dict(enumerate(self.state.tasks.get(name, ())))
        merged = known | aside
        if any(number not in merged for number in range(count)):
            logger.info("the tasks of %s are not all in the config topic", name)
            self.inconsistent.add(name)
            self._committed.discard(name)
        else:
            self.state.tasks[name] = [merged[number] for number in range(count)]
            self.state.generations[name] = self.state.generations.get(name, 0) + 1
            self.state.unfenced.add(name)
            self.inconsistent.discard(name)
            self._committed.add(name)
        self._on_change(ConfigChange("tasks", name))

    def _take_fencing(self, name: str, value: Any) -> None:
        if value is None:
            self.state.fenced.pop(name, None)
        else:
            self.state.fenced[name] = int(value["task-count"])
            self.state.unfenced.discard(name)

    def _take_target(self, name: str, value: Any) -> None:
        if value is None:
            self.state.targets.pop(name, None)
            return
        word = value.get("state.v2") or value.get("state")
        if word not in TargetState.__members__:
            logger.error("target state of %s: %s is not known", name, word)
            return
        target = TargetState(word)
        if self.state.targets.get(name) is not target:
            self.state.targets[name] = target
            self._on_change(ConfigChange("target", name, target))

    def _take_session_key(self, value: Any) -> None:
        if value is None:
            return
        key = base64.b64decode(value["key"])
        self.session_key = SessionKey(key, value["algorithm"], int(value["creation-timestamp"]))
        self._on_change(ConfigChange("key", ""))

    def _take_restart(self, name: str, value: Any) -> None:
        if value is not None:
            detail = (bool(value.get("include-tasks")), bool(value.get("only-failed")))
            self._on_change(ConfigChange("restart", name, detail))

    def _take_level(self, name: str, value: Any) -> None:
        level = value.get("level") if isinstance(value, dict) else None
        if is_level(level):
            self._on_change(ConfigChange("level", name, level))
        else:
            logger.error("level of the log of %s: %s is not known", name, level)


def connector_entry(name: str, properties: Mapping[str, str]) -> Entry:
    return _entry(CONNECTOR_PREFIX + name, {"properties": dict(properties)})


def removal(name: str, task_count: int) -> list[Entry]:
    """Tombstones for the records of a connector.

    Also for its tasks, which Kafka leaves behind: they came back with the next of this name. The
    number of producers to fence stays: the next of this name has their transactional ids.
    """
    keys = [CONNECTOR_PREFIX + name, TARGET_PREFIX + name, COMMIT_PREFIX + name]
    keys += [f"{TASK_PREFIX}{name}-{number}" for number in range(task_count)]
    return [_entry(key, None) for key in keys]


def fencing_entry(name: str, task_count: int) -> Entry:
    return _entry(FENCING_PREFIX + name, {"task-count": task_count})


def task_entries(name: str, tasks: list[dict[str, str]]) -> list[Entry]:
    return [
        _entry(f"{TASK_PREFIX}{name}-{number}", {"properties": properties})
        for number, properties in enumerate(tasks)
    ]


def commit_entry(name: str, count: int) -> Entry:
    return _entry(COMMIT_PREFIX + name, {"tasks": count})


def target_entry(name: str, target: TargetState) -> Entry:
    """STOPPED is PAUSED to workers that are older than it (KIP-875)."""
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return _entry(TARGET_PREFIX + name, {"state": old.value, "state.v2": target.value})


def restart_entry(name: str, include_tasks: bool, only_failed: bool) -> Entry:
    value = {"include-tasks": include_tasks, "only-failed": only_failed}
    return _entry(RESTART_PREFIX + name, value)


def logger_entry(name: str, level: str) -> Entry:
    return _entry(LOGGER_PREFIX + name, {"level": level})


def session_key_entry(found: SessionKey) -> Entry:
    value = {
        "key": base64.b64encode(found.key).decode(),
        "algorithm": found.algorithm,
        "creation-timestamp": found.created_ms,
    }
    return _entry(SESSION_KEY, value)


def _entry(key: str, value: Any) -> Entry:
    return key.encode(), None if value is None else to_json(value).encode()
