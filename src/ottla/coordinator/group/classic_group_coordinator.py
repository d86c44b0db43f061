"""Answers the members of classic groups: they join, sync, send heartbeats, leave and commit.

JoinGroup, by the state of the group and the sender:

                          new member       the leader    a follower that ...
                                                         changed       did not change
    Empty                 rebalance        -             -             -
    PreparingRebalance    waits            waits         waits         waits
    CompletingRebalance   rebalance        as followers  rebalance     current generation
    Stable                rebalance        rebalance     rebalance     current generation

A new member without an instance id is first given a member id to come back with (v4+, KIP-394). A
static member that comes back without its member id takes its old place (KIP-345).

The other requests, by the state of the group (Kafka 2.3):

                          Heartbeat               SyncGroup               OffsetCommit of a member
    Empty                 UNKNOWN_MEMBER_ID       UNKNOWN_MEMBER_ID       UNKNOWN_MEMBER_ID
    PreparingRebalance    REBALANCE_IN_PROGRESS   REBALANCE_IN_PROGRESS   stored
    CompletingRebalance   REBALANCE_IN_PROGRESS   waits for the leader    REBALANCE_IN_PROGRESS
    Stable                NONE                    the assignment          stored
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.group_records import group_batch
from ottla.coordinator.group.member_answers import SharedStores
from ottla.coordinator.group.member_metadata import (
    UNKNOWN_MEMBER_ID,
    MemberMetadata,
    SupportedProtocol,
    SyncCallback,
    largest_metadata,
)
from ottla.coordinator.group.member_requests import JoinAttempt, MemberRequests
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.errors import ErrorCode
from ottla.protocol.group import (
    HeartbeatRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple, TopicPartition

logger = logging.getLogger(__name__)


class _Before(NamedTuple):
    """A static member as it was before, in case its new id cannot be stored."""

    member_id: str
    leader_id: str | None
    protocols: Sequence[SupportedProtocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    client_id: str
    client_host: str


class ClassicGroupCoordinator(MemberRequests[ClassicGroup]):
    """Members of classic groups: they join, get their assignments, and leave."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        rebalancer: Rebalancer,
    ) -> None:
        self._runtime = runtime
        self._random = runtime.random
        self._config = config
        self._manager = manager
        self._rebalancer = rebalancer
        self._stores = SharedStores(runtime, manager)
        # Members whose new id is on its way into the log, with a JoinGroup that has come since.
        self._replacing: dict[MemberMetadata, tuple[JoinAttempt, _Before] | None] = {}

    def join(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        self._join(group, attempt)
        self._rebalancer.try_complete_join(group)
        self._manager.forget_if_unused(group)

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, respond: SyncCallback) -> None:
        """Answered at once if the group is stable, else when the leader's assignment is stored."""
        error = self._check_sync(group, request)
        if error:
            respond(SyncGroupResponse(error_code=error))
        elif group.is_in(GroupState.STABLE):
            self._answer_assignment(group, request.member_id, respond)
        else:
            self._await_assignment(group, request, respond)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalancer.sessions.restart(group, group.members[request.member_id])
        return ErrorCode.NONE if group.is_in(GroupState.STABLE) else ErrorCode.REBALANCE_IN_PROGRESS

    def leave(
        self, group: ClassicGroup, identities: Sequence[MemberIdentity]
    ) -> list[MemberResponse]:
        return [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave(group, identity),
            )
            for identity in identities
        ]

    def check_commit(
        self, group: ClassicGroup, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """A commit also shows that the member is alive."""
        error = group.check_generation(committer, partitions)
        if error:
            return error
        self._rebalancer.sessions.restart(group, group.members[committer.member_id])
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # The sender knows the new generation, but not yet which partitions are its own.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _join(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        request = attempt.request
        if not self._has_room(group, request.member_id):
            self._rebalancer.pending.discard(group, request.member_id)
            group.remove(request.member_id)
            attempt.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        elif not self._has_room_for_metadata(group, attempt):
            self._rebalancer.pending.discard(group, request.member_id)
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

    def _has_room_for_metadata(self, group: ClassicGroup, attempt: JoinAttempt) -> bool:
        """Whether all subscriptions can be stored: one record has them, and so has one answer.

        Those of a thousand members can be a gigabyte, which a broker would hold several times.
        """
        request = attempt.request
        member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
        member = group.members.get(member_id)
        known_bytes = 0 if member is None else largest_metadata(member.protocols)
        more_bytes = largest_metadata(attempt.protocols) - known_bytes
        limit = self._config.offsets_topic_segment_bytes
        return more_bytes <= 0 or group.metadata_bytes + more_bytes <= limit

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
        error = group.check_member(member_id, instance_id)
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
        """The member waits for the next generation, with its new protocols."""
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
            member.client_id,
            member.client_host,
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
        """Store the same generation with the new member id, and answer.

        A member that is replaced once more meanwhile is stored when the log has an answer to that:
        its state before is then known, and nobody gets an id that the log does not have.
        """
        if member in self._replacing:
            earlier = self._replacing[member]
            self._replacing[member] = attempt, earlier[1] if earlier else before
            return
        self._replacing[member] = None
        generation_id = group.generation_id

        def on_stored(error: ErrorCode) -> None:
            newer = self._replacing.pop(member)
            if error:
                logger.warning("Group %s could not be stored: %s", group.group_id, error.name)
            if not (
                group.is_in(GroupState.STABLE)
                and group.members.get(member.member_id) is member
                and member.awaiting_join is not None
            ):
                return  # it has its answer, or waits for the next generation
            if newer is not None:
                is_as_before = error and group.generation_id == generation_id
                known = before if is_as_before else newer[1]
                self._store_replacement(group, member, newer[0], known)
            elif error:
                self._undo_replacement(group, member, before, error)
            else:
                self._rebalancer.sessions.restart(group, member)
                group.answer_join(member, self._replacement_answer(group, member, attempt, before))

        self._stores.store(group, on_stored)

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
        member.client_id, member.client_host = before.client_id, before.client_host
        self._rebalancer.sessions.restart(group, member)

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _answer_assignment(
        self, group: ClassicGroup, member_id: str, respond: SyncCallback
    ) -> None:
        member = group.members[member_id]
        self._rebalancer.received_sync(group, member_id)
        self._rebalancer.sessions.restart(group, member)
        respond(
            SyncGroupResponse(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
        )

    def _await_assignment(
        self, group: ClassicGroup, request: SyncGroupRequest, respond: SyncCallback
    ) -> None:
        group.await_sync(group.members[request.member_id], respond)
        self._rebalancer.received_sync(group, request.member_id)
        is_first = group.assigned_generation_id != group.generation_id
        if group.is_leader(request.member_id) and is_first:
            self._store_assignment(group, request)

    def _store_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Members that the leader left out get nothing; unknown member ids are not stored.

        The record of a large group is made in slices, and not written if the next rebalance has
        begun in a pause: that has answered the members that wait.
        """
        group.assigned_generation_id = group.generation_id
        assignment = dict.fromkeys(group.members, b"")
        for part in request.assignments:
            if part.member_id in assignment:
                assignment[part.member_id] = bytes(part.assignment)

        def is_current() -> bool:
            is_completing = group.is_in(GroupState.COMPLETING_REBALANCE)
            return is_completing and group.generation_id == request.generation_id

        def store() -> Work[None]:
            batch = yield from group_batch(group, assignment, self._runtime.clock.now_ms())
            if is_current():
                self._manager.store_group(group, assignment, on_stored, batch)

        def on_stored(error: ErrorCode) -> None:
            # Another rebalance may have begun while the write was under way.
            if is_current() and error:
                self._rebalancer.refuse_assignment(group, error)
                self._rebalancer.maybe_prepare_rebalance(
                    group, f"the assignment could not be stored: {error.name}"
                )
            elif is_current():
                self._rebalancer.assign(group, assignment)

        self._runtime.begin(store(), "store the assignment of a large group")

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        """An administrator names a static member by its instance id alone (KIP-345)."""
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
        if member_id in group.pending_members:
            self._rebalancer.remove_pending_member(group, member_id)
            return ErrorCode.NONE
        error = group.check_member(member_id, instance_id)
        if not error:
            reason = f"{member_id} leaves, reason: {identity.reason or 'not provided'}"
            self._rebalancer.remove_member(group, group.members[member_id], reason)
        return error
