"""Carries a group from one generation to the next.

A rebalance begins when the membership or a subscription changes. The group then waits in
PreparingRebalance for all members to join, sends each of them the new generation, and waits in
CompletingRebalance for the leader's assignment; both waits have a time limit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.delayed_join import DelayedJoin, InitialDelayedJoin
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_answers import MemberAnswers, named
from ottla.coordinator.group.member_metadata import JoinCallback, MemberMetadata
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE, GroupRebalancer
from ottla.coordinator.group.member_sessions import (
    EMPTY_RETRY_MS,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    MemberSessions,
    PendingMembers,
)
from ottla.errors import ErrorCode
from ottla.protocol.group import JoinGroupResponse, SyncGroupResponse
from ottla.runtime import DelayedOperation, DelayedOperationPurgatory, Runtime
from ottla.runtime.scheduler import Work

logger = logging.getLogger(__name__)


class Rebalancer(GroupRebalancer[ClassicGroup]):
    """Adds and removes members, and runs the rebalance that follows."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, manager: GroupMetadataManager
    ) -> None:
        self.sessions: MemberSessions[ClassicGroup, MemberMetadata] = MemberSessions(
            runtime, self._on_session_expired
        )
        self.pending = PendingMembers(runtime.scheduler, self._on_pending_expired)
        self._max_size = config.group_max_size
        self._initial_delay_ms = config.group_initial_rebalance_delay_ms
        self._answers = MemberAnswers(runtime, self.sessions, self.generation_for)
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._manager = manager
        self._joins: DelayedOperationPurgatory[str] = DelayedOperationPurgatory(
            "Rebalance", runtime.scheduler
        )

    def add_member(
        self, group: ClassicGroup, member: MemberMetadata, respond: JoinCallback, reason: str
    ) -> None:
        """Add a new member, which has to wait until the next generation begins."""
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.generation_id == 0:
            group.new_member_added = True
        self.pending.discard(group, member.member_id)
        member.is_new = True
        group.add(member, respond)
        self.sessions.restart(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.maybe_prepare_rebalance(group, reason)

    def remove_member(self, group: ClassicGroup, member: MemberMetadata, reason: str) -> None:
        """Remove a member; its open requests are answered with UNKNOWN_MEMBER_ID."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        group.answer_join(member, JoinGroupResponse(error_code=unknown))
        group.answer_sync(member, SyncGroupResponse(error_code=unknown))
        group.remove(member.member_id)
        self._end_sync_wait_if_over(group)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            self.try_complete_join(group)
        else:
            self.maybe_prepare_rebalance(group, reason)

    def remove_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        """Stop waiting for a member id that was handed out."""
        self.pending.discard(group, member_id)
        self.try_complete_join(group)
        self._manager.forget_if_unused(group)

    def maybe_prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Begin a rebalance unless one is in preparation."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Ask all members to join again; heartbeats tell them."""
        text = "Group %s in state %s with generation %d prepares a rebalance: %s"
        logger.info(text, group.group_id, group.state.value, group.generation_id, reason)
        previous_state = group.state
        group.transition_to(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        self._cancel_sync_timer(group)
        if previous_state is GroupState.COMPLETING_REBALANCE:
            self.refuse_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        if previous_state is GroupState.EMPTY:
            self._wait_for_first_members(group)
        else:
            self._wait_for_members(group)

    def try_complete_join(self, group: ClassicGroup) -> None:
        """A member joined or left: if all that remain have joined, the wait ends."""
        if group.is_in(GroupState.PREPARING_REBALANCE):
            self._joins.check((group.group_id,))

    def complete_join(self, group: ClassicGroup) -> None:
        """The wait for the members is over: continue with those that have joined."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return
        self._remove_members_not_joined(group)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has come back: wait until their sessions end.
            logger.warning("Group %s waits on, no member has joined again", group.group_id)
            self._wait_for_members(group)
            return
        group.init_next_generation(self._clock.now_ms())
        if group.members:
            self._begin_generation(group)
        else:
            self._store_empty_generation(group)

    def generation_for(self, group: ClassicGroup, member: MemberMetadata) -> JoinGroupResponse:
        """The answer to a member about the current generation; only the leader sees the members."""
        is_leader = group.is_leader(member.member_id)
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=group.member_metadata() if is_leader else [],
        )

    def received_sync(self, group: ClassicGroup, member_id: str) -> None:
        """A member has sent its SyncGroup; when all have, the time limit ends."""
        group.pending_sync_members.discard(member_id)
        self._end_sync_wait_if_over(group)

    def assign(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> None:
        """The assignment is in the log: the group is stable and its members may begin."""
        group.transition_to(GroupState.STABLE, self._clock.now_ms())
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        self._answers.answer_syncs(group)

    def refuse_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """There will be no assignment in this generation."""
        for member in group.members.values():
            member.assignment = b""
        self._answers.answer_syncs(group, error)

    def resume(self, group: ClassicGroup) -> Work[None]:
        for number, member in enumerate(list(group.members.values()), 1):
            if group.members.get(member.member_id) is member:  # it may have left in a pause
                self.sessions.restart(group, member)
            if not number % MEMBERS_IN_A_SLICE:
                yield
        if len(group.members) > self._max_size:
            self.maybe_prepare_rebalance(group, f"it is over group.max.size, {self._max_size}")

    def abandon(self, group: ClassicGroup, error: ErrorCode) -> Work[None]:
        """Make the group Dead: another broker takes over, or it becomes a consumer group."""
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        self._cancel_sync_timer(group)
        group.leader_id = None  # or with each leader that goes another one is looked for
        for member_id in list(group.pending_members):
            self.pending.discard(group, member_id)
        for number, member in enumerate(list(group.members.values()), 1):
            group.answer_join(
                member, JoinGroupResponse(error_code=error, member_id=member.member_id)
            )
            group.answer_sync(member, SyncGroupResponse(error_code=error))
            group.remove(member.member_id)
            if not number % MEMBERS_IN_A_SLICE:
                yield
        self._joins.check((group.group_id,))

    def _wait_for_first_members(self, group: ClassicGroup) -> None:
        def wait_on(operation: DelayedOperation) -> None:
            self._joins.try_complete_else_watch(operation, [group.group_id])

        delay_ms = self._initial_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        wait_on(InitialDelayedJoin(group, delay_ms, remaining_ms, self.complete_join, wait_on))

    def _wait_for_members(self, group: ClassicGroup) -> None:
        operation = DelayedJoin(group, group.rebalance_timeout_ms, self.complete_join)
        self._joins.try_complete_else_watch(operation, [group.group_id])

    def _remove_members_not_joined(self, group: ClassicGroup) -> None:
        """Static members stay until their session ends: they may be restarting (KIP-345)."""
        missing = [member for member in group.members_not_joined() if not member.is_static]
        for member in missing:
            group.remove(member.member_id)
        if missing:
            text = "Group %s removed members that have not joined again: %s"
            logger.info(text, group.group_id, named([member.member_id for member in missing]))

    def _begin_generation(self, group: ClassicGroup) -> None:
        self._manager.counts.rebalances += 1
        text = "Group %s has %d members in generation %d"
        logger.info(text, group.group_id, len(group.members), group.generation_id)
        for member in group.members.values():
            member.is_new = False
        group.pending_sync_members.update(group.members)
        self._expect_syncs(group)
        self._answers.answer_joins(group)

    def _store_empty_generation(self, group: ClassicGroup) -> None:
        """Write that all have left, again and again: no member would cause another write."""
        generation_id = group.generation_id

        def store() -> None:
            is_current = self._manager.group(group.group_id) is group
            if is_current and group.is_empty and group.generation_id == generation_id:
                self._manager.store_group(group, {}, on_stored)

        def on_stored(error: ErrorCode) -> None:
            if error:
                logger.debug("Group %s is empty, not in the log: %s", group.group_id, error.name)
                self._scheduler.call_later(EMPTY_RETRY_MS, store)

        logger.info("Group %s is empty in generation %d", group.group_id, generation_id)
        store()

    def _expect_syncs(self, group: ClassicGroup) -> None:
        generation_id = group.generation_id
        group.sync_timer = self._scheduler.call_later(
            group.rebalance_timeout_ms, lambda: self._on_syncs_expired(group, generation_id)
        )

    def _on_syncs_expired(self, group: ClassicGroup, generation_id: int) -> None:
        """Remove members without a SyncGroup: they hold partitions that they do not read."""
        if generation_id != group.generation_id or not group.pending_sync_members:
            return
        group.sync_timer = None
        missing = sorted(group.pending_sync_members)
        for member_id in missing:
            group.remove(member_id)
        self.prepare_rebalance(group, f"{named(missing)} did not send SyncGroup in time")

    def _end_sync_wait_if_over(self, group: ClassicGroup) -> None:
        if not group.pending_sync_members:
            self._cancel_sync_timer(group)

    def _cancel_sync_timer(self, group: ClassicGroup) -> None:
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _on_session_expired(self, group: ClassicGroup, member: MemberMetadata) -> None:
        logger.info("Member %s of group %s has failed", member.member_id, group.group_id)
        self.remove_member(group, member, f"the session of {member.member_id} has expired")

    def _on_pending_expired(self, group: ClassicGroup, member_id: str) -> None:
        logger.info("Member id %s of group %s was not claimed", member_id, group.group_id)
        self.try_complete_join(group)
        self._manager.forget_if_unused(group)
