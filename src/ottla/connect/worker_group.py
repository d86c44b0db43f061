"""This worker as a member of its group: joins, deals as the leader, learns what it is to run.

The member of a consumer's group does the joining; what is told and dealt are connectors and tasks.
Everything is on the loop of the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ottla.clients.consumer.group_member import GroupMember
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.config.connect_config import DistributedConfig
from ottla.connect.connect_protocol import (
    CONFIG_MISMATCH,
    CONNECTOR,
    OFFERED,
    PROTOCOL_TYPE,
    VERSIONS,
    Assignment,
    Work,
    WorkerState,
)
from ottla.connect.herder import ConfigState
from ottla.connect.worker_assignor import Dealt, IncrementalAssignor, deal_all
from ottla.connect.worker_task import TaskId
from ottla.metrics.sensors import WindowedValues
from ottla.protocol.group import JoinGroupResponseMember
from ottla.runtime import Clock, Runtime

logger = logging.getLogger(__name__)

NO_WORK: Final[Work] = frozenset()


def configured_work(state: ConfigState) -> set[TaskId]:
    """All connectors and tasks that there are."""
    found = {TaskId(name, CONNECTOR) for name in state.connectors}
    return found | {task_id for name in state.connectors for task_id in state.task_ids(name)}


class Rebalances:
    """How often this worker has rebalanced, and how long that took."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_under_way = False
        self.completed = 0
        self.times = WindowedValues()
        self.began_ms = clock.monotonic_ms()
        """When the last one began here, by the monotonic clock."""
        self.last_ms: int | None = None
        """When the last one was completed, by the same clock."""

    @contextmanager
    def rebalance(self) -> Iterator[None]:
        """Around a rebalance; one that raises is not completed."""
        self.began_ms = self._clock.monotonic_ms()
        self.is_under_way = True
        try:
            yield
            self.completed += 1
            self.last_ms = self._clock.monotonic_ms()
            self.times.record(self.last_ms - self.began_ms, self.last_ms)
        finally:
            self.is_under_way = False


class WorkerGroup:
    """One membership. `running` is what this worker says that it runs when it joins."""

    def __init__(
        self,
        runtime: Runtime,
        config: DistributedConfig,
        client_settings: Mapping[str, Any],
        config_view: Callable[[], tuple[int, ConfigState]],
        refresh: Callable[[], Awaitable[None]],
        on_change: Callable[[], object],
    ) -> None:
        """`config_view` has the offset of the config topic that was read, and what it holds."""
        self.url = ""
        self.running: Work = NO_WORK
        self.assignment = Assignment()
        self.protocol = ""
        self.rebalances = Rebalances(runtime.clock)
        self._runtime = runtime
        self._config_view = config_view
        self._refresh = refresh
        self._offered = OFFERED[config.connect_protocol]
        self._assignor = IncrementalAssignor(config.scheduled_rebalance_max_delay_ms)
        consumer_config = ConsumerConfig.parse(
            {
                **client_settings,
                "group.id": config.group_id,
                "session.timeout.ms": config.session_timeout_ms,
                "heartbeat.interval.ms": config.heartbeat_interval_ms,
                "max.poll.interval.ms": config.rebalance_timeout_ms,
                "enable.auto.commit": "false",
            }
        )
        self._client = NetworkClient(runtime, consumer_config)
        self._metadata = Metadata(self._client)
        self._link = CoordinatorLink(self._metadata, self._client, config.group_id)
        self.member = GroupMember(
            self._client,
            self._link,
            consumer_config,
            self._protocols,
            self._deal,
            on_change,
            PROTOCOL_TYPE,
        )
        self._last_generation = -1
        self._work_of_all: Work = NO_WORK
        """For the leader: all that members ran, or were given to run, at the last rebalance."""

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads, as of the last rebalance."""
        return self.assignment.leader != "" and self.assignment.leader == self.member.member_id

    @property
    def is_incremental(self) -> bool:
        return VERSIONS.get(self.protocol, 0) > 0

    @property
    def is_sessioned(self) -> bool:
        """Whether workers sign what they ask of each other."""
        return VERSIONS.get(self.protocol, 0) > 1

    def has_tasks_of(self, connector: str) -> bool:
        """For the leader: whether a member may run tasks of a connector.

        A member that gives work up joins again when that has ended.
        """
        work = self._work_of_all
        return any(name == connector and number != CONNECTOR for name, number in work)

    async def join(self) -> Assignment:
        """One rebalance; the assignment says what is new and what goes."""
        joined = await self.member.join()
        self.protocol = joined.protocol
        self.assignment = Assignment.decode(joined.assignment)
        self._last_generation = self.member.generation
        logger.info(
            "Joined group at generation %d with protocol %s; leader is %s",
            self.member.generation,
            joined.protocol,
            self.assignment.leader_url,
        )
        return self.assignment

    async def leave(self) -> None:
        """Leave at once, and end the connections."""
        await self.member.leave("the worker stops")
        self._metadata.close()
        self._client.close()

    def _protocols(self) -> list[tuple[str, bytes]]:
        offset, _ = self._config_view()
        state = WorkerState(self.url, offset, self.running, self.assignment.delay_ms)
        return [(name, state.encode(VERSIONS[name])) for name in self._offered]

    async def _deal(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Give each member its part, as the leader."""
        version = VERSIONS[protocol]
        states = {each.member_id: WorkerState.decode(bytes(each.metadata)) for each in members}
        newest = max(state.config_offset for state in states.values())
        if self._config_view()[0] < newest:
            await self._refresh()
        offset, config = self._config_view()
        url = states[self.member.member_id].url
        if offset < newest:
            logger.warning("config topic read to %d, a member to %d: join again", offset, newest)
            error = Assignment(CONFIG_MISMATCH, self.member.member_id, url, newest)
            return dict.fromkeys(states, error.encode(version))
        dealt = self._dealt(version, states, config)
        running = (state.running for state in states.values())
        self._work_of_all = NO_WORK.union(*running, *dealt.assigned.values())
        return {
            member: Assignment(
                leader=self.member.member_id,
                leader_url=url,
                config_offset=offset,
                assigned=dealt.assigned.get(member, NO_WORK),
                revoked=dealt.revoked.get(member, NO_WORK),
                delay_ms=dealt.delay_ms,
            ).encode(version)
            for member in states
        }

    def _dealt(self, version: int, states: Mapping[str, WorkerState], config: ConfigState) -> Dealt:
        wanted = configured_work(config)
        if version == 0:
            return deal_all(list(states), wanted)
        running = {member: state.running for member, state in states.items()}
        now_ms = self._runtime.clock.monotonic_ms()
        since_ms = min(self.rebalances.began_ms, now_ms)
        dealt = self._assignor.deal(running, wanted, self._last_generation, now_ms, since_ms)
        self._assignor.remember_generation(self.member.generation)
        return dealt
