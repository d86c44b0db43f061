"""Answers heartbeats of the consumer group protocol (KIP-848).

A heartbeat that changes nothing only restarts the member's session. Every other one updates, in
this order, the member, the subscriptions, the group epoch, the target assignment and the member's
current assignment; it is answered when the records of these changes are in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions, in_order
from ottla.coordinator.group.consumer.assignors import SlicePace
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_records import collected, read_partitions
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
)
from ottla.coordinator.group.consumer.consumer_rebalancer import ConsumerRebalancer
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.group_migration import GroupMigration
from ottla.coordinator.group.consumer.heartbeat_checks import (
    check_epoch,
    check_request,
    find_member,
)
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)
from ottla.runtime.scheduler import Work

logger = logging.getLogger(__name__)

COST_OF_A_MEMBER: Final = 20
"""A member takes so many times as long to describe as one of its partitions to name."""


BeatCallback = Callable[[ConsumerGroupHeartbeatResponse], object]


class ConsumerGroupCoordinator:
    """Members of the consumer protocol: they join, get their partitions, and leave."""

    def __init__(
        self,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        rebalancer: ConsumerRebalancer,
        migration: GroupMigration,
    ) -> None:
        self._config = config
        self._manager = manager
        self._rebalancer = rebalancer
        self._migration = migration

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, respond: BeatCallback
    ) -> None:
        """Answer now if nothing changes, else when the change is in the log."""
        try:
            check_request(request, client.api_version, self._config.group_consumer_assignors)
            if request.member_epoch < JOIN_EPOCH:
                self._leave(request, respond)
            else:
                self._rebalancer.do(self._beat(request, client, respond), refusing(respond))
        except KafkaError as error:
            refusing(respond)(error)

    def describe(self, group_id: str, error: ErrorCode) -> Work[DescribedConsumerGroup]:
        """The group; GROUP_ID_NOT_FOUND if there is none, or one of another protocol.

        Of a large one each member is described as it is when its turn comes.
        """
        if error:
            return DescribedConsumerGroup(group_id=group_id, error_code=error)
        group = self._manager.consumer_group(group_id)
        if group is None:
            is_other = self._manager.group(group_id) is not None
            return DescribedConsumerGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a consumer group."
                if is_other
                else f"Group {group_id} not found.",
            )
        described = DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(self._config.group_consumer_assignors[0]),
        )
        topics, pace = self._rebalancer.topics, SlicePace()
        for member in list(group.members.values()):
            if group.members.get(member.member_id) is member:
                described.members.append((yield from described_member(group, member, topics)))
            if pace.is_over(len(member.current.assigned) + COST_OF_A_MEMBER):
                yield
        return described

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, respond: BeatCallback
    ) -> Work[None]:
        owned = None  # the partitions by its own account; None if they have not changed
        if request.topic_partitions is not None:  # before anything has changed
            owned = yield from read_partitions(request.topic_partitions)
        if request.subscribed_topic_regex:
            yield from self._rebalancer.matches.matching(request.subscribed_topic_regex)
        self._check_here(request.group_id)
        is_join = request.member_epoch == JOIN_EPOCH
        while is_join and (classic := self._manager.classic_group(request.group_id)):
            if classic.is_empty:
                break
            yield from self._migration.upgrade(classic)
            self._check_here(request.group_id)
        if is_join:
            changes, member = self._join(request, client)
        else:
            changes, member = self._update(request, client, owned)
        member.in_sight = client.in_sight
        before = member.current
        self._rebalancer.keep_alive(changes.group, member)
        yield from self._rebalancer.advance(changes, member)
        yield from self._rebalancer.reconcile(changes, member, owned)
        settings = self._rebalancer.config_of(request.group_id)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        )
        is_behind = request.member_epoch != before.member_epoch
        if is_join or is_behind or is_full(request) or member.current.assigned != before.assigned:
            work = response_assignment(member.current.assigned)
            answer.assignment = yield from self._rebalancer.in_slices(changes, work, member)
        self._store(changes, answer, respond)

    def _check_here(self, group_id: str) -> None:
        """Whether the group can be changed here, after a pause."""
        error = self._manager.availability(group_id)
        if error:
            raise KafkaError(error, "The group has moved to another coordinator.")

    def _update(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientContext,
        owned: AssignedPartitions | None,
    ) -> tuple[GroupChanges, ConsumerMember]:
        """A known member, which may have new details."""
        group, member = self._find(request)
        check_epoch(member, request.member_epoch, owned)
        changes = GroupChanges(group)
        changes.update_details(member, updated_details(member.details, request, client))
        return changes, member

    def _join(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext
    ) -> tuple[GroupChanges, ConsumerMember]:
        """A new member, or one that gave up its partitions and may get them back."""
        group = self._manager.consumer_group(request.group_id)
        known = find_rejoining(group, request)
        details = MemberDetails(client.client_id, client.client_host, request.instance_id)
        if known is not None:
            details = known.details._replace(classic=None)
        details = updated_details(details, request, client)
        if group is None or known is None:
            self._rebalancer.check_room(group)
            new = group or self._manager.add_consumer_group(ConsumerGroup(request.group_id))
            changes = GroupChanges(new)
            member = self._rebalancer.new_member(request.member_id, details)
            changes.add_member(member)
            logger.info("Member %s joins group %s", member.member_id, request.group_id)
            return changes, member
        if known.member_id != request.member_id:
            self._rebalancer.check_log(group)
        changes = GroupChanges(group)
        without_epoch = CurrentAssignment(assigned=known.current.assigned)
        known.cancel_rebalance_timer()
        if known.member_id == request.member_id:
            changes.set_current(known, without_epoch)
            changes.update_details(known, details)
            return changes, known
        member = self._rebalancer.new_member(request.member_id, known.details)
        member.current = without_epoch
        changes.replace_member(known, member)
        changes.update_details(member, details)
        logger.info("Member %s replaces %s", member.member_id, known.member_id)
        return changes, member

    def _find(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ConsumerMember]:
        """UNKNOWN_MEMBER_ID makes a member join again, also if the group is a classic one now."""
        group = self._manager.consumer_group(request.group_id)
        member = find_member(group, request.member_id, request.instance_id)
        assert group is not None
        return group, member

    def _leave(self, request: ConsumerGroupHeartbeatRequest, respond: BeatCallback) -> None:
        group, member = self._find(request)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            self._store(self._leave_for_now(group, member), answer, respond)
        else:
            on_stored = answering(answer, respond)
            self._rebalancer.take_out(group, [member], "it leaves", on_stored)

    def _leave_for_now(self, group: ConsumerGroup, member: ConsumerMember) -> GroupChanges:
        """The instance has stopped, and keeps its partitions until its session ends."""
        logger.info("Member %s of group %s is to be back", member.member_id, group.group_id)
        changes = GroupChanges(group)
        current = CurrentAssignment(
            member_epoch=LEAVE_STATIC_EPOCH,
            previous_member_epoch=member.current.member_epoch,
            assigned=member.current.assigned,
        )
        changes.set_current(member, current)
        member.cancel_rebalance_timer()
        self._rebalancer.keep_alive(group, member)
        return changes

    def _store(
        self, changes: GroupChanges, answer: ConsumerGroupHeartbeatResponse, respond: BeatCallback
    ) -> None:
        self._manager.store_records(changes.group, changes.records, answering(answer, respond))


def described_member(
    group: ConsumerGroup, member: ConsumerMember, topics: ClusterTopics
) -> Work[DescribedConsumerGroupMember]:
    """The member with its partitions, and with its target."""
    details, current = member.details, member.current
    target = yield from described_assignment(group.target[member.member_id], topics)
    assignment = yield from described_assignment(current.assigned, topics)
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=details.instance_id,
        rack_id=details.rack_id,
        member_epoch=current.member_epoch,
        client_id=details.client_id,
        client_host=details.client_host,
        subscribed_topic_names=list(details.topic_names),
        subscribed_topic_regex=details.topic_regex,
        assignment=assignment,
        target_assignment=target,
        member_type=MEMBER_TYPE_CLASSIC if member.is_classic else MEMBER_TYPE_CONSUMER,
    )


def described_assignment(
    partitions: AssignedPartitions, topics: ClusterTopics
) -> Work[DescribedAssignment]:
    """Partitions of deleted topics are left out: their topics no longer have names."""
    described = yield from collected(
        DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, numbers in in_order(partitions.topics)
        if (name := topics.topic_name(topic_id)) is not None
    )
    return DescribedAssignment(topic_partitions=described)


def refusing(respond: BeatCallback) -> Callable[[KafkaError], object]:
    """Answer with the error."""
    return lambda error: respond(
        ConsumerGroupHeartbeatResponse(error_code=error.error, error_message=error.message)
    )


def answering(
    answer: ConsumerGroupHeartbeatResponse, respond: BeatCallback
) -> Callable[[ErrorCode], object]:
    """Answer when the records are in the log, or with the failure."""
    return lambda error: respond(
        ConsumerGroupHeartbeatResponse(error_code=error) if error else answer
    )


def find_rejoining(
    group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """The member whose place the sender takes: its own, or that of its instance."""
    if group is None:
        return None
    named = group.members.get(request.member_id)
    if named is not None and named.details.instance_id != request.instance_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Member {request.member_id} has InstanceId {named.details.instance_id}, "
            f"not {request.instance_id}.",
        )
    if request.instance_id is None or named is not None:
        return named
    member = group.static_member(request.instance_id)
    if member is not None and not member.has_left_for_now and not member.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {request.instance_id} is still held by member {member.member_id}.",
        )
    return member


def updated_details(
    details: MemberDetails, request: ConsumerGroupHeartbeatRequest, client: ClientContext
) -> MemberDetails:
    """The member's new details; null and -1 leave a value as it was."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return details._replace(
        client_id=client.client_id,
        client_host=client.client_host,
        rack_id=details.rack_id if request.rack_id is None else request.rack_id,
        topic_names=details.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=details.topic_regex if regex is None else regex,
        rebalance_timeout_ms=details.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        assignor=details.assignor if request.server_assignor is None else request.server_assignor,
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request is full, as after a lost answer; then the answer is full as well."""
    return (
        request.rebalance_timeout_ms >= 0
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def response_assignment(
    assigned: AssignedPartitions,
) -> Work[ConsumerGroupHeartbeatResponseAssignment]:
    """The partitions as the answer has them."""
    parts = yield from collected(
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in in_order(assigned.topics)
    )
    return ConsumerGroupHeartbeatResponseAssignment(topic_partitions=parts)
