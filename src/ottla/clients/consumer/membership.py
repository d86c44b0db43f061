"""What a consumer needs of its membership in a group, for both group protocols."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.clients.committed_offsets import GroupMembership
from ottla.errors import KafkaError
from ottla.runtime import Clock

logger = logging.getLogger(__name__)


# Whether the application still polls: a member that only sends heartbeats holds up its group.


class PollWatch:
    """Checks the time since the last poll against `max.poll.interval.ms` (KIP-62)."""

    __slots__ = ("_clock", "_group_id", "_last_ms", "_limit_ms")

    def __init__(self, clock: Clock, limit_ms: int, group_id: str) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._group_id = group_id
        self.note()

    def note(self) -> None:
        """Note that the application polls; called from any thread."""
        self._last_ms = self._clock.monotonic_ms()

    def is_over(self) -> bool:
        """Whether the last poll is too long ago; if so, logs it."""
        if self._clock.monotonic_ms() - self._last_ms <= self._limit_ms:
            return False
        logger.warning(
            "no poll for more than max.poll.interval.ms=%d: leaving group %s; poll more often, "
            "or lower max.poll.records",
            self._limit_ms,
            self._group_id,
        )
        return True


class Membership(Protocol):
    """A member, or a future member; `needs_join` says that a rebalance step is needed."""

    error: KafkaError | None
    is_lost: bool
    needs_join: bool
    on_lost: Callable[[], Awaitable[None]]
    poll_watch: PollWatch

    @property
    def membership(self) -> GroupMembership: ...

    def request_join(self) -> None: ...

    async def leave(self, reason: str) -> None: ...
