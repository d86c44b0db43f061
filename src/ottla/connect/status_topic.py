"""The status topic of a group of workers: what each connector and task does, for all to see.

    status-connector-<name>                 {"state","trace","worker_id","generation","version"}
    status-task-<name>-<n>                  the same
    status-topic-<topic>:connector-<name>   {"topic":{"name","connector","task",...}}

A worker that is being left behind must not hide what the next one says: UNASSIGNED and FAILED are
written only over a status of this worker's, or of an older generation.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.connect.offset_storage import to_json
from ottla.connect.statuses import Status, Statuses
from ottla.connect.worker_task import State, TaskId

logger = logging.getLogger(__name__)

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

    def put_connector(self, name: str, status: Status) -> None:
        if _may_replace(self.connectors.get(name), status):
            super().put_connector(name, status)
            self._write([(f"{CONNECTOR_PREFIX}{name}".encode(), _value(status))])

    def put_task(self, task_id: TaskId, status: Status) -> None:
        if _may_replace(self.tasks.get(task_id), status):
            super().put_task(task_id, status)
            self._write([(_task_key(task_id), _value(status))])

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
        self._write([(f"{CONNECTOR_PREFIX}{name}".encode(), None)])

    def remove_tasks(self, task_ids: Iterable[TaskId]) -> None:
        gone = list(task_ids)
        super().remove_tasks(gone)
        self._write([(_task_key(task_id), None) for task_id in gone])

    def reset_topics(self, name: str) -> None:
        gone = list(self.topics.get(name, ()))
        super().reset_topics(name)
        self._write([(_topic_key(topic, name), None) for topic in gone])

    def apply(self, record: ConsumerRecord) -> None:
        """Take in what a worker wrote, this one or another."""
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
        else:
            self.connectors[name] = _status(value)

    def _apply_task(self, task_id: TaskId, value: Any) -> None:
        if value is None:
            self.tasks.pop(task_id, None)
        else:
            self.tasks[task_id] = _status(value)


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


def _task_key(task_id: TaskId) -> bytes:
    return f"{TASK_PREFIX}{task_id.connector}-{task_id.task}".encode()


def _topic_key(topic: str, connector: str) -> bytes:
    return f"{TOPIC_PREFIX}{topic}{TOPIC_SEPARATOR}{connector}".encode()
