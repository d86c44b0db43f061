"""The classic group protocol, and the requests of administrators about groups.

FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14),
DescribeGroups (15), ListGroups (16), DeleteGroups (42).
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.metadata import OPERATIONS_NOT_REQUESTED
from ottla.protocol.types import Array, Boolean, Bytes, Int8, Int16, Int32, String, field

KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
FIND_COORDINATORS_VERSION: Final = 4
"""The first version that asks for the coordinators of several keys (KIP-699)."""


class FindCoordinatorRequest(Request, api_key=10, flexible="3+"):
    """Ask which broker coordinates a group or a transactional id.

    v1 key type (KIP-98) · v3 flexible · v4 several keys at once (KIP-699) · v5
    TRANSACTION_ABORTABLE possible (KIP-890) · v6 share groups (KIP-932).
    """

    key: str = field(String, versions="0-3")
    key_type: int = field(Int8, versions="1+")
    coordinator_keys: list[str] = field(Array(String), versions="4+")


class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = field(String)
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class FindCoordinatorResponse(Response, api_key=10, flexible="3+"):
    """The coordinator, or from v4 on one per key. v1 throttle time, error message · v3 flexible."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16, versions="0-3")
    error_message: str | None = field(String, versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = field(Int32, versions="0-3")
    host: str = field(String, versions="0-3")
    port: int = field(Int32, versions="0-3")
    coordinators: list[Coordinator] = field(Array(Coordinator), versions="4+")


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member can work with, and the data of the member for that assignor."""

    name: str = field(String)
    metadata: bytes = field(Bytes)


class JoinGroupRequest(Request, api_key=11, flexible="6+"):
    """Join, or join again.

    v1 rebalance timeout of its own (KIP-62) · v4 a first join gets its member id (KIP-394) · v5
    static members (KIP-345) · v6 flexible · v8 reason (KIP-800) · v9 a static leader that returns
    may skip the assignment (KIP-814).
    """

    group_id: str = field(String)
    session_timeout_ms: int = field(Int32)
    rebalance_timeout_ms: int = field(Int32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+")
    protocol_type: str = field(String)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(String, versions="8+", nullable="8+", ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member as the leader of the group sees it."""

    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", ignorable=True)
    metadata: bytes = field(Bytes)


class JoinGroupResponse(Response, api_key=11, flexible="6+"):
    """The new generation; only its leader is sent the members.

    v2 throttle time · v5 instance ids (KIP-345) · v6 flexible · v7 protocol type, and a protocol
    name that may be null (KIP-559) · v9 skip assignment (KIP-814).
    """

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    error_code: int = field(Int16)
    generation_id: int = field(Int32, default=-1)
    protocol_type: str | None = field(String, versions="7+", nullable="7+", ignorable=True)
    protocol_name: str | None = field(String, nullable="7+")
    leader: str = field(String)
    skip_assignment: bool = field(Boolean, versions="9+")
    member_id: str = field(String)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member, from the leader."""

    member_id: str = field(String)
    assignment: bytes = field(Bytes)


class SyncGroupRequest(Request, api_key=14, flexible="4+"):
    """Fetch the member's assignment; the leader's request carries all of them.

    v3 static members (KIP-345) · v4 flexible · v5 protocol type and name to check (KIP-559).
    """

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+")
    protocol_type: str | None = field(String, versions="5+", nullable="5+", ignorable=True)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


class SyncGroupResponse(Response, api_key=14, flexible="4+"):
    """The member's assignment.

    v1 throttle time · v4 flexible · v5 protocol type and name (KIP-559).
    """

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    protocol_type: str | None = field(String, versions="5+", nullable="5+", ignorable=True)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", ignorable=True)
    assignment: bytes = field(Bytes)


class HeartbeatRequest(Request, api_key=12, flexible="4+"):
    """Say that the member lives. v3 static members (KIP-345) · v4 flexible."""

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+")


class HeartbeatResponse(Response, api_key=12, flexible="4+"):
    """Whether the generation still stands. v1 throttle time · v4 flexible."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)


class MemberIdentity(Struct):
    """A member that leaves: by its id, or a static one by its instance id."""

    member_id: str = field(String)
    group_instance_id: str | None = field(String, nullable="0+")
    reason: str | None = field(String, versions="5+", nullable="5+", ignorable=True)


class LeaveGroupRequest(Request, api_key=13, flexible="4+"):
    """Leave at once. v3 several members (KIP-345) · v4 flexible · v5 reason (KIP-800)."""

    group_id: str = field(String)
    member_id: str = field(String, versions="0-2")
    members: list[MemberIdentity] = field(Array(MemberIdentity), versions="3+")


class MemberResponse(Struct):
    """Whether one member has left."""

    member_id: str = field(String)
    group_instance_id: str | None = field(String, nullable="0+")
    error_code: int = field(Int16)


class LeaveGroupResponse(Response, api_key=13, flexible="4+"):
    """Whether they have left.

    v1 throttle time · v3 one result per member (KIP-345) · v4 flexible.
    """

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    members: list[MemberResponse] = field(Array(MemberResponse), versions="3+")


class DescribeGroupsRequest(Request, api_key=15, flexible="5+"):
    """Ask about groups by id.

    v3 authorized operations (KIP-430) · v5 flexible · v6 GROUP_ID_NOT_FOUND possible (KIP-1043).
    """

    groups: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Boolean, versions="3+")


class DescribedGroupMember(Struct):
    """A member, its subscription and its assignment."""

    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="4+", nullable="4+", ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    member_metadata: bytes = field(Bytes)
    member_assignment: bytes = field(Bytes)


DESCRIBE_ERROR_VERSION: Final = 6
"""The first version of DescribeGroups in which a group that does not exist is an error."""


class DescribedGroup(Struct):
    """A group; one that does not exist is described as Dead."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="6+", nullable="6+", ignorable=True)
    group_id: str = field(String)
    group_state: str = field(String)
    protocol_type: str = field(String)
    protocol_data: str = field(String)
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(Int32, versions="3+", default=OPERATIONS_NOT_REQUESTED)


class DescribeGroupsResponse(Response, api_key=15, flexible="5+"):
    """One description per group.

    v1 throttle time · v3 authorized operations (KIP-430) · v4 instance ids (KIP-345) · v5 flexible
    · v6 error messages (KIP-1043).
    """

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))


class ListGroupsRequest(Request, api_key=16, flexible="3+"):
    """Ask for the groups of this broker.

    v3 flexible · v4 of some states only (KIP-518) · v5 of some types only (KIP-848).
    """

    states_filter: list[str] = field(Array(String), versions="4+")
    types_filter: list[str] = field(Array(String), versions="5+")


class ListedGroup(Struct):
    """A group that this broker coordinates."""

    group_id: str = field(String)
    protocol_type: str = field(String)
    group_state: str = field(String, versions="4+", ignorable=True)
    group_type: str = field(String, versions="5+", ignorable=True)


class ListGroupsResponse(Response, api_key=16, flexible="3+"):
    """The groups. v1 throttle time · v3 flexible · v4 state (KIP-518) · v5 type (KIP-848)."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16)
    groups: list[ListedGroup] = field(Array(ListedGroup))


class DeleteGroupsRequest(Request, api_key=42, flexible="2+"):
    """Delete groups that have no members (KIP-229). v2 flexible."""

    groups_names: list[str] = field(Array(String))


class DeletableGroupResult(Struct):
    """Whether one group is gone."""

    group_id: str = field(String)
    error_code: int = field(Int16)


class DeleteGroupsResponse(Response, api_key=42, flexible="2+"):
    """One result per group. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
