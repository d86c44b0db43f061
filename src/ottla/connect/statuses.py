"""What connectors and tasks do at present, and the topics that they have used.

A worker in a group writes this to a topic, so that each of them can answer for all; one of its own
only keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.connect.worker_task import State, TaskId


@dataclass(frozen=True)
class Status:
    """The state of a connector or task; `generation` is that of the worker's group."""

    state: State
    worker_id: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None

    def json(self) -> dict[str, Any]:
        """As REST shows it: what is not known is left out."""
        found: dict[str, Any] = {"state": self.state.value, "worker_id": self.worker_id}
        if self.trace is not None:
            found["trace"] = self.trace
        if self.version is not None:
            found["version"] = self.version
        return found


class Statuses:
    """All statuses, in memory; one that must outlive the worker writes them down as well."""

    def __init__(self) -> None:
        self.connectors: dict[str, Status] = {}
        self.tasks: dict[TaskId, Status] = {}
        self.topics: dict[str, dict[str, TaskId]] = {}
        """For each connector its topics, with the task that was seen to use one first."""

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
