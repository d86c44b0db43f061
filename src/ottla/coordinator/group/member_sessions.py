"""The time limits of members: sessions, renewed by heartbeats, and member ids not yet claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.group import Group
from ottla.runtime import Runtime, Scheduler, Timer
from ottla.structs import NamedTuple

# A member in its first JoinGroup has no session yet, and a closed connection is not noticed while
# the request waits. A client that is still there after this long is expected to try again.
EMPTY_RETRY_MS: Final = 1000
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
MAX_PENDING_MEMBERS: Final = 10_000


class SessionMember(Protocol):
    """A member of a group of either protocol."""

    member_id: str
    session_timeout_ms: int
    session_deadline_ms: int
    session_timer: Timer | None

    @property
    def is_kept_alive(self) -> bool: ...


GroupT = TypeVar("GroupT", bound=Group)
MemberT = TypeVar("MemberT", bound=SessionMember)


class MemberSessions(Generic[GroupT, MemberT]):
    """Calls `on_expired` for a member that was silent for longer than its session timeout.

    A heartbeat only moves the member's deadline; its timer looks at the deadline when it runs, and
    waits for the rest. Invariant: a member without a timer waits for an answer from us, and its
    session is started again with that answer.
    """

    def __init__(self, runtime: Runtime, on_expired: Callable[[GroupT, MemberT], object]) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._on_expired = on_expired

    def restart(self, group: GroupT, member: MemberT, timeout_ms: int | None = None) -> None:
        """The member is alive: from now on it has its full session timeout again."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        comes_sooner = deadline_ms < member.session_deadline_ms
        member.session_deadline_ms = deadline_ms
        if comes_sooner and member.session_timer is not None:
            member.session_timer.cancel()
            member.session_timer = None
        if member.session_timer is None:
            self._arm(group, member, timeout_ms)

    def _arm(self, group: GroupT, member: MemberT, delay_ms: int) -> None:
        member.session_timer = self._scheduler.call_later(
            delay_ms, lambda: self._check(group, member)
        )

    def _check(self, group: GroupT, member: MemberT) -> None:
        member.session_timer = None
        if group.members.get(member.member_id) is not member:
            return
        remaining_ms = member.session_deadline_ms - self._clock.monotonic_ms()
        if remaining_ms > 0:
            self._arm(group, member, remaining_ms)
        elif not member.is_kept_alive:
            self._on_expired(group, member)


class _Pending(NamedTuple):
    group: ClassicGroup
    member_id: str


class PendingMembers:
    """Member ids that were handed out and have not come back yet (KIP-394), of all groups together.

    They expire, and there are never more than `limit`: a client that asks for ids and never joins
    pushes out the oldest ones, whose owners then have to ask again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        on_expired: Callable[[ClassicGroup, str], object],
        limit: int = MAX_PENDING_MEMBERS,
    ) -> None:
        self.limit = limit
        self._scheduler = scheduler
        self._on_expired = on_expired
        self._timers: dict[_Pending, Timer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Wait for the member to come back with its id."""
        if len(self._timers) >= self.limit:
            self._expire(next(iter(self._timers)))
        pending = _Pending(group, member_id)
        group.pending_members.add(member_id)
        self._timers[pending] = self._scheduler.call_later(
            timeout_ms, lambda: self._expire(pending)
        )

    def discard(self, group: ClassicGroup, member_id: str) -> None:
        """Stop waiting for the id: the member has joined or left."""
        group.pending_members.discard(member_id)
        timer = self._timers.pop(_Pending(group, member_id), None)
        if timer is not None:
            timer.cancel()

    def _expire(self, pending: _Pending) -> None:
        timer = self._timers.pop(pending)
        timer.cancel()
        if pending.member_id in pending.group.pending_members:
            pending.group.pending_members.discard(pending.member_id)
            self._on_expired(pending.group, pending.member_id)
