"""Members of the classic protocol in a consumer group, while it changes to the other protocol.

They send JoinGroup, SyncGroup, Heartbeat and LeaveGroup, in which the member epoch stands for the
generation. No member leads: the coordinator assigns the partitions, and asks each member to join
again, by REBALANCE_IN_PROGRESS, when there is something that it should give up or may take.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS
from ottla.coordinator.group.consumer.classic_subscription import (
    Subscription,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup, has_unrevoked
from ottla.coordinator.group.consumer.consumer_member import (
    ClassicMembership,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
)
from ottla.coordinator.group.consumer.consumer_rebalancer import ConsumerRebalancer
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.group_migration import GroupMigration
from ottla.coordinator.group.consumer.heartbeat_checks import find_member
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_metadata import UNKNOWN_MEMBER_ID, SyncCallback
from ottla.coordinator.group.member_requests import JoinAttempt, MemberRequests
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    HeartbeatRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.runtime.scheduler import Work
from ottla.structs import CONSUMER_PROTOCOL_TYPE, TopicPartition

logger = logging.getLogger(__name__)


class ClassicMembers(MemberRequests[ConsumerGroup]):
    """Answers the classic protocol's requests on behalf of consumer groups."""

    def __init__(
        self,
        manager: GroupMetadataManager,
        rebalancer: ConsumerRebalancer,
        migration: GroupMigration,
    ) -> None:
        self._manager = manager
        self._rebalancer = rebalancer
        self._migration = migration
        self._topics = rebalancer.topics

    def join(self, group: ConsumerGroup, attempt: JoinAttempt) -> None:
        """Answer when the member's next step is in the log; it does not wait for others."""
        self._rebalancer.do(self._join(group, attempt), lambda error: attempt.refuse(error.error))

    def _join(self, group: ConsumerGroup, attempt: JoinAttempt) -> Work[None]:
        self._find_place(group, attempt)
        if attempt.is_new and attempt.needs_member_id:
            attempt.refuse(ErrorCode.MEMBER_ID_REQUIRED, self._rebalancer.new_member_id())
            return
        metadata = attempt.protocols[0].metadata
        subscription = yield from read_subscription(metadata, self._topics)
        self._rebalancer.check_present(group)  # after a pause
        known = self._find_place(group, attempt)
        changes = GroupChanges(group)
        member = self._take_in(changes, known, attempt, subscription)
        self._rebalancer.keep_alive(group, member)
        yield from self._rebalancer.advance(changes, member)
        is_same = member is known
        yield from self._rebalancer.reconcile(
            changes, member, subscription.owned if is_same else NO_PARTITIONS
        )
        self._rebalancer.expect(group, member, "send SyncGroup")
        answer = JoinGroupResponse(
            member_id=member.member_id,
            generation_id=member.current.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=attempt.protocols[0].name,
        )

        def on_stored(error: ErrorCode) -> None:
            if error:
                attempt.refuse(error)
            else:
                attempt.respond(answer)

        self._manager.store_records(group, changes.records, on_stored)

    def _find_place(self, group: ConsumerGroup, attempt: JoinAttempt) -> ConsumerMember | None:
        """The member whose place the sender takes; None is a new place, for which is room."""
        known = find_rejoining(group, attempt)
        if known is None:
            self._rebalancer.check_room(group)
        check_protocols(group, attempt)
        return known

    def _take_in(
        self,
        changes: GroupChanges,
        known: ConsumerMember | None,
        attempt: JoinAttempt,
        subscription: Subscription,
    ) -> ConsumerMember:
        """A new member, one that joins again, or the new member of an instance."""
        details = joined_details(known, attempt, subscription)
        member_id = attempt.request.member_id
        if known is None:
            member = self._rebalancer.new_member(member_id, details)
            changes.add_member(member)
            logger.info(
                "Classic member %s joins group %s", member.member_id, changes.group.group_id
            )
            return member
        if known.member_id == member_id:
            if not known.is_classic:
                # It has restarted with the other protocol, and has no partitions yet.
                changes.set_current(known, CurrentAssignment(assigned=known.current.assigned))
            changes.update_details(known, details)
            return known
        self._rebalancer.check_log(changes.group)
        member = self._rebalancer.new_member(member_id, known.details)
        member.current = CurrentAssignment(assigned=known.current.assigned)
        changes.replace_member(known, member)
        changes.update_details(member, details)
        logger.info("Classic member %s replaces %s", member.member_id, known.member_id)
        return member

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, respond: SyncCallback) -> None:
        """Give the member its present assignment.

        The group may become a classic one, but only after the answer: no member loses its
        generation that way.
        """
        self._rebalancer.do(
            self._sync(group, request, respond),
            lambda error: respond(SyncGroupResponse(error_code=error.error)),
        )

    def _sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, respond: SyncCallback
    ) -> Work[None]:
        member = find_classic(group, request.member_id, request.group_instance_id)
        check_sync(group, member, request)
        member.cancel_rebalance_timer()
        self._rebalancer.keep_alive(group, member)
        assert member.details.classic is not None
        metadata = member.details.classic.protocols[0].metadata
        work = write_assignment(member.current.assigned, metadata, self._topics)
        assignment = yield from self._rebalancer.in_slices(GroupChanges(group), work, member)
        find_classic(group, request.member_id, request.group_instance_id)
        check_sync(group, member, request)  # it may have joined again in a pause, as either kind
        answer = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        )

        def on_stored(error: ErrorCode) -> None:
            respond(SyncGroupResponse(error_code=error) if error else answer)
            if not error and self._manager.group(group.group_id) is group:
                self._migration.downgrade_if_settled(group)

        self._manager.store_records(group, {}, on_stored)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        """REBALANCE_IN_PROGRESS asks the member to join again, within its time.

        A heartbeat that finds the group settled may make it a classic one.
        """
        try:
            member = find_classic(group, request.member_id, request.group_instance_id)
            check_generation(member, request.generation_id)
        except KafkaError as error:
            return error.error
        self._rebalancer.keep_alive(group, member)
        self._rebalancer.notice_topics(group)
        if should_rejoin(group, member):
            if member.rebalance_timer is None:
                self._rebalancer.expect(group, member, "join again")
            return ErrorCode.REBALANCE_IN_PROGRESS
        is_classic_now = self._migration.downgrade_if_settled(group)
        return ErrorCode.REBALANCE_IN_PROGRESS if is_classic_now else ErrorCode.NONE

    def leave(
        self, group: ConsumerGroup, identities: Sequence[MemberIdentity]
    ) -> list[MemberResponse]:
        responses, leaving = [], {}
        for identity in identities:
            error = ErrorCode.NONE
            try:
                member = find_leaving(group, identity)
                leaving[member.member_id] = member
            except KafkaError as failure:
                error = failure.error
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        self._rebalancer.take_out(group, list(leaving.values()), "it leaves", lambda error: None)
        return responses

    def check_commit(
        self, group: ConsumerGroup, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        error = group.check_generation(committer, partitions)
        if error:
            return error
        is_fit = committer.knows_epochs or group.members[committer.member_id].is_classic
        return ErrorCode.NONE if is_fit else ErrorCode.UNSUPPORTED_VERSION


def check_protocols(group: ConsumerGroup, attempt: JoinAttempt) -> None:
    """Classic members must agree on a protocol: the group may become a classic one again."""
    common = {protocol.name for protocol in attempt.protocols}
    for member in group.classic_members:
        if member.details.classic is not None and member.member_id != attempt.request.member_id:
            common &= member.details.classic.protocol_names
    if attempt.request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id} is a consumer group; its classic members have no protocol in "
            "common with this one",
        )


