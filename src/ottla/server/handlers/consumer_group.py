"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat (68) v0-1 and
ConsumerGroupDescribe (69) v0-1.

Version notes: v1 heartbeats bring regular expressions, and member ids that clients have made
(KIP-1082); v1 descriptions tell which protocol a member speaks.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from ottla.runtime import Slices
from ottla.runtime.scheduler import Work
from ottla.security.acls import GROUP_OPERATIONS
from ottla.server.api import Answer, Handler, begin


class ConsumerGroupHandlers:
    """Brings requests to the group coordinator, if the protocol is one that the broker serves."""

    def __init__(self, coordinator: GroupCoordinator, slices: Slices) -> None:
        self.coordinator = coordinator
        self.slices = slices

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
    ) -> Answer:
        return begin(self.slices, context, self._describe(body))

    def _describe(self, body: ConsumerGroupDescribeRequest) -> Work[ConsumerGroupDescribeResponse]:
        groups = yield from self.coordinator.describe_consumer_groups(body.group_ids)
        for group in groups:
            if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)
