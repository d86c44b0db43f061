"""The classic group protocol, all versions up to Kafka 3.9: JoinGroup (11) v0-9, Heartbeat (12)
v0-4, LeaveGroup (13) v0-5, SyncGroup (14) v0-5, DescribeGroups (15) v0-5, ListGroups (16) v0-5,
DeleteGroups (42) v0-2.

What the versions differ in is settled here, as far as it is a matter of fields; the coordinator
itself only needs the version where a JoinGroup means something else (v4, v9).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.group import (
    FIND_COORDINATORS_VERSION,
    Coordinator,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.runtime import Scheduler, Slices
from ottla.security.acls import GROUP_OPERATIONS
from ottla.server.apis import Answer, Handler, begin
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import Node

logger = logging.getLogger(__name__)


NULLABLE_PROTOCOL_NAME_VERSION: Final = 7
LEAVE_SEVERAL_VERSION: Final = 3
SYNC_NAMES_PROTOCOL_VERSION: Final = 5


class GroupHandlers:
    """Brings requests to the group coordinator."""

    def __init__(self, coordinator: GroupCoordinator, slices: Slices) -> None:
        self.coordinator = coordinator
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.JOIN_GROUP: self.handle_join_group,
            ApiKey.SYNC_GROUP: self.handle_sync_group,
            ApiKey.HEARTBEAT: self.handle_heartbeat,
            ApiKey.LEAVE_GROUP: self.handle_leave_group,
            ApiKey.DESCRIBE_GROUPS: self.handle_describe_groups,
            ApiKey.LIST_GROUPS: self.handle_list_groups,
            ApiKey.DELETE_GROUPS: self.handle_delete_groups,
        }

    def handle_join_group(self, context: RequestContext, body: JoinGroupRequest) -> None:
        def respond(answer: JoinGroupResponse) -> None:
            if not answer.protocol_name:
                may_be_null = context.api_version >= NULLABLE_PROTOCOL_NAME_VERSION
                answer.protocol_name = None if may_be_null else ""
            context.respond(answer)

        # Kafka keeps hosts as Java prints addresses, and its tools show them so.
        client = ClientContext(context.client_id, f"/{context.client_host}", context.api_version)
        self.coordinator.join_group(body, client, respond)

    def handle_sync_group(
        self, context: RequestContext, body: SyncGroupRequest
    ) -> SyncGroupResponse | None:
        if context.api_version >= SYNC_NAMES_PROTOCOL_VERSION and (
            body.protocol_type is None or body.protocol_name is None
        ):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.coordinator.sync_group(body, context.respond)
        return None

    def handle_heartbeat(
        self, context: RequestContext, body: HeartbeatRequest
    ) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self.coordinator.heartbeat(body))

    def handle_leave_group(
        self, context: RequestContext, body: LeaveGroupRequest
    ) -> LeaveGroupResponse:
        if context.api_version >= LEAVE_SEVERAL_VERSION:
            return self.coordinator.leave_group(body)
        body.members = [MemberIdentity(member_id=body.member_id)]
        answer = self.coordinator.leave_group(body)
        if answer.members:
            answer.error_code = answer.members.pop().error_code
        return answer

    def handle_describe_groups(
        self, context: RequestContext, body: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        groups = self.coordinator.describe_groups(body.groups)
        for group in groups:
            if body.include_authorized_operations and not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    def handle_list_groups(self, context: RequestContext, body: ListGroupsRequest) -> Answer:
        return begin(self.slices, context, self.coordinator.list_groups(body))

    def handle_delete_groups(self, context: RequestContext, body: DeleteGroupsRequest) -> None:
        self.coordinator.delete_groups(body, context.respond)


# FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.
#
# It is the leader of the partition that the name falls into; the topic of the partitions is created
# when it is first asked for, and until then the answer is COORDINATOR_NOT_AVAILABLE.
#
# Version notes: v1 key types · v2 the same · v3 flexible · v4 several keys (KIP-699) · v6 share
# groups (KIP-932), which do not exist here.


NO_NODE: Final = Node(-1, "", -1)


class KeyType(NamedTuple):
    """Where the names of one kind are kept: the topic, and the partition of each name."""

    topic: str
    partition_for: Callable[[str], int]
    may_be_empty: bool = False


class FindCoordinatorHandler:
    """Brings clients to the right broker."""

    def __init__(
        self,
        key_types: Mapping[int, KeyType],
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        create_topic: Callable[[str], Awaitable[object]],
    ) -> None:
        self.key_types = key_types
        self.metadata_cache = metadata_cache
        self.scheduler = scheduler
        self.create_topic = create_topic
        self._creating: set[str] = set()

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.handle_find_coordinator}

    def handle_find_coordinator(
        self, context: RequestContext, body: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if context.api_version >= FIND_COORDINATORS_VERSION:
            return FindCoordinatorResponse(
                coordinators=[
                    self._find_coordinator(context, body.key_type, key)
                    for key in body.coordinator_keys
                ]
            )
        found = self._find_coordinator(context, body.key_type, body.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find_coordinator(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        kind = self.key_types.get(key_type)
        if kind is None:
            return _not_found(
                key, ErrorCode.INVALID_REQUEST, f"The key type {key_type} is not known."
            )
        if not key and not kind.may_be_empty:
            return _not_found(
                key, ErrorCode.INVALID_REQUEST, "A transactional id must not be empty."
            )
        node = self._leader(kind.topic, kind.partition_for(key), context.listener_name)
        if node is None:
            return _not_found(
                key,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The topic {kind.topic} has no leader for {key!r} yet.",
            )
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)

    def _leader(self, name: str, partition: int, listener_name: str) -> Node | None:
        """The leader of a partition of the topic, which is created if it is missing."""
        topic = self.metadata_cache.topic(name)
        if topic is None:
            self._begin_to_create(name)
            return None
        state = topic.partitions.get(partition)
        if state is None:
            return None
        return self.metadata_cache.node(state.leader, listener_name)

    def _begin_to_create(self, topic: str) -> None:
        if topic not in self._creating:
            self._creating.add(topic)
            self.scheduler.spawn(self._create(topic), name=f"create {topic}")

    async def _create(self, topic: str) -> None:
        try:
            await self.create_topic(topic)
        except KafkaError as error:
            if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("The topic %s could not be created: %s", topic, error)
        finally:
            self._creating.discard(topic)


def _not_found(key: str, error: ErrorCode, message: str) -> Coordinator:
    node = NO_NODE
    return Coordinator(
        key=key,
        node_id=node.id,
        host=node.host,
        port=node.port,
        error_code=error,
        error_message=message,
    )


# The consumer group protocol (KIP-848): ConsumerGroupHeartbeat (68) v0-1 and
# ConsumerGroupDescribe (69) v0-1.
#
# Version notes: v1 heartbeats bring regular expressions, and member ids that clients have made
# (KIP-1082); v1 descriptions tell which protocol a member speaks.


class ConsumerGroupHandlers:
    """Brings requests to the group coordinator, if the protocol is one that the broker serves."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator

    def apis(self) -> Mapping[ApiKey, Handler]:
        if not self.coordinator.serves_consumer_protocol:
            return {}
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.handle_consumer_group_heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.handle_consumer_group_describe,
        }

    def handle_consumer_group_heartbeat(
        self, context: RequestContext, body: ConsumerGroupHeartbeatRequest
    ) -> None:
        # Kafka keeps hosts as Java prints addresses, and its tools show them so.
        client = ClientContext(
            context.client_id, f"/{context.client_host}", context.api_version, context.in_sight
        )
        self.coordinator.consumer_group_heartbeat(body, client, context.respond)

    def handle_consumer_group_describe(
        self, context: RequestContext, body: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        groups = self.coordinator.describe_consumer_groups(body.group_ids)
        for group in groups:
            if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)
