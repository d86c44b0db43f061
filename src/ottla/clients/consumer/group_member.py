"""One member of a group: joins, gets its partitions, sends heartbeats, leaves.

    UNJOINED -> JOINING -> STABLE      JoinGroup, then SyncGroup, returned an assignment
       ^---------'-----------'         the coordinator does not, or no longer, know the member

STABLE with `needs_join` means that the group rebalances and waits for this member.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import cast

from ottla.clients.committed_offsets import GroupMembership
from ottla.clients.consumer.membership import Membership
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.network_client import NetworkClient, RequestKind, check_code, connection_id
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import CONSUMER_PROTOCOL_TYPE, NO_GENERATION, NamedTuple

logger = logging.getLogger(__name__)


class GroupMember(Membership):
    """The membership of one consumer.

    Invariant: `generation` and `member_id` are those of the last completed join until the
    coordinator says that it does not know them; then `is_lost` is set until the next join.
    """

    def __init__(
        self,
        client: NetworkClient,
        link: CoordinatorLink,
        config: ConsumerConfig,
        metadata: Metadata,
        assign: Assign,
        on_change: Callable[[], object],
        protocol_type: str = CONSUMER_PROTOCOL_TYPE,
    ) -> None:
        """`protocol_type` is the kind of data that members exchange: a group has one for all."""
        super().__init__(client, link, config, on_change)
        self._protocol_type = protocol_type
        self.state = JoinState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = NO_MEMBER_ID
        self.is_leader = False
        self._metadata = metadata
        self._assign = assign
        self.resume: Resume | None = None
        """Called with the members where the coordinator skips the leader's assignment."""
        self._heard_ms: int  # when the coordinator has answered, since the last join

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup or SyncGroup request is under way."""
        return self.state is JoinState.JOINING

    @property
    def membership(self) -> GroupMembership:
        """The membership with which this member commits."""
        return GroupMembership(self.generation, self.member_id, self._config.group_instance_id)

    async def join(self) -> JoinedGroup:
        """Join, in as many rounds as needed; raises only errors that are not retriable."""
        failures = rounds = 0
        while True:
            rounds += 1
            self.state = JoinState.JOINING
            try:
                joined = await self._join_once()
            except KafkaError as error:
                if not self._may_join_again(error):
                    self._become_unjoined()
                    raise
                self._client.troubles.failed(self._task, error)
                if error.error in LOST:
                    await self.on_lost()
                if error.error not in JOIN_AGAIN or rounds > ROUNDS_WITHOUT_PAUSE:
                    failures += 1
                    await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
                continue
            self._become_stable()
            self._client.troubles.worked(self._task)
            return joined

    async def leave(self, reason: str) -> None:
        """Leave at once, so that the other members need not wait for the session to end.

        Static members stay: they are expected to come back (KIP-345).
        """
        member_id = self.member_id
        self._stop_heart()
        self._become_unjoined()
        if member_id == NO_MEMBER_ID or self._config.group_instance_id is not None:
            return
        try:
            await self._send_leave(member_id, reason)
        except KafkaError as error:
            logger.info("group %s was not left in order: %s", self._link.group_id, error)

    # Joining

    async def _join_once(self) -> JoinedGroup:
        deadline = Deadline(self._runtime.clock, self._config.max_poll_interval_ms)
        node_id = connection_id(await self._link.node_id(deadline), RequestKind.GROUP)
        response = await self._send_join(node_id)
        self.generation = response.generation_id
        self.member_id = response.member_id
        self.is_leader = response.leader == response.member_id
        self.needs_join = False  # until a later event sets it again
        protocol = response.protocol_name or ""
        assignments: Mapping[str, bytes] = {}
        if self.is_leader and not response.skip_assignment:
            assignments = await self._assign(protocol, response.members)
        joined = JoinedGroup(protocol, await self._send_sync(node_id, protocol, assignments))
        if self.is_leader and response.skip_assignment and self.resume is not None:
            await self.resume(response.members)
        return joined

    async def _send_join(self, node_id: int) -> JoinGroupResponse:
        config = self._config
        request = JoinGroupRequest(
            group_id=self._link.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self._metadata()
            ],
        )
        low = 0
        if config.group_instance_id is not None:
            request.group_instance_id = config.group_instance_id
            low = FIRST_JOIN_WITH_INSTANCE_ID
        answer = await self._client.send(
            node_id, request, low=low, timeout_ms=self._rebalance_limit_ms
        )
        response = cast(JoinGroupResponse, answer)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        self._raise(response.error_code)
        return response

    async def _send_sync(
        self, node_id: int, protocol: str, assignments: Mapping[str, bytes]
    ) -> bytes:
        request = SyncGroupRequest(
            group_id=self._link.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        if self._config.group_instance_id is not None:
            request.group_instance_id = self._config.group_instance_id
        answer = await self._client.send(node_id, request, timeout_ms=self._rebalance_limit_ms)
        response = cast(SyncGroupResponse, answer)
        self._raise(response.error_code)
        return bytes(response.assignment)

    @property
    def _rebalance_limit_ms(self) -> int:
        """How long the coordinator may wait for other members before it answers."""
        config = self._config
        return max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_MARGIN_MS)

    def _may_join_again(self, error: KafkaError) -> bool:
        self._link.note(error)
        if error.error in LOST:
            self._forget_membership(keep_id=error.error is ErrorCode.ILLEGAL_GENERATION)
        return error.error in JOIN_AGAIN or error.retriable

    def _become_stable(self) -> None:
        self.state = JoinState.STABLE
        self.is_lost = False
        self._heard_ms = self._runtime.clock.monotonic_ms()
        self._start_heart()

    def _become_unjoined(self) -> None:
        self._forget_membership(keep_id=False)
        self.state = JoinState.UNJOINED
        self.needs_join = True

    def _forget_membership(self, *, keep_id: bool) -> None:
        self.generation = NO_GENERATION
        self.is_leader = False
        if not keep_id:
            self.member_id = NO_MEMBER_ID

    def _raise(self, code: int) -> None:
        check_code(code, f"group {self._link.group_id}")

    # Heartbeats

    async def _beat(self) -> None:
        while True:
            await pause(self._runtime.scheduler, self._config.heartbeat_interval_ms)
            if self.state is not JoinState.STABLE:
                continue
            if self.poll_watch.is_over():
                await self._drop_out()
                continue
            try:
                await self._send_heartbeat()
                self._heard_ms = self._runtime.clock.monotonic_ms()
            except KafkaError as error:
                self._on_heartbeat_error(error)

    async def _send_heartbeat(self) -> None:
        deadline = Deadline(self._runtime.clock, self._config.session_timeout_ms)
        node_id = connection_id(await self._link.node_id(deadline), RequestKind.GROUP)
        request = HeartbeatRequest(
            group_id=self._link.group_id, generation_id=self.generation, member_id=self.member_id
        )
        if self._config.group_instance_id is not None:
            request.group_instance_id = self._config.group_instance_id
        limit_ms = min(self._config.request_timeout_ms, self._config.session_timeout_ms)
        answer = await self._client.send(node_id, request, timeout_ms=limit_ms)
        if self.state is JoinState.STABLE:  # else it belongs to a membership that has ended
            self._raise(cast(HeartbeatResponse, answer).error_code)

    def _on_heartbeat_error(self, error: KafkaError) -> None:
        self._link.note(error)
        if error.error is ErrorCode.REBALANCE_IN_PROGRESS:
            logger.debug("group %s rebalances", self._link.group_id)
            self.request_join()
        elif error.error in LOST:
            logger.info("group %s goes on without this member: %s", self._link.group_id, error)
            self._lose_membership(keep_id=error.error is ErrorCode.ILLEGAL_GENERATION)
        elif not error.retriable:
            self.error = error
            self._on_change()
        silent_ms = self._runtime.clock.monotonic_ms() - self._heard_ms
        if silent_ms > self._config.session_timeout_ms:
            self._link.forget()

    async def _drop_out(self) -> None:
        """Leave, as the application does not poll: others get its partitions (KIP-62)."""
        member_id = self.member_id
        self._lose_membership(keep_id=False)
        if self._config.group_instance_id is None:
            try:
                await self._send_leave(member_id, "the consumer poll timeout has expired")
            except KafkaError as error:
                self._link.note(error)

    def _lose_membership(self, *, keep_id: bool) -> None:
        self._forget_membership(keep_id=keep_id)
        self.state = JoinState.UNJOINED
        self.is_lost = True
        self.request_join()

    async def _send_leave(self, member_id: str, reason: str) -> None:
        # Not on the group's connection, where a JoinGroup may be waiting for other members.
        deadline = Deadline(self._runtime.clock, self._config.request_timeout_ms)
        node_id = await self._link.node_id(deadline)
        version = await self._client.version_for(node_id, LeaveGroupRequest)
        request = LeaveGroupRequest(group_id=self._link.group_id)
        if version >= FIRST_LEAVE_WITH_MEMBERS:
            request.members = [MemberIdentity(member_id=member_id, reason=reason)]
        else:
            request.member_id = member_id
        await self._client.send(node_id, request)


NO_MEMBER_ID = ""
JOIN_MARGIN_MS = 5000
ROUNDS_WITHOUT_PAUSE = 5
"""Members come and go during a join; a coordinator that has no end of it is asked more slowly."""
FIRST_JOIN_WITH_INSTANCE_ID = 5
FIRST_LEAVE_WITH_MEMBERS = 3

# The group continues without this member: it has to join as a new one, and owns nothing.
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
JOIN_AGAIN = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}


class JoinState(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"


Metadata = Callable[[], list[tuple[str, bytes]]]
"""The names of the assignors that this member can run, with its data for each."""
Assign = Callable[[str, Sequence[JoinGroupResponseMember]], Awaitable[Mapping[str, bytes]]]
"""As the leader of the group: computes each member's assignment, by the name of an assignor."""
Resume = Callable[[Sequence[JoinGroupResponseMember]], Awaitable[None]]
"""As a leader that is back, and whose group keeps its assignment: takes over the members' data."""


class JoinedGroup(NamedTuple):
    """The result of a rebalance: the chosen assignor, and this member's assignment."""

    protocol: str
    assignment: bytes
