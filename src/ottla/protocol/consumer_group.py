"""The protocol of consumer groups (KIP-848): ConsumerGroupHeartbeat (68), -Describe (69)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.metadata import OPERATIONS_NOT_REQUESTED
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, String, Uuid, field

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2

MEMBER_TYPE_UNKNOWN: Final = -1
MEMBER_TYPE_CLASSIC: Final = 0
MEMBER_TYPE_CONSUMER: Final = 1


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    """Partitions of one topic that the member owns."""

    topic_id: UUID = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ConsumerGroupHeartbeatRequest(Request, api_key=68, flexible="0+"):
    """Join, stay in, or leave a group; null means that nothing has changed since the last one.

    v1 regular expression; the member makes its id itself (KIP-1082).
    """

    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    subscribed_topic_names: list[str] | None = field(Array(String), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(String, versions="1+", nullable="1+", default=None)
    server_assignor: str | None = field(String, nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = field(
        Array(ConsumerGroupHeartbeatRequestTopicPartitions), nullable="0+", default=None
    )


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    """Partitions of one topic that the member may read."""

    topic_id: UUID = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ConsumerGroupHeartbeatResponseAssignment(Struct):
    """All partitions that the member may read."""

    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = field(
        Array(ConsumerGroupHeartbeatResponseTopicPartitions)
    )


class ConsumerGroupHeartbeatResponse(Response, api_key=68, flexible="0+"):
    """The member's epoch, and its assignment where that has changed."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = field(
        ConsumerGroupHeartbeatResponseAssignment, nullable="0+", default=None
    )


class ConsumerGroupDescribeRequest(Request, api_key=69, flexible="0+"):
    """Ask about consumer groups by id. v1 returns the protocol that a member uses."""

    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Boolean)


class DescribedTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribedAssignment(Struct):
    """Partitions of a member."""

    topic_partitions: list[DescribedTopicPartitions] = field(Array(DescribedTopicPartitions))


class DescribedConsumerGroupMember(Struct):
    """A member: its current assignment, and its target assignment."""

    member_id: str = field(String)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+", default=None)
    assignment: DescribedAssignment = field(DescribedAssignment)
    target_assignment: DescribedAssignment = field(DescribedAssignment)
    member_type: int = field(Int8, versions="1+", default=MEMBER_TYPE_UNKNOWN, ignorable=True)


class DescribedConsumerGroup(Struct):
    """A consumer group, its epochs and its members."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    assignor_name: str = field(String)
    members: list[DescribedConsumerGroupMember] = field(Array(DescribedConsumerGroupMember))
    authorized_operations: int = field(Int32, default=OPERATIONS_NOT_REQUESTED)


class ConsumerGroupDescribeResponse(Response, api_key=69, flexible="0+"):
    """One description per group. v1 member type."""

    throttle_time_ms: int = field(Int32)
    groups: list[DescribedConsumerGroup] = field(Array(DescribedConsumerGroup))
