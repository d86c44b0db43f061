"""The herder of a group of workers: connectors are in a topic, and one of the workers leads.

What a person asks changes the config topic, which the leader writes; every worker reads it and does
its part:

    a connector is new or gone      all join again, and the leader deals
    a connector's properties        restarted where it runs
    its tasks                       those that changed end; all join again, and the leader deals
    its target state                paused, resumed or stopped where it runs

A request that needs the leader is sent on to it. What this worker runs is `owned`; `_reconcile`
makes it so.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ottla.config.connect_config import DistributedConfig
from ottla.connect.config_topic import (
    ConfigChange,
    ConfigTopic,
    Entry,
    SessionKey,
    commit_entry,
    connector_entry,
    fencing_entry,
    logger_entry,
    removal,
    restart_entry,
    session_key_entry,
    target_entry,
    task_entries,
)
from ottla.connect.connect_protocol import CONFIG_MISMATCH, CONNECTOR, Assignment, body_of, sign
from ottla.connect.herder import Herder
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.plugin_thread import State, TargetState
from ottla.connect.statuses import Status, TopicStatuses
from ottla.connect.topic_table import FENCED, TableTopic, TopicTable
from ottla.connect.worker import PLUGIN_LIMIT_S, ConnectRestError, Worker, refusal
from ottla.connect.worker_clients import WorkerClients, with_prefix
from ottla.connect.worker_group import WorkerGroup
from ottla.connect.worker_task import ExactlyOnce, TaskId
from ottla.errors import KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.timing import Deadline

logger = logging.getLogger(__name__)

WRITE_LIMIT_MS: Final = 30_000
TICK_S: Final = 1.0
CLOSE_WAIT_S: Final = 5.0
POST_PAUSE_S: Final = 0.25
ENDS_LIMIT_MS: Final = 60_000
"""How long a request about offsets waits for tasks that end: less than a request may take."""
STATUS_PAUSE_S: Final = 1.0
"""Between two times that statuses are written which could not be."""
PAUSED: Final = TargetState.PAUSED
READ_COMMITTED: Final = {"isolation.level": "read_committed"}


def table_topic(
    config: DistributedConfig, prefix: str, properties: Mapping[str, str]
) -> TableTopic:
    """The topic of `config.storage` and its like, with the settings that stand beside its name."""
    reserved = ("topic", "partitions", "replication.factor")
    configs = {
        key: value
        for key, value in with_prefix(properties, f"{prefix}.").items()
        if key not in reserved
    }
    name, partitions, factor = {
        "config.storage": (
            config.config_storage_topic,
            1,
            config.config_storage_replication_factor,
        ),
        "offset.storage": (
            config.offset_storage_topic,
            config.offset_storage_partitions,
            config.offset_storage_replication_factor,
        ),
        "status.storage": (
            config.status_storage_topic,
            config.status_storage_partitions,
            config.status_storage_replication_factor,
        ),
    }[prefix]
    return TableTopic(f"{prefix}.topic", name, partitions, factor, configs)


def offset_topic(
    config: DistributedConfig, properties: Mapping[str, str], settings: Mapping[str, Any]
) -> TopicOffsetStorage:
    """The offsets of a group of workers."""
    topic = table_topic(config, "offset.storage", properties)
    return TopicOffsetStorage(topic, settings, config.is_exactly_once)


def own_offset_topic(
    config: DistributedConfig, settings: Mapping[str, Any], topic: str
) -> TopicOffsetStorage:
    """The topic that a connector wants its offsets in, made like that of the workers."""
    factor = config.offset_storage_replication_factor
    table = TableTopic("offsets.storage.topic", topic, config.offset_storage_partitions, factor, {})
    return TopicOffsetStorage(table, settings, config.is_exactly_once)


def table_on_loop(
    config: DistributedConfig,
    topic: TableTopic,
    settings: Mapping[str, Any],
    apply: Callable[[ConsumerRecord], object],
) -> TopicTable:
    """A table whose records are applied on the running loop, in order."""
    loop = asyncio.get_running_loop()

    def on_record(record: ConsumerRecord) -> None:
        loop.call_soon_threadsafe(apply, record)

    if topic.name != config.config_storage_topic or not config.has_transactional_leader:
        return TopicTable(topic, settings, on_record)
    leader = f"connect-cluster-{config.group_id}"
    return TopicTable(topic, settings, on_record, READ_COMMITTED, leader)


def path_of(name: str) -> str:
    """The path of a connector in REST, below the address of a worker."""
    return f"connectors/{quote(name, safe='')}"


class NotLeaderError(ConnectRestError):
    """Another worker has to carry a request out; `url` is that worker's, if it is known."""

    def __init__(self, url: str | None) -> None:
        super().__init__(
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
        )
        self.url = url


