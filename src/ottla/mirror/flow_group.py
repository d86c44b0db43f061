"""The processes of one flow as a group: they deal its tasks among them, and take over from another.

Each process that runs the flow is a member of the Connect group `<source>-mm2` at the target. The
member that leads deals the keeper's work and the copiers' tasks round robin. Before a rebalance a
member gives everything up and writes how far it is (eager: KIP-415's version 0), so that a task
runs once; one that was killed is replaced after the session's time. What a mirror needs to know is
in its own file: members only compare how many tasks there are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from typing import Final

from ottla.clients.consumer.group_member import GroupMember
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.connect.connect_protocol import (
    CONFIG_MISMATCH,
    CONNECTOR,
    PROTOCOL_TYPE,
    Assignment,
    WorkerState,
)
from ottla.connect.worker_assignor import deal_all
from ottla.connect.worker_task import TaskId
from ottla.errors import KafkaError
from ottla.mirror.flow import Flow
from ottla.protocol.group import JoinGroupResponseMember
from ottla.runtime.host_name import canonical_host_name
from ottla.runtime.io_thread import Event, IoThread

PROTOCOL: Final = "ottla-mirror"
"""Another name than a Connect worker's: the broker keeps these, and Kafka's mirrors, out."""
VERSION: Final = 0
KEEPER: Final = CONNECTOR
"""In the place of a task's number: topics, groups and heartbeats."""
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
LEAVE_MS: Final = 5_000
WAIT_S: Final = 0.2

logger = logging.getLogger(__name__)


class FlowGroup:
    """This process as a member; all methods are for one thread, which calls `turn` all along."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        given = flow.target.settings("consumer")
        self._config = ConsumerConfig.parse(
            {
                "session.timeout.ms": SESSION_MS,
                **given,
                "group.id": flow.group_id,
                "group.protocol": "classic",
                "max.poll.interval.ms": REBALANCE_MS,
                "enable.auto.commit": "false",
            }
        )
        self._io = IoThread(f"mirror-{flow.name}-group")
        self._member, self._client, self._metadata = self._io.begin_with(self._build())

    @property
    def needs_join(self) -> bool:
        """Whether the group wants all to join; this process gives up what it runs before."""
        return self._member.needs_join or self._member.is_lost

    def turn(self) -> None:
        """Tell the group that this process works; raises what cannot be mended by joining."""
        self._member.poll_watch.note()
        error, self._member.error = self._member.error, None
        if error is not None:
            raise error

    def join(self, is_over: Event) -> frozenset[int]:
        """One rebalance: the tasks that are this process's now, KEEPER among them or not.

        RuntimeError where another process of the flow has another number of tasks.
        """
        joining = self._io.submit(self._member.join())
        while not joining.done() and not is_over.is_set():
            wait([joining], WAIT_S)
        if not joining.done():
            joining.cancel()
            return frozenset()
        assignment = Assignment.decode(joining.result().assignment)
        if assignment.error == CONFIG_MISMATCH:
            self._member.request_join()
            raise RuntimeError(
                f"{self._flow.name}: tasks.max={self._flow.config.tasks_max}: another process of "
                f"group {self._flow.group_id} has another number"
            )
        self._member.poll_watch.note()
        return frozenset(each.task for each in assignment.assigned)

    def close(self) -> None:
        """Leave at once, so that the others need not wait for the session to end."""
        try:
            self._io.run(self._leave(), LEAVE_MS)
        except KafkaError as error:
            logger.info("%s: the group was not left in order: %s", self._flow.name, error)
        finally:
            self._io.close()

    async def _build(self) -> tuple[GroupMember, NetworkClient, Metadata]:
        client = NetworkClient(self._io.runtime, self._config)
        metadata = Metadata(client)
        link = CoordinatorLink(metadata, client, self._flow.group_id)
        member = GroupMember(
            client, link, self._config, self._told, self._deal, _nothing, PROTOCOL_TYPE
        )
        return member, client, metadata

    async def _leave(self) -> None:
        await self._member.leave("the mirror stops")
        self._metadata.close()
        self._client.close()

    def _told(self) -> list[tuple[str, bytes]]:
        name = f"{canonical_host_name()}:{os.getpid()}"
        return [(PROTOCOL, WorkerState(name, self._flow.config.tasks_max).encode(VERSION))]

    async def _deal(
        self, _: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Give each member its part, as the leader."""
        states = {each.member_id: WorkerState.decode(bytes(each.metadata)) for each in members}
        leader = self._member.member_id
        if len({state.config_offset for state in states.values()}) > 1:
            error = Assignment(CONFIG_MISMATCH, leader)
            return dict.fromkeys(states, error.encode(VERSION))
        dealt = deal_all(list(states), work_of(self._flow)).assigned
        return {
            member: Assignment(leader=leader, leader_url=states[leader].url, assigned=work).encode(
                VERSION
            )
            for member, work in dealt.items()
        }


def work_of(flow: Flow) -> set[TaskId]:
    """The keeper's work of a flow, and its tasks."""
    return {TaskId(flow.name, number) for number in range(KEEPER, flow.config.tasks_max)}


def _nothing() -> None:
    """Changes are seen by `needs_join`."""