def find_rejoining(group: ConsumerGroup, attempt: JoinAttempt) -> ConsumerMember | None:
    """The member whose place the sender takes: its own, or that of its instance."""
    request = attempt.request
    if request.group_instance_id is None:
        return group.members.get(request.member_id)
    if attempt.is_new:
        return group.static_member(request.group_instance_id)
    return find_member(group, request.member_id, request.group_instance_id)


def joined_details(
    known: ConsumerMember | None, attempt: JoinAttempt, subscription: Subscription
) -> MemberDetails:
    """The details of a member in its JoinGroup."""
    request = attempt.request
    return MemberDetails(
        client_id=attempt.client.client_id,
        client_host=attempt.client.client_host,
        instance_id=request.group_instance_id if known is None else known.details.instance_id,
        rack_id=subscription.rack_id,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=attempt.rebalance_timeout_ms,
        classic=ClassicMembership(request.session_timeout_ms, tuple(attempt.protocols)),
    )


def find_classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member that the sender says it is; those of the consumer protocol are not known here."""
    member = find_member(group, member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} speaks the consumer protocol"
        )
    return member


def find_leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """An administrator names a static member by its instance id alone (KIP-345)."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
        member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
    return find_classic(group, member_id, instance_id)


def check_generation(member: ConsumerMember, generation_id: int) -> None:
    """The generation of a member is its epoch."""
    epoch = member.current.member_epoch
    if generation_id != epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.member_id} has generation {epoch}, not {generation_id}",
        )


def check_sync(group: ConsumerGroup, member: ConsumerMember, request: SyncGroupRequest) -> None:
    """The member must be in its generation, know its protocol, and have nothing to catch up."""
    check_generation(member, request.generation_id)
    assert member.details.classic is not None
    names = member.details.classic.protocol_names
    is_same_type = request.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
    if not is_same_type or (
        request.protocol_name is not None and request.protocol_name not in names
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member.member_id} has joined with {sorted(names)}",
        )
    if member.current.member_epoch != group.group_epoch and not has_unrevoked(member):
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} has gone on; join again"
        )


def should_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is something for the member to give up, or to take.

    An epoch that is not the group's is of the past, also where epochs have begun again.
    """
    if member.current.member_epoch != group.group_epoch or has_unrevoked(member):
        return True
    if member.current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = group.target[member.member_id] - member.current.assigned
    return group.are_free_for(missing, member.member_id)
