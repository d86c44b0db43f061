"""Changes the protocol of groups with members (KIP-848): `group.consumer.migration.policy`.

A classic group becomes a consumer group when the first member of the consumer protocol joins. Its
members keep their protocol, and rebalance from then on one by one (`classic_members`). When no
member of the consumer protocol is left, and the others have all reached their targets, the group
becomes a classic one again. (Kafka does not wait for that, and so fences those that have not.)
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.classic_subscription import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla.coordinator.group.consumer.consumer_group_records import PARTS_IN_A_SLICE, collected
from ottla.coordinator.group.consumer.consumer_member import (
    ClassicMembership,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
)
from ottla.coordinator.group.consumer.consumer_rebalancer import ConsumerRebalancer
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.pending_writes import batch_of
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.group_records import group_batch
from ottla.coordinator.group.member_metadata import MemberMetadata
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.structs import CONSUMER_PROTOCOL_TYPE

logger = logging.getLogger(__name__)

ADOPTED_IN_A_SLICE: Final = 100


class GroupMigration:
    """Turns classic groups into consumer groups and back, with their members."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        classic_rebalancer: Rebalancer,
        consumer_rebalancer: ConsumerRebalancer,
    ) -> None:
        policy = config.group_consumer_migration_policy
        self._may_upgrade = policy in ("bidirectional", "upgrade")
        self._may_downgrade = policy in ("bidirectional", "downgrade")
        self._clock = runtime.clock
        self._config = config
        self._manager = manager
        self._classic = classic_rebalancer
        self._consumer = consumer_rebalancer
        self._topics = consumer_rebalancer.topics

    @contextmanager
    def _held(self, group: Group) -> Iterator[None]:
        """Requests to the group have to come again meanwhile: it changes its protocol."""
        group.is_dying = True
        try:
            yield
        finally:
            group.is_dying = False
            self._manager.pay_tombstones(group)  # of topics that were deleted meanwhile

    def upgrade(self, classic: ClassicGroup) -> Work[None]:
        """Turn a classic group into a consumer group; GROUP_ID_NOT_FOUND if that cannot be.

        The log gets the group in one batch, which the answer to the joining member waits for.
        Requests to a large group have to come again until it is ready, and if the classic one has
        changed in a pause, as by the end of a session, so has the joining one.
        """
        self._check_upgrade(classic)
        before, changes = _state(classic), GroupChanges(ConsumerGroup(classic.group_id))
        with self._held(classic):
            try:
                yield from self._adopt_members(classic, changes)
            except KafkaError as error:
                raise _not_upgraded(classic, error.message) from error
            records = {**dict.fromkeys(classic.tombstone_keys()), **changes.records}
            batch = batch_of(records, self._clock.now_ms())
            if _is_large(classic):
                yield
        if self._manager.classic_group(classic.group_id) is not classic:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "The group has moved meanwhile.")
        if _state(classic) != before:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group has changed.")
        self._replace(classic, changes, batch)
        for count, member in enumerate(list(changes.group.members.values()), 1):
            if changes.group.members.get(member.member_id) is member:
                self._consumer.keep_alive(changes.group, member)
            if not count % MEMBERS_IN_A_SLICE:
                yield

    def _replace(self, classic: ClassicGroup, changes: GroupChanges, batch: bytes) -> None:
        logger.info("Classic group %s becomes a consumer group", classic.group_id)
        group = changes.group
        # All waiting members are asked to join again, and are then in the new group.
        abandoning = self._classic.abandon(classic, ErrorCode.REBALANCE_IN_PROGRESS)
        self._consumer.do(abandoning, lambda error: None)
        self._manager.add_consumer_group(group)
        group.subscribed_topics = group.compute_subscribed_topics()
        self._manager.store_records(group, changes.records, lambda error: None, batch)

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._may_upgrade:
            raise _not_upgraded(classic, "online upgrade is disabled")
        if classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _not_upgraded(classic, "its members are not consumers")
        if len(classic.members) > self._config.group_consumer_max_size:
            raise _not_upgraded(classic, "it is larger than group.consumer.max.size")

    def _adopt_members(self, classic: ClassicGroup, changes: GroupChanges) -> Work[None]:
        """The members with their partitions; if two of them claim one, the first keeps it."""
        changes.set_epoch(classic.generation_id)
        changes.set_assignment_epoch(classic.generation_id)
        if not classic.members:
            return  # all have left, and the group still waits for others to join
        protocol = classic.select_protocol()
        taken: defaultdict[UUID, set[int]] = defaultdict(set)
        for count, member in enumerate(list(classic.members.values()), 1):
            metadata = member.metadata(protocol)
            subscription = yield from read_subscription(metadata, self._topics)
            # A member that a failed rebalance left without an assignment may not have given up its
            # former partitions yet.
            assigned = subscription.owned
            if member.assignment:
                name, data = classic.protocol_name, member.assignment
                assigned = yield from read_assignment(name, data, self._topics)
            free = yield from collected(
                (each, numbers - taken[each]) for each, numbers in assigned.topics.items()
            )
            details = MemberDetails(
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id,
                topic_names=subscription.topic_names,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicMembership(member.session_timeout_ms, tuple(member.protocols)),
            )
            current = CurrentAssignment(
                member_epoch=classic.generation_id,
                previous_member_epoch=classic.generation_id,
                assigned=AssignedPartitions.of(free),
            )
            for each, numbers in assigned.topics.items():
                taken[each] |= numbers
            if not count % ADOPTED_IN_A_SLICE or len(assigned.topics) > PARTS_IN_A_SLICE:
                yield
            yield from changes.adopt_member(ConsumerMember(member.member_id, details, current))

    def downgrade_if_settled(self, group: ConsumerGroup) -> bool:
        """Turn the group into a classic one, if all members are classic and reconciled.

        Returns whether it is one now: a large group is it a little later.
        """
        if (
            not self._may_downgrade
            or group.is_dying
            or not self._is_settled_without_consumers(group)
        ):
            return False
        self._consumer.do(self._downgrade(group), lambda error: None)
        return self._manager.group(group.group_id) is not group

    def _downgrade(self, group: ConsumerGroup) -> Work[None]:
        """The same in slices; requests to the group have to come again meanwhile.

        If it has changed in a pause, as by the end of a session, it stays as it is: the next
        heartbeat that finds it settled begins again.
        """
        written = group.writes.count
        with self._held(group):
            classic = ClassicGroup(group.group_id, self._clock.now_ms())
            yield from self._give_members(group, classic)
            assignments = {m.member_id: m.assignment for m in classic.members.values()}
            batch = yield from group_batch(classic, assignments, self._clock.now_ms())
        is_present = self._manager.group(group.group_id) is group
        if not is_present or group.writes.count != written:
            return
        logger.info("Consumer group %s becomes a classic group", group.group_id)
        self._manager.replace_consumer_group(group, classic)
        self._manager.store_group(classic, assignments, lambda error: _warn(classic, error), batch)
        # No member is the leader, so none would assign new partitions.
        self._classic.prepare_rebalance(classic, "it was a consumer group before")
        yield from self._classic.resume(classic)

    def _give_members(self, group: ConsumerGroup, classic: ClassicGroup) -> Work[None]:
        """Give a classic group the members, with their partitions, as a stable generation."""
        members = list(group.members.values())
        for number, member in enumerate(members, 1):
            classic.add(_classic_member(member))
            classic.owed_tombstones.update(dict.fromkeys(group.member_keys(member.member_id)))
            if not number % MEMBERS_IN_A_SLICE:
                yield
        classic.owed_tombstones.update(dict.fromkeys(group.keys_without_members()))
        classic.generation_id = group.group_epoch
        classic.protocol_name = classic.select_protocol()
        classic.state = GroupState.STABLE
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for number, member in enumerate(members, 1):
            stored = classic.members[member.member_id]
            metadata = stored.metadata(classic.protocol_name)
            assigned = member.current.assigned
            stored.assignment = yield from write_assignment(assigned, metadata, self._topics)
            if not number % MEMBERS_IN_A_SLICE:
                yield

    def _is_settled_without_consumers(self, group: ConsumerGroup) -> bool:
        return (
            group.has_only_classic_members
            and len(group.members) <= self._config.group_max_size
            and all(member.rebalance_timer is None for member in group.members.values())
            and group.state is ConsumerGroupState.STABLE
        )


def _is_large(group: ClassicGroup) -> bool:
    """Whether one batch of all its members is work for a slice."""
    return len(group.members) > MEMBERS_IN_A_SLICE


def _state(classic: ClassicGroup) -> object:
    """All of a classic group that a consumer group takes over."""
    members = [
        (each, each.member_id, each.protocols, each.assignment) for each in classic.members.values()
    ]
    return classic.state, classic.generation_id, classic.protocol_name, members


def _classic_member(member: ConsumerMember) -> MemberMetadata:
    details = member.details
    assert details.classic is not None
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=details.instance_id,
        client_id=details.client_id,
        client_host=details.client_host,
        rebalance_timeout_ms=details.rebalance_timeout_ms,
        session_timeout_ms=details.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=details.classic.protocols,
    )


def _not_upgraded(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {classic.group_id} is a classic group and cannot become a consumer group: {reason}",
    )


def _warn(classic: ClassicGroup, error: ErrorCode) -> None:
    if error:
        logger.warning(
            "Group %s is a classic group, but that is not in the log yet: %s",
            classic.group_id,
            error.name,
        )
