"""The herder of a worker of its own: connectors are in memory, and run here or nowhere."""

from __future__ import annotations

import asyncio
import logging

from ottla.connect.herder import START_WAIT_S, ConfigState, Herder
from ottla.connect.statuses import Statuses
from ottla.connect.worker import Worker
from ottla.connect.worker_task import State, TargetState, TaskId

logger = logging.getLogger(__name__)


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
            self.statuses.put_connector(name, self.own_status(State.RESTARTING))
            await self.worker.stop_connector(name)
            self.worker.start_connector(name, self.state.connectors[name], self.state.target(name))
        if include_tasks:
            for task_id in self.state.task_ids(name):
                found = self.statuses.tasks.get(task_id)
                if not only_failed or (found is not None and found.state is State.FAILED):
                    await self.carry_out_task_restart(task_id)

    async def carry_out_task_restart(self, task_id: TaskId) -> None:
        await self.worker.stop_tasks([task_id])
        self.statuses.put_task(task_id, self.own_status(State.RESTARTING))
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
