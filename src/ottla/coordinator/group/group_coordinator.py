"""The coordinator of groups: membership, generations, offsets and assignments.

This file answers for classic groups. It passes requests for consumer groups on: to
`consumer/consumer_group_coordinator.py`, or to `consumer/classic_members.py` if they come from
members of the classic protocol.

Rules that hold everywhere: a request is answered exactly once; a request that names a generation
that is not the present one, or a member id that the group does not know, changes nothing; and what
members were told survives a crash of this broker, because it is in the log first.

State x request (Kafka 2.3):

                          Heartbeat               SyncGroup               OffsetCommit of a member
    Empty                 UNKNOWN_MEMBER_ID       UNKNOWN_MEMBER_ID       UNKNOWN_MEMBER_ID
    PreparingRebalance    REBALANCE_IN_PROGRESS   REBALANCE_IN_PROGRESS   stored
    CompletingRebalance   REBALANCE_IN_PROGRESS   waits for the leader    REBALANCE_IN_PROGRESS
    Stable                NONE                    the assignment          stored
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ottla.config.broker_config import BrokerConfig
from ottla.config.consumer_group_config import ConsumerGroupConfig
from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.group.consumer.classic_members import ClassicMembers
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_coordinator import (
    BeatCallback,
    ConsumerGroupCoordinator,
    ConsumerGroupDescription,
)
from ottla.coordinator.group.consumer.consumer_group_records import ClusterTopics
from ottla.coordinator.group.consumer.consumer_rebalancer import (
    ConfigOfGroup,
    ConsumerRebalancer,
)
from ottla.coordinator.group.consumer.group_migration import GroupMigration
from ottla.coordinator.group.group import (
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    ClientContext,
    Group,
    GroupState,
    GroupType,
    JoinCallback,
    SyncCallback,
    check_member,
    is_valid_group_id,
)
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_join import JoinAttempt, MemberJoin
from ottla.coordinator.group.offset_commits import (
    NOBODY,
    Committer,
    OffsetCommits,
    OnCommitted,
    check_reader,
)
from ottla.coordinator.group.offsets import OffsetAndMetadata
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.coordinator.transaction.transaction_coordinator import TxnProducer
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from ottla.protocol.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.runtime import Runtime, Timer
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


# What administrators ask of a coordinator: describe, list and delete groups.


class Availability(Protocol):
    """Says whether this broker can answer for a group now."""

    def __call__(self, group_id: str, *, may_be_empty: bool) -> ErrorCode: ...


class GroupAdministration:
    """Describes, lists and deletes groups, and deletes committed offsets."""

    def __init__(self, manager: GroupMetadataManager, availability: Availability) -> None:
        self._manager = manager
        self._availability = availability

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """State and members of each classic group; a missing one is Dead, which is no error."""
        return [self._describe(group_id) for group_id in group_ids]

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups that are known here; an empty filter lets all pass (KIP-518)."""
        states = {state.lower() for state in request.states_filter}
        types = {type_name.lower() for type_name in request.types_filter}
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ListGroupsResponse(
            error_code=loading if self._manager.is_loading else ErrorCode.NONE,
            groups=[
                _listed(group)
                for group in self._manager.groups()
                if (not states or group.state_name.lower() in states)
                and (not types or group.type.value in types)
            ],
        )

    def delete_groups(
        self, request: DeleteGroupsRequest, respond: Callable[[DeleteGroupsResponse], object]
    ) -> None:
        """Each group on its own; the answer waits until all deletions are in the log (KIP-229)."""
        group_ids = list(dict.fromkeys(request.groups_names))
        results: dict[str, ErrorCode] = {}

        def on_result(group_id: str, error: ErrorCode) -> None:
            results[group_id] = error
            if len(results) == len(group_ids):
                respond(_deleted(group_ids, results))

        if not group_ids:
            respond(DeleteGroupsResponse())
        for group_id in group_ids:
            self._delete(group_id, on_result)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        respond: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], object],
    ) -> None:
        """Delete offsets of topics that no member reads; none if the subscriptions are unknown."""
        error = self._availability(group_id, may_be_empty=True)
        group = self._manager.group(group_id)
        if not error and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not error and group and not group.is_empty and group.subscribed_topics is None:
            error = ErrorCode.NON_EMPTY_GROUP
        if error or group is None:
            respond(error, {})
            return
        topics = None if group.is_empty else group.subscribed_topics
        read = {p for p in partitions if p.topic in (topics or ())}
        errors = dict.fromkeys(partitions, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        unread = [partition for partition in partitions if partition not in read]

        def on_stored(error: ErrorCode) -> None:
            respond(ErrorCode.NONE, {**errors, **dict.fromkeys(unread, error)})

        self._manager.delete_offsets(group, unread, on_stored)

    def _describe(self, group_id: str) -> DescribedGroup:
        error = self._availability(group_id, may_be_empty=True)
        if error:
            return DescribedGroup(error_code=error, group_id=group_id)
        group = self._manager.classic_group(group_id)
        if group is None:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        is_stable = group.is_in(GroupState.STABLE)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=_described_members(group),
        )

    def _delete(self, group_id: str, on_result: Callable[[str, ErrorCode], object]) -> None:
        error = self._availability(group_id, may_be_empty=True)
        group = self._manager.group(group_id)
        if error:
            on_result(group_id, error)
        elif group is None:
            on_result(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            on_result(group_id, ErrorCode.NON_EMPTY_GROUP)
        else:
            self._manager.delete_group(group, lambda error: on_result(group_id, error))


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.type.value,
    )


