"""One member of a classic group, as its coordinator knows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ottla.protocol.group import JoinGroupResponse, SyncGroupResponse
from ottla.runtime import Timer
from ottla.structs import NamedTuple, Value, field

UNKNOWN_MEMBER_ID = ""

JoinCallback = Callable[[JoinGroupResponse], object]
SyncCallback = Callable[[SyncGroupResponse], object]


class ClientContext(NamedTuple):
    """The client that sends a request, and the version of the API that it uses."""

    client_id: str
    client_host: str
    api_version: int
    in_sight: Callable[[str], bool] | None = None
    """Whether the client may see a topic; None where rights are not asked for."""


class SupportedProtocol(NamedTuple):
    """A way to assign partitions that a member offers, with the subscription it would use."""

    name: str
    metadata: bytes


def largest_metadata(protocols: Iterable[SupportedProtocol]) -> int:
    """How many bytes a member's subscription has at most."""
    return max((len(each.metadata) for each in protocols), default=0)


class MemberMetadata(Value, eq=False, kw_only=True):
    """A member and its open requests: at most one JoinGroup and one SyncGroup wait for an answer.

    Protocols are in the member's order of preference. A member with a `group_instance_id` is
    static (KIP-345): it keeps its place while it restarts, under a new member id.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Sequence[SupportedProtocol]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: JoinCallback | None = None
    awaiting_sync: SyncCallback | None = None
    session_deadline_ms: int = 0
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place over a restart."""
        return self.group_instance_id is not None

    @property
    def is_kept_alive(self) -> bool:
        """Whether the session cannot expire: the member awaits our answer and sends no heartbeats.

        A new member's session can expire. It has no member id yet, so each retry of its client adds
        another member, and no client would ever speak for the abandoned ones.
        """
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new

    def metadata(self, protocol: str) -> bytes:
        """The subscription that the member sent for a protocol; it must have offered it."""
        for offered in self.protocols:
            if offered.name == protocol:
                return offered.metadata
        raise AssertionError(f"member {self.member_id} does not offer protocol {protocol}")

    def matches(self, protocols: Sequence[SupportedProtocol]) -> bool:
        """Whether a new JoinGroup offers exactly the protocols of the one before."""
        return list(self.protocols) == list(protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that the member prefers; it must offer one of them."""
        for offered in self.protocols:
            if offered.name in candidates:
                return offered.name
        raise AssertionError(f"member {self.member_id} offers none of {sorted(candidates)}")
