"""Carries the members of a consumer group to their targets, whichever protocol they speak.

A change of members, subscriptions or topics brings a new group epoch and a target assignment, by
one of the assignors `range` and `uniform`. Each member then moves towards its target on its own
(`next_assignment`), with each heartbeat or JoinGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import closing
from typing import Any, Final, TypeVar
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS
from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup, has_unrevoked
from ottla.coordinator.group.consumer.consumer_group_records import (
    PARTS_IN_A_SLICE,
    large_assignment_value,
)
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
)
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.member_reconciliation import next_assignment
from ottla.coordinator.group.consumer.target_assignment import assign_partitions
from ottla.coordinator.group.consumer.topic_matches import (
    TopicMatches,
    drop_unused_topics,
    refresh_topics,
)
from ottla.coordinator.group.deletion import OnStored
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE, GroupRebalancer
from ottla.coordinator.group.member_sessions import MemberSessions
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work

T = TypeVar("T")


logger = logging.getLogger(__name__)

JOINED_AT_ONCE: Final = 20
"""In a group of more members the target waits for others, which may come at the same moment."""
MANY_PARTITIONS: Final = 500
"""A member that is to have so many is told in slices."""


ConfigOfGroup = Callable[[str], ConsumerGroupConfig]


class ConsumerRebalancer(GroupRebalancer[ConsumerGroup]):
    """Applies joins, heartbeats, leaves and time limits to a group."""

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
        self.matches = TopicMatches(topics)
        self._config = config
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._manager = manager
        self._slices = runtime.slices
        self._sessions: MemberSessions[ConsumerGroup, ConsumerMember] = MemberSessions(
            runtime, self._on_session_expired
        )

    def resume(self, group: ConsumerGroup) -> Work[None]:
        """The group was read from the log: start the time limits of its members again."""
        for number, member in enumerate(list(group.members.values()), 1):
            self.keep_alive(group, member)
            if has_unrevoked(member) and not member.is_classic:
                self._expect_revocation(group, member)
            if not number % MEMBERS_IN_A_SLICE:
                yield

    def abandon(self, group: ConsumerGroup, error: ErrorCode) -> Work[None]:
        """Make the group Dead: this broker no longer coordinates it."""
        group.die(self._clock.now_ms())
        group.writes.abandon(error)
        yield from ()

    def check_room(self, group: ConsumerGroup | None) -> None:
        """Whether a group can have one more member; GROUP_MAX_SIZE_REACHED if it has too many."""
        if group is None:
            return
        self.check_log(group)
        limit = self._config.group_consumer_max_size
        if len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def check_log(self, group: ConsumerGroup) -> None:
        """COORDINATOR_NOT_AVAILABLE while the log does not take very many changes of before.

        They are tried again once a second: they are a large batch, and very many may want to join.
        New member ids meanwhile would fill memory, one for each attempt.
        """
        writes, now_ms = group.writes, self._clock.monotonic_ms()
        if now_ms >= writes.next_try_ms and writes.are_too_many:
            writes.next_try_ms = now_ms + WRITE_AGAIN_MS
            self._manager.store_records(group, {}, _nothing_waits)
        if now_ms < writes.next_try_ms and writes.has_failed:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "The log of the group cannot be written."
            )

    def new_member(self, member_id: str, details: MemberDetails) -> ConsumerMember:
        """A member that is in no group yet; one without an id gets one."""
        return ConsumerMember(member_id or self.new_member_id(), details)

    def new_member_id(self) -> str:
        """A new unique member id."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the member's session, with the group's timeout or a classic member's own."""
        classic = member.details.classic
        member.session_timeout_ms = (
            self.config_of(group.group_id).consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._sessions.restart(group, member)

    def advance(self, changes: GroupChanges, member: ConsumerMember) -> Work[None]:
        """Begin a new epoch, with a target assignment, if something calls for that.

        The work pauses where the group is large, and waits where it is done already for another
        member, which may have come a little sooner. The caller repeats this member's request.
        """
        group = changes.group
        if changes.needs_assignment:
            changes.bump_epoch()
        epoch = group.group_epoch
        is_outdated = group.seen_topics_version != self.topics.version
        while is_outdated or group.assignment_epoch < min(epoch, group.group_epoch):
            if group.is_advancing:
                yield from self.in_slices(changes, _pause(), member)
                continue
            is_outdated = False
            group.is_advancing = True
            try:
                yield from self.in_slices(changes, self._advance(changes), member)
            finally:
                group.is_advancing = False

    def _advance(self, changes: GroupChanges) -> Work[None]:
        group = changes.group
        if len(group.members) > JOINED_AT_ONCE:
            yield  # one is made for all that have come by then
        has_changed = yield from self._refresh_topics(changes)
        if has_changed and group.group_epoch == group.assignment_epoch:
            changes.bump_epoch()
        if group.group_epoch > group.assignment_epoch:
            yield from assign_partitions(changes, self._config.group_consumer_assignors[0])

    def in_slices(
        self, changes: GroupChanges, work: Work[T], member: ConsumerMember | None
    ) -> Work[T]:
        """Do work in whose pauses others change the group: its own changes are stored before.

        So the log always has the changes in the order in which memory has them.
        """
        group = changes.group
        with closing(work):
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                self._store_so_far(changes)
                yield
                self.check_present(group, member)

    def check_present(self, group: ConsumerGroup, member: ConsumerMember | None = None) -> None:
        """Whether group and member are still there, after a pause."""
        if group.is_dead:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "The group is no longer here.")
        is_here = self._manager.group(group.group_id) is group
        if member is not None:
            is_here &= group.members.get(member.member_id) is member
        if not is_here:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member has been taken out.")

    def _store_so_far(self, changes: GroupChanges) -> None:
        if changes.records:
            self._manager.store_records(changes.group, changes.records, _nothing_waits)
            changes.records = {}

    def reconcile(
        self, changes: GroupChanges, member: ConsumerMember, owned: AssignedPartitions | None
    ) -> Work[None]:
        """The member's next step to its target; `owned` are the partitions that it reports.

        A step of many partitions is made ready in slices, and once more if it is another one after
        the pauses.
        """
        group, record = changes.group, None
        target = group.target[member.member_id]
        if len(target.topics) > PARTS_IN_A_SLICE and not member.current.is_reconciled_to(
            group.assignment_epoch
        ):
            yield from self.in_slices(changes, _pause(), member)
        following = self._following(group, member, owned)
        while record is None and is_large(following) and following != member.current:
            work = _record_of(following)
            self._store_so_far(changes)
            written = group.writes.count
            record = yield from self.in_slices(changes, work, member)
            if group.writes.count != written:
                planned, following = following, self._following(group, member, owned)
                if following != planned:
                    record = None
        if following == member.current:
            return
        changes.set_current(member, following, record)
        if member.is_classic:
            return
        if has_unrevoked(member):
            self._expect_revocation(group, member)
        else:
            member.cancel_rebalance_timer()

    def _following(
        self, group: ConsumerGroup, member: ConsumerMember, owned: AssignedPartitions | None
    ) -> CurrentAssignment:
        return next_assignment(
            member.current,
            group.target[member.member_id],
            group.assignment_epoch,
            lambda partitions: group.free_for(partitions, member.member_id),
            owned,
        )

    def notice_topics(self, group: ConsumerGroup) -> None:
        """Begin a new epoch if topics have come, gone or grown; no member waits for that."""
        if group.seen_topics_version != self.topics.version and not group.is_advancing:
            self.do(self._notice_topics(GroupChanges(group)), lambda error: None)

    def _notice_topics(self, changes: GroupChanges) -> Work[None]:
        changes.group.is_advancing = True
        try:
            work = self._refresh_topics(changes)
            if (yield from self.in_slices(changes, work, None)):
                changes.bump_epoch()
        finally:
            changes.group.is_advancing = False
        self._manager.store_records(changes.group, changes.records, _nothing_waits)

    def do(self, work: Work[None], refuse: Callable[[KafkaError], object]) -> None:
        """Do the work of a request at once, or in slices where it pauses."""
        try:
            rest = self._slices.begin(work)
        except KafkaError as error:
            refuse(error)
            return
        if rest is not None:
            self._scheduler.spawn(_finish(rest, refuse), "a change of a large consumer group")

    def take_out(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        reason: str,
        on_stored: OnStored,
    ) -> None:
        """Remove members; the others learn of it with their next heartbeats."""
        changes = GroupChanges(group)
        for member in members:
            logger.info(
                "Member %s is out of group %s: %s", member.member_id, group.group_id, reason
            )
            changes.remove_member(member)
        if members:
            drop_unused_topics(changes)
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, on_stored)

    def _refresh_topics(self, changes: GroupChanges) -> Work[bool]:
        """See `refresh_topics`."""
        return refresh_topics(
            changes,
            self.topics,
            self.matches,
            self._clock.now_ms(),
            asks_rights=self._config.enforces_rights,
        )

    def expect(self, group: ConsumerGroup, member: ConsumerMember, action: str) -> None:
        """Remove the member unless it does `action` within its rebalance timeout."""
        member.cancel_rebalance_timer()

        def on_timeout() -> None:
            if group.members.get(member.member_id) is member:
                self.take_out(group, [member], f"it did not {action} in time", _nothing_waits)

        member.rebalance_timer = self._scheduler.call_later(
            member.details.rebalance_timeout_ms, on_timeout
        )

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.expect(group, member, "revoke its partitions")

    def _on_session_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.take_out(group, [member], "its session has expired", _nothing_waits)


async def _finish(rest: Coroutine[Any, Any, None], refuse: Callable[[KafkaError], object]) -> None:
    try:
        await rest
    except KafkaError as error:
        refuse(error)
    except Exception:
        refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker has failed."))
        raise


def _pause() -> Work[None]:
    yield


def is_large(current: CurrentAssignment) -> bool:
    """Whether it takes long to tell a member of it."""
    return len(current.owned) >= MANY_PARTITIONS


def _record_of(current: CurrentAssignment) -> Work[bytes]:
    yield
    record = yield from large_assignment_value(current)
    yield
    return record


def _nothing_waits(error: ErrorCode) -> None:
    """No request waits for this write; if it fails, the next change repeats it."""
