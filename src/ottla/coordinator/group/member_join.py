"""JoinGroup: its effect depends on the sender and on the state of the group.

State x sender:

                          new member       the leader    a follower that ...
                                                         changed       did not change
    Empty                 rebalance        -             -             -
    PreparingRebalance    waits            waits         waits         waits
    CompletingRebalance   rebalance        as followers  rebalance     current generation
    Stable                rebalance        rebalance     rebalance     current generation

A new member without an instance id is first given a member id to come back with (v4+, KIP-394). A
static member that comes back without its member id takes its old place (KIP-345).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import (
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    ClientContext,
    GroupState,
    JoinCallback,
    MemberMetadata,
    SupportedProtocol,
    check_member,
    is_too_long,
)
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.errors import ErrorCode
from ottla.protocol.group import JoinGroupRequest, JoinGroupResponse
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


class JoinAttempt:
    """One JoinGroup on its way to an answer."""

    __slots__ = ("client", "protocols", "request", "respond")

    def __init__(
        self, request: JoinGroupRequest, client: ClientContext, respond: JoinCallback
    ) -> None:
        self.request = request
        self.client = client
        self.respond = respond
        self.protocols = [
            SupportedProtocol(protocol.name, bytes(protocol.metadata))
            for protocol in request.protocols
        ]

    @property
    def is_new(self) -> bool:
        """Whether the sender has no member id yet."""
        return self.request.member_id == UNKNOWN_MEMBER_ID

    @property
    def needs_member_id(self) -> bool:
        """Whether the sender understands that it must come back with a member id."""
        return (
            self.client.api_version >= MEMBER_ID_REQUIRED_VERSION
            and self.request.group_instance_id is None
        )

    @property
    def can_skip_assignment(self) -> bool:
        """Whether the sender understands that it leads, but need not assign anything."""
        return self.client.api_version >= SKIP_ASSIGNMENT_VERSION

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has no timeout for rebalances."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    @property
    def reason(self) -> str:
        """Why it joins; the client may give its reason (KIP-800)."""
        return f"a member joins, reason: {self.request.reason or 'not provided'}"

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        """Answer with an error."""
        if member_id is None:
            member_id = self.request.member_id
        self.respond(JoinGroupResponse(error_code=error, member_id=member_id))

    def new_member(self, member_id: str) -> MemberMetadata:
        """The member that the sender becomes."""
        return MemberMetadata(
            member_id=member_id,
            group_instance_id=self.request.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocol_type=self.request.protocol_type,
            protocols=self.protocols,
        )


class _Before(NamedTuple):
    """A static member as it was before, in case its new id cannot be stored."""

    member_id: str
    leader_id: str | None
    protocols: Sequence[SupportedProtocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int


class MemberJoin:
    """Lets members join the groups of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        rebalancer: Rebalancer,
        join_consumer_group: Callable[[ConsumerGroup, JoinAttempt], object],
    ) -> None:
        self._join_consumer_group = join_consumer_group
        self._random = runtime.random
        self._config = config
        self._manager = manager
        self._rebalancer = rebalancer

    def join(self, attempt: JoinAttempt) -> None:
        """Answer now, or when the next generation of the group begins."""
        error = self._check_request(attempt)
        if error:
            attempt.refuse(error)
            return
        consumers = self._manager.group(attempt.request.group_id)
        if isinstance(consumers, ConsumerGroup) and not consumers.is_empty:
            self._join_consumer_group(consumers, attempt)
            return
        group = self._find_group(attempt)
        if group is None:
            attempt.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            return
        self._join_group(group, attempt)
        self._rebalancer.try_complete_join(group)
        self._manager.forget_if_unused(group)

    def _check_request(self, attempt: JoinAttempt) -> ErrorCode:
        request = attempt.request
        shortest_ms = self._config.group_min_session_timeout_ms
        longest_ms = self._config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [request.group_instance_id, request.protocol_type, attempt.client.client_id]
        names += [protocol.name for protocol in attempt.protocols]
        if any(is_too_long(name) for name in names):
            return ErrorCode.INVALID_REQUEST
        # All subscriptions are stored in one record. One that is too large for it would otherwise
        # only fail at the end of the rebalance, for all members.
        if any(len(p.metadata) > self._config.message_max_bytes for p in attempt.protocols):
            return ErrorCode.MESSAGE_TOO_LARGE
        return ErrorCode.NONE

    def _find_group(self, attempt: JoinAttempt) -> ClassicGroup | None:
        """Only a sender without a member id creates the group: an id is from an existing one."""
        if attempt.is_new:
            return self._manager.get_or_create_classic_group(attempt.request.group_id)
        # A consumer group without members does not know the id either.
        return self._manager.classic_group(attempt.request.group_id)

    def _join_group(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        request = attempt.request
        if not self._has_room(group, request.member_id):
            self._rebalancer.pending.discard(group, request.member_id)
            group.remove(request.member_id)
            attempt.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        elif not group.supports_protocols(request.protocol_type, attempt.protocols):
            attempt.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif attempt.is_new:
            self._join_new(group, attempt)
        else:
            self._join_again(group, attempt)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size allows it.

        During a rebalance only members that have joined count. So a group that is too large,
        because the limit was lowered, refuses those that join last.
        """
        limit = self._config.group_max_size
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            has_joined = member is not None and member.awaiting_join is not None
            return has_joined or group.awaiting_join_count < limit
        return member is not None or len(group.members) < limit

    def _join_new(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        instance_id = attempt.request.group_instance_id
        uuid = UUID(int=self._random.getrandbits(128), version=4)
        member_id = group.new_member_id(attempt.client.client_id, instance_id, uuid)
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static_member(group, attempt, member_id)
        elif attempt.needs_member_id:
            timeout_ms = attempt.request.session_timeout_ms
            self._rebalancer.pending.add(group, member_id, timeout_ms)
            attempt.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, attempt, member_id)

    def _join_again(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        member_id = attempt.request.member_id
        instance_id = attempt.request.group_instance_id
        if member_id in group.pending_members and instance_id is None:
            self._add(group, attempt, member_id)
            return
        error = check_member(group, member_id, instance_id)
        if error:
            attempt.refuse(error)
            return
        member = group.members[member_id]
        if self._needs_rebalance(group, member, attempt):
            self._update(group, member, attempt)
            self._rebalancer.maybe_prepare_rebalance(group, f"{member_id} joins again")
        else:
            attempt.respond(self._rebalancer.generation_for(group, member))

    def _needs_rebalance(
        self, group: ClassicGroup, member: MemberMetadata, attempt: JoinAttempt
    ) -> bool:
        """Whether the member waits for the next generation, or just gets the present one again.

        The leader of a stable group may want another assignment although no subscription has
        changed. In CompletingRebalance an unchanged member did not get our last answer.
        """
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return True
        if group.is_in(GroupState.STABLE) and group.is_leader(member.member_id):
            return True
        return not member.matches(attempt.protocols)

    def _add(self, group: ClassicGroup, attempt: JoinAttempt, member_id: str) -> None:
        member = attempt.new_member(member_id)
        self._rebalancer.add_member(group, member, attempt.respond, attempt.reason)

    def _update(self, group: ClassicGroup, member: MemberMetadata, attempt: JoinAttempt) -> None:
        """The member waits for the next generation, with what it now offers."""
        group.update_protocols(member, attempt.protocols)
        member.rebalance_timeout_ms = attempt.rebalance_timeout_ms
        member.session_timeout_ms = attempt.request.session_timeout_ms
        member.client_id = attempt.client.client_id
        member.client_host = attempt.client.client_host
        group.await_join(member, attempt.respond)

    def _replace_static_member(
        self, group: ClassicGroup, attempt: JoinAttempt, member_id: str
    ) -> None:
        """The instance was restarted: it gets a new member id, if possible without a rebalance."""
        assert attempt.request.group_instance_id is not None
        member = group.members[group.static_members[attempt.request.group_instance_id]]
        before = _Before(
            member.member_id,
            group.leader_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        group.replace_static_member(member, member_id)
        member.is_new = False
        self._update(group, member, attempt)
        self._rebalancer.sessions.restart(group, member)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # The leader may be assigning partitions to the old member id, which is gone.
            self._rebalancer.prepare_rebalance(group, f"{member_id} replaces {before.member_id}")
        elif group.is_in(GroupState.STABLE) and group.select_protocol() == group.protocol_name:
            self._store_replacement(group, member, attempt, before)
        elif group.is_in(GroupState.STABLE):
            self._rebalancer.prepare_rebalance(group, f"{member_id} brings another protocol")

    def _store_replacement(
        self, group: ClassicGroup, member: MemberMetadata, attempt: JoinAttempt, before: _Before
    ) -> None:
        """Store the same generation with the new member id, and answer."""

        def on_stored(error: ErrorCode) -> None:
            if error:
                self._undo_replacement(group, member, before, error)
            elif group.members.get(member.member_id) is member:
                self._rebalancer.sessions.restart(group, member)
                group.answer_join(member, self._replacement_answer(group, member, attempt, before))

        assignment = {m.member_id: m.assignment for m in group.members.values()}
        self._manager.store_group(group, assignment, on_stored)

    def _replacement_answer(
        self, group: ClassicGroup, member: MemberMetadata, attempt: JoinAttempt, before: _Before
    ) -> JoinGroupResponse:
        """Keep a returning leader from assigning partitions: no member waits for an assignment.

        Before version 9 the answer has no field for that, so it names the leader's old member id.
        As that is not the member's own id now, the member acts as a follower.
        """
        answer = self._rebalancer.generation_for(group, member)
        if attempt.can_skip_assignment:
            answer.skip_assignment = group.is_leader(member.member_id)
        else:
            answer.leader = before.leader_id or ""
            answer.members = []
        return answer

    def _undo_replacement(
        self, group: ClassicGroup, member: MemberMetadata, before: _Before, error: ErrorCode
    ) -> None:
        logger.warning("Group %s could not be stored: %s", group.group_id, error.name)
        is_unchanged = (
            group.is_in(GroupState.STABLE)
            and group.members.get(member.member_id) is member
            and member.awaiting_join is not None
        )
        if not is_unchanged:
            return  # the member has got its answer in another way
        group.answer_join(
            member,
            JoinGroupResponse(
                error_code=error,
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=before.leader_id or "",
            ),
        )
        group.replace_static_member(member, before.member_id)
        group.update_protocols(member, before.protocols)
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        self._rebalancer.sessions.restart(group, member)
