"""The requests of members of the classic protocol, for groups of either type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from ottla.coordinator.group.group import Committer, Group
from ottla.coordinator.group.member_metadata import (
    UNKNOWN_MEMBER_ID,
    ClientContext,
    JoinCallback,
    MemberMetadata,
    SupportedProtocol,
    SyncCallback,
)
from ottla.errors import ErrorCode
from ottla.protocol.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)
from ottla.runtime.scheduler import Work
from ottla.structs import TopicPartition

MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9
MEMBERS_IN_A_SLICE = 300
"""A group may have tens of thousands."""


GroupT_contra = TypeVar("GroupT_contra", bound=Group, contravariant=True)


class MemberRequests(ABC, Generic[GroupT_contra]):
    """Answers members of the classic protocol; there is one for each type of group."""

    @abstractmethod
    def join(self, group: GroupT_contra, attempt: JoinAttempt) -> None:
        """Make the sender a member; answered when its next generation begins."""

    @abstractmethod
    def sync(self, group: GroupT_contra, request: SyncGroupRequest, respond: SyncCallback) -> None:
        """Give the member its assignment; answered when that is in the log."""

    @abstractmethod
    def heartbeat(self, group: GroupT_contra, request: HeartbeatRequest) -> ErrorCode:
        """The member is alive. REBALANCE_IN_PROGRESS asks it to join again."""

    @abstractmethod
    def leave(
        self, group: GroupT_contra, identities: Sequence[MemberIdentity]
    ) -> list[MemberResponse]:
        """Remove members, each with its own result."""

    @abstractmethod
    def check_commit(
        self, group: GroupT_contra, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Whether a member may commit offsets of the partitions now."""


class JoinAttempt:
    """One JoinGroup on its way to an answer."""

    __slots__ = ("client", "protocols", "request", "respond")

    def __init__(
        self, request: JoinGroupRequest, client: ClientContext, respond: JoinCallback
    ) -> None:
        self.request = request
        self.client = client
        self.respond = respond
        self.protocols = [
            SupportedProtocol(protocol.name, bytes(protocol.metadata))
            for protocol in request.protocols
        ]

    @property
    def is_new(self) -> bool:
        """Whether the sender has no member id yet."""
        return self.request.member_id == UNKNOWN_MEMBER_ID

    @property
    def needs_member_id(self) -> bool:
        """Whether the sender understands that it must come back with a member id."""
        return (
            self.client.api_version >= MEMBER_ID_REQUIRED_VERSION
            and self.request.group_instance_id is None
        )

    @property
    def can_skip_assignment(self) -> bool:
        """Whether the sender understands that it leads, but need not assign anything."""
        return self.client.api_version >= SKIP_ASSIGNMENT_VERSION

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has no timeout for rebalances."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    @property
    def reason(self) -> str:
        """Why it joins; the client may give its reason (KIP-800)."""
        return f"a member joins, reason: {self.request.reason or 'not provided'}"

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        """Answer with an error."""
        if member_id is None:
            member_id = self.request.member_id
        self.respond(JoinGroupResponse(error_code=error, member_id=member_id))

    def new_member(self, member_id: str) -> MemberMetadata:
        """The member that the sender becomes."""
        return MemberMetadata(
            member_id=member_id,
            group_instance_id=self.request.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocol_type=self.request.protocol_type,
            protocols=self.protocols,
        )


class GroupRebalancer(ABC, Generic[GroupT_contra]):
    """Keeps the time limits of the members of a group; there is one for each type of group."""

    @abstractmethod
    def resume(self, group: GroupT_contra) -> Work[None]:
        """The group was read from the log: start the time limits of its members again."""

    @abstractmethod
    def abandon(self, group: GroupT_contra, error: ErrorCode) -> Work[None]:
        """Make the group Dead, and then answer the waiting requests with the error."""