class TaskVersion(NamedTuple):
    """The settings and the planning that a task is started with.

    Tasks of a source that is exactly once end with their planning, those that are planned alike as
    well: the first task of the next planning has the producers of all before it fenced.
    """

    properties: dict[str, str]
    planning: int
    """The number of the planning; 0 for tasks that outlive it."""


NO_VERSION: Final = TaskVersion({}, -1)


def version_to_run(herder: Herder, task_id: TaskId) -> TaskVersion:
    """The version of a task by the config topic as it is now."""
    name, number = task_id
    properties = herder.state.tasks[name][number]
    is_once = herder.worker.exactly_once is not None and herder.kind_of(properties) == "source"
    return TaskVersion(properties, herder.state.generations.get(name, 0) if is_once else 0)


def is_wanted(herder: Herder, task_id: TaskId, version: TaskVersion) -> bool:
    """Whether this is the version of a task still: others have been started meanwhile."""
    return herder.state.has_task(task_id) and version_to_run(herder, task_id) == version


class DistributedHerder(Herder):
    """One worker of a group."""

    def __init__(
        self,
        worker: Worker,
        config: DistributedConfig,
        client_settings: Mapping[str, Any],
        post: Any,
    ) -> None:
        """`post(method, url, body, headers)` is a coroutine that asks another worker."""
        self._loop = asyncio.get_running_loop()
        self.config_of_group = config
        self._topic = ConfigTopic(self._on_change)
        self._statuses = TopicStatuses(self._write_status, worker.runtime.clock.now_ms)
        super().__init__(worker, self._topic.state, self._statuses)
        self.post = post
        self.zombies = ZombieFencing(self, config.group_id)
        if config.is_exactly_once:
            worker.exactly_once = self.zombies.exactly_once
        worker.open_offsets = partial(own_offset_topic, config, client_settings)
        self.owned: set[TaskId] = set()
        self._run_as: dict[TaskId, TaskVersion] = {}
        self._changed = asyncio.Event()
        self._reconciling = asyncio.Lock()
        self._is_closing = False
        self._has_read = False
        self._has_joined = False
        self._rejoin: asyncio.TimerHandle | None = None
        configs = table_topic(config, "config.storage", worker.properties)
        statuses = table_topic(config, "status.storage", worker.properties)
        self._configs = table_on_loop(config, configs, client_settings, self._topic.apply)
        self._status_table = table_on_loop(config, statuses, client_settings, self._statuses.apply)
        self.group = WorkerGroup(
            worker.runtime,
            config,
            client_settings,
            lambda: (self._topic.offset, self.state),
            self.refresh,
            self._changed.set,
        )
        self.group.member.on_lost = self._drop_all
        self._running: asyncio.Task[None] | None = None
        self._status_writing: asyncio.Task[None] | None = None
        self._status_queue: list[Entry] = []

    # Life

    async def start(self) -> None:
        """Read the topics to their ends; ConfigError where one does not fit."""
        for table in (self._configs, self._status_table):
            await self.worker.ask(table.start, f"reading {table.topic.name}", 150.0)
        if self._configs.partitions != 1:
            raise refusal(
                400,
                f"config.storage.topic={self._configs.topic.name}: must have one partition, not "
                f"{self._configs.partitions}",
            )
        self._has_read = True

    def begin(self, url: str) -> None:
        """Join the group, as the worker that is reached under `url`."""
        self.group.url = url
        self._running = asyncio.create_task(self._serve(), name="herder")

    async def close(self) -> None:
        self._is_closing = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=CLOSE_WAIT_S)
        self.owned = set()
        await super().close()
        await self.group.leave()  # others may run now what has ended here
        if self._status_writing is not None:
            await asyncio.wait([self._status_writing], timeout=CLOSE_WAIT_S)
            self._status_writing.cancel()
        for table in (self._configs, self._status_table):
            await self.worker.ask(table.close, f"closing {table.topic.name}")

    @property
    def health(self) -> tuple[str, str]:
        if not self._has_joined:
            return "starting", "Worker is still starting up."
        return super().health

    async def _serve(self) -> None:
        """Join whenever the group, or the config topic, asks for it."""
        while not self._is_closing:
            try:
                async with asyncio.timeout(TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # nothing has changed, but the group wants to see that this worker turns
            self._changed.clear()
            member = self.group.member
            member.poll_watch.note()
            try:
                if member.is_lost:
                    await self._drop_all()
                if member.error is not None:
                    error, member.error = member.error, None
                    raise error
                if member.needs_join:
                    with self.group.rebalances.rebalance():
                        await self._rebalance()
                await self._reconcile()
                if self.group.is_leader:
                    await self._renew_session_key()
            except KafkaError as error:
                logger.error("group %s: %s", self.config_of_group.group_id, error)
                member.request_join()
                await asyncio.sleep(TICK_S)

    async def _rebalance(self) -> None:
        """Join, stop what was revoked, and join again if something was.

        Tasks of before end first: another worker may read their partitions after the rebalance.
        """
        await self.refresh()
        if not self.group.is_incremental and self._has_joined:
            await self._drop_all()
        async with self._reconciling:
            await self._stop_others(self._wanted_tasks())
        self.group.running = frozenset(self.owned)
        assignment = await self.group.join()
        if assignment.error == CONFIG_MISMATCH or self._topic.offset < assignment.config_offset:
            await self.refresh()
        if assignment.error == CONFIG_MISMATCH:
            self.group.member.request_join()
            return
        await self._take(assignment)
        self._has_joined = True
        if self.group.is_leader:
            await self._lead_duties()
        elif self.config_of_group.has_transactional_leader:
            await self.worker.ask(self._configs.release, "leaving the config topic to the leader")

    async def _take(self, assignment: Assignment) -> None:
        if not self.group.is_incremental:
            self.owned = set(assignment.assigned)
        else:
            self.owned -= assignment.revoked
            await self._reconcile()
            self.owned |= assignment.assigned
            if assignment.revoked:
                self.group.member.request_join()
        if self._rejoin is not None:
            self._rejoin.cancel()
            self._rejoin = None
        if assignment.delay_ms > 0:
            self._rejoin = self._loop.call_later(
                assignment.delay_ms / 1000, self.group.member.request_join
            )

    async def _drop_all(self) -> None:
        """The group continues without this worker: what runs here may run elsewhere soon."""
        self.owned = set()
        await self._reconcile()

    async def _lead_duties(self) -> None:
        """Take the right to write as the leader, and see to the session key."""
        if self.config_of_group.has_transactional_leader:
            await self.worker.ask(self._configs.claim, "taking the config topic over")
        await self._renew_session_key()

    async def _renew_session_key(self) -> None:
        """Make another key, as the leader, where there is none or it is too old."""
        now_ms, known = self.worker.runtime.clock.now_ms(), self._topic.session_key
        ttl_ms = self.config_of_group.inter_worker_key_ttl_ms
        if self.group.is_sessioned and (known is None or now_ms - known.created_ms >= ttl_ms):
            algorithm = self.config_of_group.inter_worker_key_generation_algorithm
            made = SessionKey(secrets.token_bytes(32), algorithm, now_ms)
            await self.write([session_key_entry(made)])

    # What runs here

    async def _reconcile(self) -> None:
        """Stop what is not owned, or runs with other settings; start what is and does not run."""
        async with self._reconciling:
            await self._make_it_so()

    async def _make_it_so(self) -> None:
        state, wanted = self.state, self._wanted_tasks()
        await self._stop_others(wanted)
        owned = {name for name, number in self.owned if number == CONNECTOR}
        kept = owned & state.connectors.keys()
        await self.worker.stop_connectors(self.worker.connectors.keys() - kept)
        for name in sorted(kept):
            if TaskId(name, CONNECTOR) in self.owned and name in state.connectors:
                self._start_connector(name)
                await asyncio.sleep(0)
        self._run_as = {each: run for each, run in self._run_as.items() if each in wanted}
        for task_id, version in wanted.items():
            if self.group.member.needs_join:
                return  # tasks of before may read their partitions on other workers until then
            if task_id in self.worker.tasks or self._run_as.get(task_id) == version:
                continue
            if task_id in self.owned and is_wanted(self, task_id, version):
                self._run_as[task_id] = version
                target = state.target(task_id.connector)
                self.worker.start_task(task_id, version.properties, target)
                await asyncio.sleep(0)  # to start thousands takes longer than a session

    async def _stop_others(self, wanted: Mapping[TaskId, TaskVersion]) -> None:
        """Stop tasks that are not wanted, or are of another version."""
        running = self.worker.tasks
        await self.worker.stop_tasks(
            [each for each in running if self._run_as.get(each) != wanted.get(each, NO_VERSION)]
        )

    def _wanted_tasks(self) -> dict[TaskId, TaskVersion]:
        """The tasks to run here."""
        return {
            each: version_to_run(self, each) for each in self.owned if self.state.has_task(each)
        }

    def _start_connector(self, name: str) -> None:
        if name in self.worker.connectors:
            return
        self.worker.start_connector(name, self.state.connectors[name], self.state.target(name))
        self.spawn(self.plan(name), f"split the work of {name}")

    def _on_change(self, change: ConfigChange) -> None:
        """A record of the config topic has changed something."""
        if change.kind == "level" and self._has_read:  # not one of before this worker's start
            logger.info("Level of %s in all workers: %s", change.name, change.detail)
            self.log_levels.set(change.name, change.detail)
        if not self._has_joined:
            return
        name = change.name
        if change.kind == "removed" or (change.kind == "connector" and change.detail):
            self.group.member.request_join()
        elif change.kind == "connector" and name in self.worker.connectors:
            self.spawn(self._restart_connector(name), f"restart {name}")
        elif change.kind == "tasks":
            self.group.member.request_join()
        elif change.kind == "target":
            self.worker.set_target(name, change.detail)
            has_work = bool(self.state.tasks.get(name))
            if name in self.worker.connectors and not (change.detail is PAUSED and has_work):
                self.spawn(self.plan(name), f"split the work of {name}")
        elif change.kind == "restart":
            self.spawn(self._restart_here(name, *change.detail), f"restart {name}")
        self._changed.set()

    async def _restart_connector(self, name: str) -> None:
        async with self._reconciling:
            await self.worker.stop_connector(name)
            if TaskId(name, CONNECTOR) in self.owned and name in self.state.connectors:
                self._start_connector(name)

    async def _restart_here(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        """What of a connector runs here, and only that (KAFKA-13719)."""

        def is_meant(status: Status | None) -> bool:
            return not only_failed or (status is not None and status.state is State.FAILED)

        if name in self.worker.connectors and is_meant(self.statuses.connectors.get(name)):
            self.statuses.put_connector(name, self.own_status(name, State.RESTARTING))
            await self._restart_connector(name)
        if not include_tasks:
            return
        for task_id in sorted(self.owned):
            is_here = task_id.connector == name and task_id.task != CONNECTOR
            if is_here and is_meant(self.statuses.tasks.get(task_id)):
                await self._restart_task_here(task_id)

    async def _restart_task_here(self, task_id: TaskId) -> None:
        async with self._reconciling:
            await self.worker.stop_tasks([task_id])
            self.statuses.put_task(task_id, self.own_status(task_id.connector, State.RESTARTING))
            self._run_as.pop(task_id, None)
            await self._make_it_so()

    # What a person asks

    def _check_leads(self) -> None:
        if not self.group.is_leader:
            url = self.group.assignment.leader_url
            raise NotLeaderError(url if self._has_joined and url else None)

    async def put_config(
        self,
        name: str,
        properties: Mapping[str, str | None],
        may_replace: bool,
        target: TargetState | None = None,
        is_patch: bool = False,
    ) -> tuple[bool, dict[str, Any]]:
        self._check_leads()
        return await super().put_config(name, properties, may_replace, target, is_patch)

    async def delete(self, name: str) -> None:
        self._check_leads()
        await super().delete(name)

    async def set_target(self, name: str, target: TargetState) -> None:
        self._check_leads()
        await super().set_target(name, target)

    async def restart(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        self._check_leads()
        return await super().restart(name, include_tasks, only_failed)

    async def _write_offsets(self, name: str, wanted: Any, verb: str) -> str:
        await self._check_stopped(name)
        if self.config_of_group.is_exactly_once and self.kind_of(self.config(name)) == "source":
            await self.fence(name)
        return await super()._write_offsets(name, wanted, verb)

    async def _check_stopped(self, name: str) -> None:
        """Also wait until no worker runs tasks of the connector: they store offsets as they end."""
        self._check_leads()
        await super()._check_stopped(name)
        limit = Deadline(self.worker.runtime.clock, ENDS_LIMIT_MS)
        if self.group.has_tasks_of(name):
            logger.info("Offsets of %s wait for the end of its tasks", name)
        while self.group.has_tasks_of(name):
            if limit.has_passed:
                raise refusal(409, f"Tasks of connector {name} have not ended yet")
            await asyncio.sleep(POST_PAUSE_S)
        self._check_leads()

    async def set_group_level(self, name: str, level: str) -> None:
        """Any worker may write it; all read it, this one before the answer."""
        entries = [logger_entry(name, level)]
        await self.worker.ask(
            lambda: self._configs.write_unclaimed(entries, WRITE_LIMIT_MS),
            "writing to the config topic",
        )
        await self.refresh()

    async def store_config(
        self, name: str, properties: dict[str, str], target: TargetState | None
    ) -> None:
        entries = [] if target is None else [target_entry(name, target)]
        await self.write([*entries, connector_entry(name, properties)])

    async def remove_config(self, name: str) -> None:
        await self.write(removal(name, len(self.state.tasks.get(name, ()))))
        self.statuses.remove_connector(name)

    async def store_target(self, name: str, target: TargetState) -> None:
        await self.write([target_entry(name, target)])

    async def store_tasks(self, name: str, tasks: list[dict[str, str]]) -> None:
        """The leader writes them; another worker asks it to, with a signature."""
        limit = self.next_leader_limit()
        while not await self._have_written(name, tasks):
            if limit.has_passed:
                raise refusal(409, f"the leader does not take the tasks of {name}")
            await asyncio.sleep(POST_PAUSE_S)

    async def _have_written(self, name: str, tasks: list[dict[str, str]]) -> bool:
        if self.group.is_leader:
            with suppress(NotLeaderError):  # another one may lead by now
                await self.write_tasks(name, tasks)
                return True
        return await self.ask_leader("POST", f"{path_of(name)}/tasks", body_of(tasks))

    def next_leader_limit(self) -> Deadline:
        """Until when the group must have a leader, although the last one may just have died.

        That is noticed after session.timeout.ms, and the others then join within
        rebalance.timeout.ms.
        """
        config = self.config_of_group
        limit_ms = config.session_timeout_ms + config.rebalance_timeout_ms
        return Deadline(self.worker.runtime.clock, limit_ms)

    async def ask_leader(self, method: str, path: str, body: bytes) -> bool:
        """Whether the leader, if it is another worker, has done it; signed as by a worker."""
        url = self.group.assignment.leader_url
        if self.group.is_leader or not url:
            return False
        headers = sign(body, self.session_key)
        return bool(await self.post(method, f"{url}{path}?forward=false", body, headers))

    async def write_tasks(self, name: str, tasks: list[dict[str, str]]) -> None:
        """Write tasks as the leader: these first, then the commit that makes them count."""
        self._check_leads()
        self.config(name)
        before = len(self.state.tasks.get(name, ()))
        await self.write(task_entries(name, tasks))
        await self.write([commit_entry(name, len(tasks))])
        gone = [TaskId(name, number) for number in range(len(tasks), before)]
        self.statuses.remove_tasks(gone)

    async def fence(self, name: str) -> None:
        """End, as the leader, the transactions of former tasks."""
        self._check_leads()
        await self.zombies.fence(name, self.used_config(name))

    @property
    def session_key(self) -> SessionKey | None:
        """The key that signs requests between workers; None while they need no signature."""
        return self._topic.session_key if self.group.is_sessioned else None

    async def carry_out_restart(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        await self.write([restart_entry(name, include_tasks, only_failed)])

    async def carry_out_task_restart(self, task_id: TaskId) -> None:
        if task_id in self.owned:
            await self._restart_task_here(task_id)
            return
        status = self.statuses.tasks.get(task_id)
        scheme = self.group.url.partition("://")[0]
        raise NotLeaderError(None if status is None else f"{scheme}://{status.worker_id}/")

    # The topics

    async def refresh(self) -> None:
        """Read the config topic to its present end."""
        await asyncio.wrap_future(self._configs.refresh())

    async def write(self, entries: list[Entry]) -> None:
        """Write to the config topic, and wait until it was read back."""
        try:
            await self.worker.ask(
                lambda: self._configs.write(entries, WRITE_LIMIT_MS), "writing to the config topic"
            )
        except KafkaError as error:
            if error.error in FENCED:  # another worker leads by now, or this one again
                if not self.group.rebalances.is_under_way:
                    self.group.member.request_join()
                raise NotLeaderError(None) from error
            raise
        await self.refresh()

    def own_status(self, name: str, state: State, trace: str | None = None) -> Status:
        self.generation = self.group.member.generation
        return super().own_status(name, state, trace)

    def _write_status(self, entries: list[Entry]) -> None:
        """Have them written, in order; nobody waits for it."""
        self._status_queue += entries
        if self._status_writing is None or self._status_writing.done():
            self._status_writing = asyncio.create_task(self._send_statuses(), name="statuses")

    async def _send_statuses(self) -> None:
        """Write the queue, however long no broker takes it: other workers know no more."""
        while self._status_queue:
            queue, self._status_queue = self._status_queue, []
            write = partial(self._status_table.write, queue, WRITE_LIMIT_MS)
            try:
                await self.worker.ask(write, "writing to the status topic")
            except Exception as error:
                logger.warning("%d statuses are not written yet: %s", len(queue), error)
                self._status_queue = [*dict(queue + self._status_queue).items()]
                await asyncio.sleep(STATUS_PAUSE_S)


class ZombieFencing:
    """What keeps tasks of before from writing, where sources are exactly once (KIP-618)."""

    def __init__(self, herder: DistributedHerder, group_id: str) -> None:
        self._herder = herder
        self._group_id = group_id
        self._loop = asyncio.get_running_loop()
        self._locks: dict[str, asyncio.Lock] = {}

    def exactly_once(self, task_id: TaskId) -> ExactlyOnce:
        """What a task that starts now asks, from its thread."""
        name, number = task_id
        generation = self._herder.state.generations.get(name, 0)

        def wait_for(work: Coroutine[Any, Any, None]) -> None:
            limit_s = self._herder.next_leader_limit().left_ms / 1000 + PLUGIN_LIMIT_S
            asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)

        return ExactlyOnce(
            self._transactional_id(name, number),
            lambda: wait_for(self._have_fenced(task_id)),
            lambda: wait_for(self._check_generation(task_id, generation)),
        )

    def _transactional_id(self, name: str, number: int) -> str:
        return f"{self._group_id}-{name}-{number}"

    async def _check_generation(self, task_id: TaskId, generation: int) -> None:
        herder = self._herder
        await herder.refresh()
        has_moved = task_id not in herder.owned
        if has_moved or herder.state.generations.get(task_id.connector) != generation:
            raise refusal(409, f"task {task_id} has moved, or has other settings by now")

    async def _have_fenced(self, task_id: TaskId) -> None:
        """Have the leader fence, here or elsewhere; one that has died is not the last one."""
        herder, name = self._herder, task_id.connector
        limit = herder.next_leader_limit()
        while True:
            try:
                if herder.group.is_leader:
                    await herder.fence(name)
                    return
                if await herder.ask_leader("PUT", f"{path_of(name)}/fence", b""):
                    return
                why = "it is another worker's, whose log says why"
            except KafkaError as error:
                why = error.message
                logger.info("Tasks of %s are not fenced yet: %s", name, why)
            if task_id not in herder.owned:
                raise refusal(409, f"task {task_id} has moved")
            if limit.has_passed:
                raise refusal(409, f"the leader does not fence the tasks of {name}: {why}")
            await asyncio.sleep(POST_PAUSE_S)

    async def fence(self, name: str, config: Mapping[str, str]) -> None:
        """Once for each planning.

        A single task that follows a single task has the same transactional id, and fences itself.
        """
        herder = self._herder
        async with self._locks.setdefault(name, asyncio.Lock()):
            await herder.refresh()
            state = herder.state
            if name not in state.unfenced:
                return
            generation, count = state.generations.get(name), len(state.tasks.get(name, ()))
            before = state.fenced.get(name, 0)
            if before and (before, count) != (1, 1):
                await herder.worker.ask(
                    lambda: self._fence_producers(name, config, before), f"fencing {name}"
                )
            await herder.refresh()
            if state.generations.get(name) != generation:
                raise refusal(409, f"the tasks of {name} were planned anew meanwhile")
            await herder.write([fencing_entry(name, count)])

    def _fence_producers(self, name: str, config: Mapping[str, str], count: int) -> None:
        worker = self._herder.worker
        clients = WorkerClients(worker.config, worker.properties, config)
        with clients.admin(name) as admin:
            admin.fence_producers(self._transactional_id(name, number) for number in range(count))
        logger.info("Fenced the producers of %d tasks of %s", count, name)
