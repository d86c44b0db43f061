"""The coordinator of groups: membership, generations, offsets and assignments.

Requests of members are answered by the type of the group: `group_types` has the table.

Rules that hold everywhere: a request is answered exactly once; a request that names a generation
that is not the present one, or a member id that the group does not know, changes nothing; and an
answer to a member survives a crash of this broker, because it is in the log first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.coordinator_log import CoordinatorLog, for_each, guarded
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.coordinator.group.consumer.consumer_group_coordinator import BeatCallback
from ottla.coordinator.group.consumer.consumer_rebalancer import ConfigOfGroup
from ottla.coordinator.group.group import (
    NOBODY,
    Committer,
    Group,
    GroupType,
    is_too_long,
    is_valid_group_id,
)
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.group_types import GroupTypes
from ottla.coordinator.group.member_metadata import ClientContext, JoinCallback, SyncCallback
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE, JoinAttempt
from ottla.coordinator.group.offset_commits import OffsetCommits, OnCommitted
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.topic_drops import COST_OF_A_GROUP
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
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.runtime import Runtime
from ottla.runtime.periodic_work import PeriodicWork
from ottla.runtime.scheduler import Work, at_once, emptied
from ottla.structs import MS_PER_MINUTE, TopicPartition, TxnProducer

logger = logging.getLogger(__name__)

GROUPS_IN_A_SLICE: Final = 1000
ABANDONED_IN_A_SLICE: Final = 300
OFFSETS_IN_A_SLICE: Final = 10_000


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
        self.manager = GroupMetadataManager(runtime, offsets_log, topics.is_deleted)
        types = GroupTypes(runtime, config, self.manager, topics, config_of)
        self.rebalancer, self.consumer_rebalancer = types.classic, types.consumer
        self._rebalancers, self._requests = types.rebalancers, types.requests
        self._consumers = types.heartbeats
        self._commits = OffsetCommits(config, self.manager, self._requests)
        self._config = config
        self._runtime = runtime
        self._expiry: PeriodicWork | None = None
        self._is_active = False

    def startup(self) -> None:
        """Begin to answer, and to expire offsets periodically."""
        self._is_active = True
        period_ms = self._config.offsets_retention_check_interval_ms
        self._expiry = PeriodicWork(
            self._runtime, period_ms, self.expire_offsets, "the expiry of offsets"
        )

    def shutdown(self) -> None:
        """Stop answering; members look for another coordinator, or find this one again."""
        self._is_active = False
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for partition in range(self.manager.log.partition_count):
            for group in self.manager.unload(partition):
                rebalancer = self._rebalancers[group.type]
                at_once(rebalancer.abandon(group, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def on_election(self, partition: int) -> None:
        """This broker leads the partition of the offsets topic now: read its groups."""
        self.manager.load(partition, lambda group: self._rebalancers[group.type].resume(group))

    def on_resignation(self, partition: int) -> None:
        """Another broker leads the partition now: send the waiting members to it."""
        work = self._abandon(self.manager.unload(partition))
        self._runtime.begin(work, "send members to another coordinator")

    def _abandon(self, groups: list[Group]) -> Work[None]:
        """Answer the members of groups that are given up, and then free these, in slices."""
        seen = 0
        for group in groups:
            seen += 1 + len(group.members)
            rebalancer = self._rebalancers[group.type]
            yield from guarded(group, rebalancer.abandon(group, ErrorCode.NOT_COORDINATOR))
            if seen >= ABANDONED_IN_A_SLICE:
                seen = 0
                yield
        while groups:
            yield from emptied(group.offsets.give_up() for group in groups[-GROUPS_IN_A_SLICE:])
            del groups[-GROUPS_IN_A_SLICE:]
            if groups:
                yield

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups may be consumer groups (KIP-848)."""
        return GroupType.CONSUMER.value in self._config.group_coordinator_rebalance_protocols

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates the group."""
        return self.manager.log.partition_for(group_id)

    def availability(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """NONE if this broker can answer for the group now, else the error for the client."""
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
        error = self.availability(request.group_id) or check_join(attempt, self._config)
        if error:
            attempt.refuse(error)
            return
        group = self.manager.group_to_join(request.group_id, is_new=attempt.is_new)
        if group is None:
            attempt.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._requests[group.type].join(group, attempt)

    def sync_group(self, request: SyncGroupRequest, respond: SyncCallback) -> None:
        """Give the sender its assignment; answered when that is in the log."""
        error = self.availability(request.group_id)
        group = self.manager.group(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that the sender takes part in is lost. This answer makes it join again
            # without looking for another coordinator first.
            respond(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        elif error or group is None:
            respond(SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            self._requests[group.type].sync(group, request, respond)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """The sender is alive. REBALANCE_IN_PROGRESS asks it to join again."""
        error = self.availability(request.group_id)
        group = self.manager.group(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Nothing is lost by waiting: sessions begin when their groups are read. Very many
            # groups are read at once, and the first ones wait for the last.
            if group is not None:
                self._requests[group.type].heartbeat(group, request)
            return ErrorCode.NONE
        if error or group is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        return self._requests[group.type].heartbeat(group, request)

    def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove members at once, each with its own result; v0-2 requests have one identity."""
        error = self.availability(request.group_id)
        if error:
            return LeaveGroupResponse(error_code=error)
        group = self.manager.group(request.group_id)
        if group is not None:
            members = self._requests[group.type].leave(group, request.members)
            return LeaveGroupResponse(members=members)
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
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

    def describe_consumer_groups(
        self, group_ids: Iterable[str]
    ) -> Work[list[DescribedConsumerGroup]]:
        """Epochs, members and assignments of each consumer group, in slices."""
        found = []
        for group_id in group_ids:
            work = self._consumers.describe(group_id, self.availability(group_id))
            found.append((yield from work))
        return found

    def describe_groups(self, group_ids: Iterable[str]) -> Work[list[DescribedGroup]]:
        """State and members of each classic group; a missing one is Dead, which is no error.

        A group is described as it is at one moment; there is a pause behind a large one.
        """
        found = []
        for group_id in group_ids:
            found.append(self._describe(group_id))
            if len(found[-1].members) >= MEMBERS_IN_A_SLICE:
                yield
        return found

    def list_groups(self, request: ListGroupsRequest) -> Work[ListGroupsResponse]:
        """The groups that are known here; an empty filter lets all pass (KIP-518)."""
        if not self._is_active:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        states = {state.lower() for state in request.states_filter}
        types = {type_name.lower() for type_name in request.types_filter}
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        response = ListGroupsResponse(
            error_code=loading if self.manager.is_loading else ErrorCode.NONE
        )
        for count, group in enumerate(self.manager.groups(), 1):
            if (not states or group.state_name.lower() in states) and (
                not types or group.type.value in types
            ):
                response.groups.append(_listed(group))
            if not count % GROUPS_IN_A_SLICE:
                yield
        return response

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

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
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
        offsets: Mapping[TopicPartition, CommittedOffset],
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

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        respond: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], object],
    ) -> None:
        """Delete offsets of topics that no member reads; none if the subscriptions are unknown."""
        error = self.availability(group_id, may_be_empty=True)
        group = self.manager.group(group_id)
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

        self.manager.delete_offsets(group, unread, on_stored)

    def unstable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change (KIP-447)."""
        group = self.manager.group(group_id)
        if group is None or not group.offsets.has_pending:
            return frozenset()
        return frozenset(filter(group.offsets.is_unstable, partitions))

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """The partitions for which the group may have an offset."""
        group = self.manager.group(group_id)
        return [] if group is None else group.offsets.known()

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, reader: Committer = NOBODY
    ) -> tuple[ErrorCode, Mapping[TopicPartition, CommittedOffset | None]]:
        """The committed offsets of the partitions, or of all; None where there is none.

        A member of a consumer group that names itself must be in its present epoch.
        """
        error = self.availability(group_id, may_be_empty=True)
        group = self.manager.group(group_id)
        if not error and group is not None:
            error = group.check_reader(reader)
        if error:
            return error, {}
        return ErrorCode.NONE, self._commits.fetch(group_id, partitions)

    def expire_offsets(self) -> Work[int]:
        """Delete the expired offsets of all groups, in slices; returns how many they are."""
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        count = seen = 0

        def expire(partitions: list[TopicPartition], group: Group) -> None:
            nonlocal count
            count += self.manager.expire_offsets(group, partitions, retention_ms)

        for group_id in [group.group_id for group in self.manager.groups()]:
            group = self.manager.group(group_id)
            for some in () if group is None else group.offsets.in_pieces(OFFSETS_IN_A_SLICE):
                present = self.manager.group(group_id)
                if present is None or present is not group or present.is_dying:
                    break
                for_each((present,), partial(expire, some))
                seen += COST_OF_A_GROUP + len(some)
                if seen >= OFFSETS_IN_A_SLICE:
                    seen = 0
                    yield
        if count:
            logger.info("%d committed offsets have expired", count)
        return count

    def _describe(self, group_id: str) -> DescribedGroup:
        error = self.availability(group_id, may_be_empty=True)
        if error:
            return DescribedGroup(error_code=error, group_id=group_id)
        group = self.manager.classic_group(group_id)
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
        error = self.availability(group_id, may_be_empty=True)
        group = self.manager.group(group_id)
        if error:
            on_result(group_id, error)
        elif group is None:
            on_result(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            on_result(group_id, ErrorCode.NON_EMPTY_GROUP)
        else:
            self.manager.delete_group(group, lambda error: on_result(group_id, error))


def check_join(attempt: JoinAttempt, config: BrokerConfig) -> ErrorCode:
    """The error of the request, regardless of its group."""
    request = attempt.request
    shortest_ms = config.group_min_session_timeout_ms
    longest_ms = config.group_max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = [request.group_instance_id, request.protocol_type, attempt.client.client_id]
    names += [protocol.name for protocol in attempt.protocols]
    if any(is_too_long(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    # All subscriptions are stored in one record. One that is too large for it would otherwise
    # only fail at the end of the rebalance, for all members.
    if any(len(p.metadata) > config.message_max_bytes for p in attempt.protocols):
        return ErrorCode.MESSAGE_TOO_LARGE
    return ErrorCode.NONE


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
