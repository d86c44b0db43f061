"""Answers heartbeats of the consumer group protocol (KIP-848).

A heartbeat that changes nothing touches the member's session and nothing else. All others go the
same way: member, subscriptions, group epoch, target assignment, the member's own next step; and
are answered when the records of that are in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup, has_unrevoked
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.heartbeat_checks import (
    check_epoch,
    check_request,
    find_member,
)
from ottla.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    TopicIdPartition,
    by_topic,
)
from ottla.coordinator.group.consumer.reconciliation import next_assignment
from ottla.coordinator.group.consumer.subscriptions import refresh_topics
from ottla.coordinator.group.consumer.target_assignment import assign_partitions
from ottla.coordinator.group.consumer.topics import ClusterTopics
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member import ClientContext
from ottla.coordinator.group.sessions import MemberSessions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

BeatCallback = Callable[[ConsumerGroupHeartbeatResponse], object]


class ConsumerGroupCoordinator:
    """Members of consumer groups: they join, get their partitions, and leave or time out."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        topics: ClusterTopics,
    ) -> None:
        self.sessions: MemberSessions[ConsumerGroup, ConsumerMember] = MemberSessions(
            runtime, self._on_session_expired
        )
        self.topics = topics
        self._config = config
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._manager = manager

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, respond: BeatCallback
    ) -> None:
        """Answer now if nothing changes, else when the change is in the log."""
        try:
            check_request(request, client.api_version, self._config.group_consumer_assignors)
            if request.member_epoch < JOIN_EPOCH:
                self._leave(request, respond)
            else:
                self._beat(request, client, respond)
        except KafkaError as error:
            respond(
                ConsumerGroupHeartbeatResponse(error_code=error.error, error_message=error.message)
            )

    def resume(self, group: ConsumerGroup) -> None:
        """The group was read from the log: its members are expected to go on with heartbeats."""
        for member in group.members.values():
            member.session_timeout_ms = self._config.group_consumer_session_timeout_ms
            self.sessions.restart(group, member)
            if has_unrevoked(member):
                self._expect_revocation(group, member)

    def abandon(self, group: ConsumerGroup, error: ErrorCode) -> None:
        """The group dies here: another broker takes over, or it was deleted."""
        group.die(self._clock.now_ms())
        group.writes.abandon(error)

    # -- one heartbeat

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, respond: BeatCallback
    ) -> None:
        owned = owned_partitions(request)
        is_join = request.member_epoch == JOIN_EPOCH
        changes, member = self._join(request, client) if is_join else self._go_on(request, client)
        group = changes.group
        before = member.current
        if changes.needs_assignment or group.seen_topics_version != self.topics.version:
            changes.needs_assignment |= refresh_topics(changes, self.topics, self._clock.now_ms())
        if changes.needs_assignment:
            changes.bump_epoch()
        if group.group_epoch > group.assignment_epoch:
            assign_partitions(changes, self._config.group_consumer_assignors[0])
        self._reconcile(changes, member, owned)
        self.sessions.restart(group, member)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self._config.group_consumer_heartbeat_interval_ms,
        )
        is_behind = request.member_epoch != before.member_epoch
        if is_join or is_behind or is_full(request) or member.current.assigned != before.assigned:
            answer.assignment = response_assignment(member.current.assigned)
        self._store(changes, answer, respond)

    def _go_on(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext
    ) -> tuple[GroupChanges, ConsumerMember]:
        """A member in its epoch, which may say something new about itself."""
        group = self._manager.consumer_group(request.group_id)
        member = find_member(group, request.member_id, request.instance_id)
        assert group is not None
        check_epoch(member, request.member_epoch, owned_partitions(request))
        changes = GroupChanges(group)
        changes.update_details(member, updated_details(member.details, request, client))
        return changes, member

    def _join(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext
    ) -> tuple[GroupChanges, ConsumerMember]:
        """A new member, or one that has given all up: what it had before may come back to it."""
        group = self._manager.consumer_group(request.group_id)
        known = find_rejoining(group, request)
        details = MemberDetails(client.client_id, client.client_host, request.instance_id)
        details = updated_details(known.details if known else details, request, client)
        if group is None or known is None:
            self._check_room(group)
            changes = GroupChanges(group or self._manager.create_consumer_group(request.group_id))
            member = self._new_member(request, details)
            changes.add_member(member)
            logger.info("Member %s joins group %s", member.member_id, request.group_id)
            return changes, member
        changes = GroupChanges(group)
        without_epoch = CurrentAssignment(assigned=known.current.assigned)
        if known.member_id == request.member_id:
            changes.set_current(known, without_epoch)
            changes.update_details(known, details)
            return changes, known
        member = self._new_member(request, known.details)
        member.current = without_epoch
        changes.replace_member(known, member)
        changes.update_details(member, details)
        logger.info("Member %s replaces %s", member.member_id, known.member_id)
        return changes, member

    def _check_room(self, group: ConsumerGroup | None) -> None:
        limit = self._config.group_consumer_max_size
        if group is not None and len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _new_member(
        self, request: ConsumerGroupHeartbeatRequest, details: MemberDetails
    ) -> ConsumerMember:
        """Members of version 0 have no id of their own (KIP-1082)."""
        member_id = request.member_id or str(UUID(int=self._random.getrandbits(128), version=4))
        timeout_ms = self._config.group_consumer_session_timeout_ms
        return ConsumerMember(member_id, details, timeout_ms)

    def _reconcile(
        self, changes: GroupChanges, member: ConsumerMember, owned: Assignment | None
    ) -> None:
        group = changes.group
        following = next_assignment(
            member.current,
            group.target[member.member_id],
            group.assignment_epoch,
            lambda partition: group.is_free_for(partition, member.member_id),
            owned,
        )
        if following == member.current:
            return
        changes.set_current(member, following)
        if has_unrevoked(member):
            self._expect_revocation(group, member)
        elif member.rebalance_timer is not None:
            member.rebalance_timer.cancel()
            member.rebalance_timer = None

    # -- the end of a membership

    def _leave(self, request: ConsumerGroupHeartbeatRequest, respond: BeatCallback) -> None:
        group = self._manager.consumer_group(request.group_id)
        member = find_member(group, request.member_id, request.instance_id)
        assert group is not None
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            changes = self._leave_for_now(group, member)
        else:
            changes = self._remove(group, member, "it leaves")
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        self._store(changes, answer, respond)

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
        if member.rebalance_timer is not None:
            member.rebalance_timer.cancel()
            member.rebalance_timer = None
        self.sessions.restart(group, member)
        return changes

    def _remove(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> GroupChanges:
        """The others find out about it with their next heartbeats."""
        logger.info("Member %s is out of group %s: %s", member.member_id, group.group_id, reason)
        changes = GroupChanges(group)
        changes.remove_member(member)
        refresh_topics(changes, self.topics, self._clock.now_ms())
        changes.bump_epoch()
        return changes

    def _on_session_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._fence(group, member, "its session has expired")

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member that keeps what it must give up for too long is put out of the group."""
        if member.rebalance_timer is not None:
            member.rebalance_timer.cancel()
        epoch = member.current.member_epoch

        def on_timeout() -> None:
            member.rebalance_timer = None
            if has_unrevoked(member) and member.current.member_epoch == epoch:
                self._fence(group, member, "it did not revoke its partitions in time")

        member.rebalance_timer = self._scheduler.call_later(
            member.details.rebalance_timeout_ms, on_timeout
        )

    def _fence(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> None:
        changes = self._remove(group, member, reason)
        self._manager.store_records(group, changes.records, lambda error: None)

    def _store(
        self, changes: GroupChanges, answer: ConsumerGroupHeartbeatResponse, respond: BeatCallback
    ) -> None:
        def on_stored(error: ErrorCode) -> None:
            respond(ConsumerGroupHeartbeatResponse(error_code=error) if error else answer)

        self._manager.store_records(changes.group, changes.records, on_stored)


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
    if member is not None and not member.has_left_for_now:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {request.instance_id} is still held by member {member.member_id}.",
        )
    return member


def updated_details(
    details: MemberDetails, request: ConsumerGroupHeartbeatRequest, client: ClientContext
) -> MemberDetails:
    """What the member says of itself now; null, and -1, leave things as they were."""
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


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """What the member says that it has; None if that has not changed."""
    if request.topic_partitions is None:
        return None
    return NO_PARTITIONS.union(
        TopicIdPartition(topic.topic_id, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does when an answer was lost: so do we then."""
    return (
        request.rebalance_timeout_ms >= 0
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def response_assignment(assigned: Assignment) -> ConsumerGroupHeartbeatResponseAssignment:
    """The partitions as the answer has them."""
    return ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(assigned).items()
        ]
    )