def _described_members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """Subscriptions and assignments are shown only of a stable group: else they are invalid."""
    is_stable = group.is_in(GroupState.STABLE)
    protocol = group.protocol_name or ""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]


def _deleted(group_ids: Iterable[str], results: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=results[group_id])
            for group_id in group_ids
        ]
    )


MS_PER_MINUTE = 60_000


class GroupCoordinator:
    """Answers for the groups whose partition of the offsets topic this broker leads."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        offsets_log: CoordinatorLog,
        topics: ClusterTopics,
        config_of: ConfigOfGroup | None = None,
    ) -> None:
        self.manager = GroupMetadataManager(runtime, offsets_log)
        self.rebalancer = Rebalancer(runtime, config, self.manager)
        broker_defaults = ConsumerGroupConfig.of(config, {})
        self.consumer_rebalancer = ConsumerRebalancer(
            runtime, config, config_of or (lambda group_id: broker_defaults), self.manager, topics
        )
        self._migration = GroupMigration(
            config, self.manager, self.rebalancer, self.consumer_rebalancer
        )
        self._consumers = ConsumerGroupCoordinator(
            config, self.manager, self.consumer_rebalancer, self._migration
        )
        self._classic_members = ClassicMembers(self.manager, self.consumer_rebalancer)
        self._config = config
        self._scheduler = runtime.scheduler
        self._joins = MemberJoin(
            runtime, config, self.manager, self.rebalancer, self._classic_members.join
        )
        self._commits = OffsetCommits(runtime.clock, config, self.manager, self.rebalancer)
        self._administration = GroupAdministration(self.manager, self.availability)
        self._description = ConsumerGroupDescription(config, self.manager, topics)
        self._expiry: Timer | None = None
        self._is_active = False

    def startup(self) -> None:
        """Begin to answer, and to expire offsets periodically."""
        self._is_active = True
        self._expiry = self._scheduler.call_every(
            self._config.offsets_retention_check_interval_ms, self._expire_offsets
        )

    def shutdown(self) -> None:
        """Stop answering; members look for another coordinator, or find this one again."""
        self._is_active = False
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for partition in range(self.manager.log.partition_count):
            for group in self.manager.unload(partition):
                self._abandon(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def on_election(self, partition: int) -> None:
        """This broker leads the partition of the offsets topic now: read its groups."""
        self.manager.load(partition, self._on_group_loaded)

    def on_resignation(self, partition: int) -> None:
        """Another broker leads the partition now: send the waiting members to it."""
        for group in self.manager.unload(partition):
            self._abandon(group, ErrorCode.NOT_COORDINATOR)

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Topics were deleted: delete the offsets in them."""
        self.manager.drop_topics(topics)

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups may be consumer groups (KIP-848)."""
        return GroupType.CONSUMER.value in self._config.group_coordinator_rebalance_protocols

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates the group."""
        return self.manager.log.partition_for(group_id)

    def availability(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """NONE if this broker can answer for the group now, else what to tell the client."""
        if not is_valid_group_id(group_id, may_be_empty=may_be_empty):
            return ErrorCode.INVALID_GROUP_ID
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.manager.availability(group_id)

    def join_group(
        self, request: JoinGroupRequest, client: ClientContext, respond: JoinCallback
    ) -> None:
        """Add the sender to the next generation of the group; answered when that begins."""
        attempt = JoinAttempt(request, client, respond)
        error = self.availability(request.group_id)
        if error:
            attempt.refuse(error)
        else:
            self._joins.join(attempt)

    def sync_group(self, request: SyncGroupRequest, respond: SyncCallback) -> None:
        """Give the sender its assignment; answered when the leader's assignment is stored."""
        consumers = self._available_consumer_group(request.group_id)
        if consumers is not None:
            self._sync_in_consumer_group(consumers, request, respond)
            return
        error, group = self._find_for_sync(request)
        if group is None or error:
            respond(SyncGroupResponse(error_code=error))
        elif group.is_in(GroupState.STABLE):
            self._answer_assignment(group, request.member_id, respond)
        else:
            self._await_assignment(group, request, respond)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """The sender is alive. REBALANCE_IN_PROGRESS asks it to join again."""
        error = self.availability(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The sessions of loaded groups begin when loading ends: nothing is lost by waiting.
            return ErrorCode.NONE
        if error:
            return error
        consumers = self._available_consumer_group(request.group_id)
        if consumers is not None:
            return self._heartbeat_in_consumer_group(consumers, request)
        group = self.manager.classic_group(request.group_id)
        if group is None or group.is_in(GroupState.EMPTY):
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.rebalancer.sessions.restart(group, group.members[request.member_id])
        return ErrorCode.NONE if group.is_in(GroupState.STABLE) else ErrorCode.REBALANCE_IN_PROGRESS

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove members at once, each with its own result; v0-2 requests have one identity."""
        error = self.availability(request.group_id)
        if error:
            return LeaveGroupResponse(error_code=error)
        consumers = self._available_consumer_group(request.group_id)
        if consumers is not None:
            members = self._classic_members.leave(consumers, request.members)
            return LeaveGroupResponse(members=members)
        group = self.manager.classic_group(request.group_id)
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=self._leave(group, identity),
                )
                for identity in request.members
            ]
        )

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, respond: BeatCallback
    ) -> None:
        """A member of a consumer group joins, lives or leaves (KIP-848)."""
        error = self.availability(request.group_id)
        if error:
            respond(ConsumerGroupHeartbeatResponse(error_code=error))
        else:
            self._consumers.heartbeat(request, client, respond)

    def describe_consumer_groups(self, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
        """Epochs, members and assignments of each consumer group."""
        return [
            self._description.describe(group_id, self.availability(group_id))
            for group_id in group_ids
        ]

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """State and members of each group."""
        return self._administration.describe_groups(group_ids)

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups of this broker, of the states and types that are asked for."""
        if not self._is_active:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._administration.list_groups(request)

    def delete_groups(
        self, request: DeleteGroupsRequest, respond: Callable[[DeleteGroupsResponse], object]
    ) -> None:
        """Delete groups without members and their offsets; answered when that is in the log."""
        self._administration.delete_groups(request, respond)

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_committed: OnCommitted,
    ) -> None:
        """Commit offsets of a member, or of a client that uses the group only for its offsets."""
        error = self.availability(group_id, may_be_empty=True)
        if error:
            on_committed(dict.fromkeys(offsets, error))
        else:
            self._commits.commit(group_id, committer, offsets, on_committed)

    def commit_offsets_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: TxnProducer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_committed: OnCommitted,
    ) -> None:
        """Store offsets that count once the producer's transaction is committed."""
        error = self.availability(group_id)
        if error:
            on_committed(dict.fromkeys(offsets, error))
        else:
            self._commits.commit_in_transaction(
                group_id, committer, producer, offsets, on_committed
            )

    def on_transaction_ended(self, partition: int, producer_id: int, commit: bool) -> None:
        """A producer's transaction marker is in a partition of the offsets topic."""
        self.manager.end_transaction(partition, producer_id, commit)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        respond: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], object],
    ) -> None:
        """Forget committed offsets of topics that the group does not read (KIP-496)."""
        self._administration.delete_offsets(group_id, partitions, respond)

    def unstable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change (KIP-447)."""
        group = self.manager.group(group_id)
        if group is None or not group.offsets.has_pending:
            return frozenset()
        return frozenset(filter(group.offsets.is_unstable, partitions))

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        reader: Committer = NOBODY,
    ) -> tuple[ErrorCode, Mapping[TopicPartition, OffsetAndMetadata | None]]:
        """The committed offsets of the partitions, or of all; None where there is none.

        A member of a consumer group that names itself must be in its present epoch.
        """
        error = self.availability(group_id, may_be_empty=True) or check_reader(
            self.manager.group(group_id), reader
        )
        if error:
            return error, {}
        return ErrorCode.NONE, self._commits.fetch(group_id, partitions)

    def _on_group_loaded(self, group: Group) -> None:
        if isinstance(group, ConsumerGroup):
            self.consumer_rebalancer.resume(group)
        elif isinstance(group, ClassicGroup):
            self.rebalancer.resume(group, self._config.group_max_size)

    def _abandon(self, group: Group, error: ErrorCode) -> None:
        if isinstance(group, ConsumerGroup):
            self.consumer_rebalancer.abandon(group, error)
        elif isinstance(group, ClassicGroup):
            self.rebalancer.abandon(group, error)

    def _expire_offsets(self) -> None:
        self.manager.expire_offsets(self._config.offsets_retention_minutes * MS_PER_MINUTE)

    def _available_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group, if this broker answers for it and it is one of the consumer protocol."""
        group = None if self.availability(group_id) else self.manager.group(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _heartbeat_in_consumer_group(
        self, group: ConsumerGroup, request: HeartbeatRequest
    ) -> ErrorCode:
        """A classic member's heartbeat; it may turn a settled group into a classic one."""
        error = self._classic_members.heartbeat(group, request)
        if not error and self._migration.downgrade_if_settled(group) is not None:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def _sync_in_consumer_group(
        self, group: ConsumerGroup, request: SyncGroupRequest, respond: SyncCallback
    ) -> None:
        """Answer the sender; then make the group a classic one, if its members allow that.

        The answer is sent before that, so that no member loses its generation.
        """

        def respond_and_settle(answer: SyncGroupResponse) -> None:
            respond(answer)
            if not answer.error_code and self.manager.group(group.group_id) is group:
                self._migration.downgrade_if_settled(group)

        self._classic_members.sync(group, request, respond_and_settle)

    def _find_for_sync(self, request: SyncGroupRequest) -> tuple[ErrorCode, ClassicGroup | None]:
        error = self.availability(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that the sender takes part in is lost. This answer makes it join again
            # without looking for another coordinator first.
            return ErrorCode.REBALANCE_IN_PROGRESS, None
        group = None if error else self.manager.classic_group(request.group_id)
        if group is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID, None
        return self._check_sync(group, request), group

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        error = check_member(group, request.member_id, request.group_instance_id)
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
        self.rebalancer.received_sync(group, member_id)
        self.rebalancer.sessions.restart(group, member)
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
        self.rebalancer.received_sync(group, request.member_id)
        if group.is_leader(request.member_id):
            self._store_assignment(group, request)

    def _store_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Members that the leader left out get nothing; unknown member ids are not stored."""
        assignment = dict.fromkeys(group.members, b"")
        for part in request.assignments:
            if part.member_id in assignment:
                assignment[part.member_id] = bytes(part.assignment)

        def on_stored(error: ErrorCode) -> None:
            # Another rebalance may have begun while the write was under way.
            is_current = (
                group.is_in(GroupState.COMPLETING_REBALANCE)
                and group.generation_id == request.generation_id
            )
            if is_current and error:
                self.rebalancer.refuse_assignment(group, error)
                self.rebalancer.maybe_prepare_rebalance(
                    group, f"the assignment could not be stored: {error.name}"
                )
            elif is_current:
                self.rebalancer.assign(group, assignment)

        self.manager.store_group(group, assignment, on_stored)

    def _leave(self, group: ClassicGroup | None, identity: MemberIdentity) -> ErrorCode:
        """An administrator names a static member by its instance id alone (KIP-345)."""
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER_ID)
        if member_id in group.pending_members:
            self.rebalancer.remove_pending_member(group, member_id)
            return ErrorCode.NONE
        error = check_member(group, member_id, instance_id)
        if not error:
            reason = f"{member_id} leaves, reason: {identity.reason or 'not provided'}"
            self.rebalancer.remove_member(group, group.members[member_id], reason)
        return error
