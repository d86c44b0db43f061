"""What a consumer needs of its membership in a group, whichever protocol the group speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.clients.committed_offsets import GroupMembership
from ottla.clients.consumer.poll_watch import PollWatch
from ottla.errors import KafkaError


class Membership(Protocol):
    """A member, or one that is to be; `needs_join` says that there is something to be done."""

    error: KafkaError | None
    is_lost: bool
    needs_join: bool
    on_lost: Callable[[], Awaitable[None]]
    poll_watch: PollWatch

    @property
    def membership(self) -> GroupMembership: ...

    def request_join(self) -> None: ...

    async def leave(self, reason: str) -> None: ...
