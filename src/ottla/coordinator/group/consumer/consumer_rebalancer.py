"""Carries the members of a consumer group to their targets, whichever protocol they speak.

A change of members, subscriptions or topics brings a new group epoch and a target assignment. Each
member then goes its own way there (`reconciliation`), with its next heartbeat or JoinGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.consumer_group_config import ConsumerGroupConfig
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup, has_unrevoked
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.member import Assignment, ConsumerMember, MemberDetails
from ottla.coordinator.group.consumer.reconciliation import next_assignment
from ottla.coordinator.group.consumer.subscriptions import refresh_topics
from ottla.coordinator.group.consumer.target_assignment import assign_partitions
from ottla.coordinator.group.consumer.topics import ClusterTopics
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager, OnStored
from ottla.coordinator.group.sessions import MemberSessions
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

ConfigOfGroup = Callable[[str], ConsumerGroupConfig]


class ConsumerRebalancer:
    """What joins, heartbeats, leaves and time limits do to a group."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        config_of: ConfigOfGroup,
        manager: GroupMetadataManager,
        topics: ClusterTopics,
    ) -> None:
        self.config_of = config_of
        self.topics = topics
        self._config = config
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._manager = manager
        self._sessions: MemberSessions[ConsumerGroup, ConsumerMember] = MemberSessions(
            runtime, self._on_session_expired
        )

    def resume(self, group: ConsumerGroup) -> None:
        """The group was read from the log: its members are expected to go on with heartbeats."""
        for member in group.members.values():
            self.keep_alive(group, member)
            if has_unrevoked(member) and not member.is_classic:
                self._expect_revocation(group, member)

    def abandon(self, group: ConsumerGroup, error: ErrorCode) -> None:
        """The group dies here: another broker takes over, or it was deleted."""
        group.die(self._clock.now_ms())
        group.writes.abandon(error)

    def check_room(self, member_count: int) -> None:
        """GROUP_MAX_SIZE_REACHED if a group of so many members cannot have one more."""
        limit = self._config.group_consumer_max_size
        if member_count >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def new_member(self, member_id: str, details: MemberDetails) -> ConsumerMember:
        """A member that is in no group yet; one without an id gets one."""
        return ConsumerMember(member_id or self.new_member_id(), details)

    def new_member_id(self) -> str:
        """An id that no member ever had."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member has its full session timeout again: its own, or that of its group."""
        classic = member.details.classic
        member.session_timeout_ms = (
            self.config_of(group.group_id).consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._sessions.restart(group, member)

    def advance(self, changes: GroupChanges) -> None:
        """A new epoch and a target assignment for it, if something calls for that."""
        group = changes.group
        if changes.needs_assignment or group.seen_topics_version != self.topics.version:
            changes.needs_assignment |= refresh_topics(changes, self.topics, self._clock.now_ms())
        if changes.needs_assignment:
            changes.bump_epoch()
        if group.group_epoch > group.assignment_epoch:
            assign_partitions(changes, self._config.group_consumer_assignors[0])

    def reconcile(
        self, changes: GroupChanges, member: ConsumerMember, owned: Assignment | None
    ) -> None:
        """The member's next step to its target; `owned` is what it says that it has."""
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
        if member.is_classic:
            return
        if has_unrevoked(member):
            self._expect_revocation(group, member)
        else:
            member.cancel_rebalance_timer()

    def notice_topics(self, group: ConsumerGroup) -> None:
        """Begin a new epoch if topics have come, gone or grown, on behalf of no member."""
        if group.seen_topics_version == self.topics.version:
            return
        changes = GroupChanges(group)
        if refresh_topics(changes, self.topics, self._clock.now_ms()):
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, _unheard)

    def take_out(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        reason: str,
        on_stored: OnStored,
    ) -> None:
        """Members go; the others find out about it with their next heartbeats."""
        changes = GroupChanges(group)
        for member in members:
            logger.info(
                "Member %s is out of group %s: %s", member.member_id, group.group_id, reason
            )
            changes.remove_member(member)
        if members:
            refresh_topics(changes, self.topics, self._clock.now_ms())
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, on_stored)

    def expect(self, group: ConsumerGroup, member: ConsumerMember, deed: str) -> None:
        """Put the member out of the group if it has not done a thing in its rebalance timeout."""
        member.cancel_rebalance_timer()

        def on_timeout() -> None:
            member.rebalance_timer = None
            if group.members.get(member.member_id) is member:
                self.take_out(group, [member], f"it did not {deed} in time", _unheard)

        member.rebalance_timer = self._scheduler.call_later(
            member.details.rebalance_timeout_ms, on_timeout
        )

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.expect(group, member, "revoke its partitions")

    def _on_session_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.take_out(group, [member], "its session has expired", _unheard)


def _unheard(error: ErrorCode) -> None:
    """Nobody waits for the answer; what was not written is written with the next change."""
