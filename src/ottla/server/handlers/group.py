"""The classic group protocol, all versions up to Kafka 3.9: JoinGroup (11) v0-9, Heartbeat (12)
v0-4, LeaveGroup (13) v0-5, SyncGroup (14) v0-5, DescribeGroups (15) v0-6, ListGroups (16) v0-5,
DeleteGroups (42) v0-2.

The differences of the versions are settled here, as far as they are a matter of fields; the
coordinator itself only needs the version where a JoinGroup means something else (v4, v9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.group.classic_group import GroupState
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import (
    DESCRIBE_ERROR_VERSION,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
from ottla.runtime import Slices
from ottla.runtime.scheduler import Work
from ottla.security.acls import GROUP_OPERATIONS
from ottla.server.api import Answer, Handler, begin

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
    ) -> Answer:
        return begin(self.slices, context, self._describe_groups(body, context.api_version))

    def _describe_groups(
        self, body: DescribeGroupsRequest, version: int
    ) -> Work[DescribeGroupsResponse]:
        groups = yield from self.coordinator.describe_groups(body.groups)
        for group in groups:
            is_there = group.error_code or group.group_state != GroupState.DEAD.value
            if version >= DESCRIBE_ERROR_VERSION and not is_there:
                group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                group.error_message = f"Group {group.group_id} not found."
            if body.include_authorized_operations and not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    def handle_list_groups(self, context: RequestContext, body: ListGroupsRequest) -> Answer:
        return begin(self.slices, context, self.coordinator.list_groups(body))

    def handle_delete_groups(self, context: RequestContext, body: DeleteGroupsRequest) -> None:
        self.coordinator.delete_groups(body, context.respond)
