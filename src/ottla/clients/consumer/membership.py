"""The membership of a consumer in its group, as both group protocols have it."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from ottla.clients.client_settings import retry_backoff
from ottla.clients.committed_offsets import GroupMembership
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.errors import KafkaError
from ottla.runtime import Clock

logger = logging.getLogger(__name__)


async def _nothing_to_lose() -> None:
    """The default callback for lost partitions."""


class Membership(ABC):
    """The membership of a consumer in a group, kept up by heartbeats.

    `needs_join` says that a rebalance step is needed, `is_lost` that the group continues without
    this member; `error` is one that no other attempt mends, and `on_lost` awaited before partitions
    that may already belong to others are read again.
    """

    def __init__(
        self,
        client: NetworkClient,
        link: CoordinatorLink,
        config: ConsumerConfig,
        on_change: Callable[[], object],
    ) -> None:
        self.is_lost = False
        self.needs_join = True
        self.error: KafkaError | None = None
        self.on_lost: Callable[[], Awaitable[None]] = _nothing_to_lose
        self.poll_watch = PollWatch(
            client.runtime.clock, config.max_poll_interval_ms, link.group_id
        )
        self._client = client
        self._runtime = client.runtime
        self._link = link
        self._config = config
        self._on_change = on_change
        self._task = f"the membership in group {link.group_id}"
        self._heart: asyncio.Task[None] | None = None
        self._backoff = retry_backoff(config, self._runtime)

    @property
    @abstractmethod
    def is_joining(self) -> bool:
        """Whether a request to join is under way."""

    @property
    @abstractmethod
    def membership(self) -> GroupMembership:
        """The membership with which this member commits."""

    def request_join(self) -> None:
        """Join again in the next step: the subscription changed, or the group asks for it."""
        self.needs_join = True
        self._on_change()

    @abstractmethod
    async def leave(self, reason: str) -> None:
        """Leave at once, so that the other members need not wait for the session to end."""

    @abstractmethod
    async def _beat(self) -> None:
        """Send heartbeats, without an end."""

    def _start_heart(self) -> None:
        if self._heart is None:
            name = f"heartbeat of group {self._link.group_id}"
            self._heart = self._runtime.scheduler.spawn(self._beat(), name)

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None


class PollWatch:
    """Checks the time since the last poll against `max.poll.interval.ms` (KIP-62).

    A member whose application has stopped polling, and that only sends heartbeats, holds up its
    group.
    """

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
