"""What connectors and tasks do at present, and the topics that they have used.

A worker of its own only keeps this; one in a group writes it to the status topic, so that each of
them can answer for all:

    status-connector-<name>                 {"state","trace","worker_id","generation","version"}
    status-task-<name>-<n>                  the same
    status-topic-<topic>:connector-<name>   {"topic":{"name","connector","task",...}}

A worker that is being left behind must not hide what the next one says: UNASSIGNED and FAILED are
written only over a status of this worker's, or of an older generation. Where they come too late
all the same, behind the words of the next worker, they are passed over, and it says them again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.offset_storage import to_json
from ottla.connect.plugin_thread import State
from ottla.connect.worker_task import TaskId
from ottla.record.consumer_record import ConsumerRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """The state of a connector or task.

    `generation` is that of the worker's group, `version` that of the plug-in (KIP-891).
    """

    state: State
    worker_id: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None

    def json(self) -> dict[str, Any]:
        """The form of REST: a trace is left out where there is none."""
        found: dict[str, Any] = {"state": self.state.value, "worker_id": self.worker_id}
        if self.trace is not None:
            found["trace"] = self.trace
        found["version"] = self.version
        return found


class Statuses:
    """All statuses, in memory; one that must outlive the worker writes them down as well."""

    def __init__(self) -> None:
        self.connectors: dict[str, Status] = {}
        self.tasks: dict[TaskId, Status] = {}
        self.topics: dict[str, dict[str, TaskId]] = {}
        """The topics of each connector, with the task that was seen to use one first."""

    def put_connector(self, name: str, status: Status) -> None:
        self.connectors[name] = status

    def put_task(self, task_id: TaskId, status: Status) -> None:
        self.tasks[task_id] = status

    def add_topic(self, task_id: TaskId, topic: str) -> None:
        self.topics.setdefault(task_id.connector, {}).setdefault(topic, task_id)

    def remove_connector(self, name: str) -> None:
        """A connector was deleted."""
        self.connectors.pop(name, None)
        self.remove_tasks(task_id for task_id in list(self.tasks) if task_id.connector == name)
        self.reset_topics(name)

    def remove_tasks(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in list(task_ids):
            self.tasks.pop(task_id, None)

    def reset_topics(self, name: str) -> None:
        """Forget the topics of a connector."""
        self.topics.pop(name, None)

    def tasks_of(self, name: str) -> list[TaskId]:
        return sorted(task_id for task_id in self.tasks if task_id.connector == name)

    async def close(self) -> None:
        """Release what it holds."""


CONNECTOR_PREFIX: Final = "status-connector-"
TASK_PREFIX: Final = "status-task-"
TOPIC_PREFIX: Final = "status-topic-"
TOPIC_SEPARATOR: Final = ":connector-"
CAREFUL: Final = frozenset({State.UNASSIGNED, State.FAILED})
Write = Callable[[list[tuple[bytes, bytes | None]]], object]


class TopicStatuses(Statuses):
    """Statuses that are written to the topic, and known from what is read of it.

    What this worker writes counts here at once; `write` must not block.
    """

    def __init__(self, write: Write, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._write = write
        self._now_ms = now_ms
        self._own: dict[bytes, Status] = {}
        """What this worker has said last."""

    def put_connector(self, name: str, status: Status) -> None:
        if _may_replace(self.connectors.get(name), status):
            super().put_connector(name, status)
            self._say(_connector_key(name), status)

    def put_task(self, task_id: TaskId, status: Status) -> None:
        if _may_replace(self.tasks.get(task_id), status):
            super().put_task(task_id, status)
            self._say(_task_key(task_id), status)

    def _say(self, key: bytes, status: Status) -> None:
        self._own[key] = status
        self._write([(key, _value(status))])

    def add_topic(self, task_id: TaskId, topic: str) -> None:
        if topic in self.topics.get(task_id.connector, ()):
            return
        super().add_topic(task_id, topic)
        value = {
            "topic": {
                "name": topic,
                "connector": task_id.connector,
                "task": task_id.task,
                "discoverTimestamp": self._now_ms(),
            }
        }
        self._write([(_topic_key(topic, task_id.connector), to_json(value).encode())])

    def remove_connector(self, name: str) -> None:
        super().remove_connector(name)
        self._write([(_connector_key(name), None)])

    def remove_tasks(self, task_ids: Iterable[TaskId]) -> None:
        gone = list(task_ids)
        super().remove_tasks(gone)
        self._write([(_task_key(task_id), None) for task_id in gone])

    def reset_topics(self, name: str) -> None:
        gone = list(self.topics.get(name, ()))
        super().reset_topics(name)
        self._write([(_topic_key(topic, name), None) for topic in gone])

    def apply(self, record: ConsumerRecord) -> None:
        """Take in what a worker wrote, this one or another; what is no status is passed over."""
        try:
            self._apply(record)
        except Exception as error:  # whatever somebody has written to the topic
            logger.error(
                "record %d of %s-%d is no status, and passed over: %r",
                *(record.offset, record.topic, record.partition, error),
            )

    def _apply(self, record: ConsumerRecord) -> None:
        key = (record.key or b"").decode()
        value = None if record.value is None else json.loads(record.value)
        if key.startswith(CONNECTOR_PREFIX):
            self._apply_connector(key.removeprefix(CONNECTOR_PREFIX), value)
        elif key.startswith(TASK_PREFIX):
            name, _, number = key.removeprefix(TASK_PREFIX).rpartition("-")
            self._apply_task(TaskId(name, int(number)), value)
        elif key.startswith(TOPIC_PREFIX):
            topic, _, name = key.removeprefix(TOPIC_PREFIX).partition(TOPIC_SEPARATOR)
            if value is None:
                self.topics.get(name, {}).pop(topic, None)
            else:
                Statuses.add_topic(self, TaskId(name, int(value["topic"]["task"])), topic)

    def _apply_connector(self, name: str, value: Any) -> None:
        if value is None:
            self.connectors.pop(name, None)
        elif self._counts(
            _connector_key(name), self.connectors.get(name), status := _status(value)
        ):
            self.connectors[name] = status

    def _apply_task(self, task_id: TaskId, value: Any) -> None:
        if value is None:
            self.tasks.pop(task_id, None)
        elif self._counts(_task_key(task_id), self.tasks.get(task_id), status := _status(value)):
            self.tasks[task_id] = status

    def _counts(self, key: bytes, before: Status | None, status: Status) -> bool:
        """Whether what was read is no late word; one that hides this worker's is answered."""
        if _may_replace(before, status):
            return True
        if before is not None and before == self._own.get(key):
            self._say(key, before)
        return False


def _may_replace(before: Status | None, status: Status) -> bool:
    if before is None or status.state not in CAREFUL:
        return True
    return before.worker_id == status.worker_id or before.generation < status.generation


def _value(status: Status) -> bytes:
    value = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
    return to_json(value).encode()


def _status(value: Any) -> Status:
    return Status(
        State(value["state"]),
        value["worker_id"],
        int(value.get("generation") or 0),
        value.get("trace"),
        value.get("version"),
    )


def _connector_key(name: str) -> bytes:
    return f"{CONNECTOR_PREFIX}{name}".encode()


def _task_key(task_id: TaskId) -> bytes:
    return f"{TASK_PREFIX}{task_id.connector}-{task_id.task}".encode()


def _topic_key(topic: str, connector: str) -> bytes:
    return f"{TOPIC_PREFIX}{topic}{TOPIC_SEPARATOR}{connector}".encode()
