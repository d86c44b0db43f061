"""Change notifications: numbered nodes that name a path for every broker to read again.

A broker or a tool that changes something writes the change first, and then a notification. Each
broker reads the notifications in their order. One that has lost its session may have missed some:
it reads everything again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ottla.errors import KafkaError
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    NoNodeError,
    Registry,
    RegistryFailedError,
    SessionState,
    Watch,
)
from ottla.runtime import Runtime
from ottla.runtime.scheduler import pause

logger = logging.getLogger(__name__)

NOTIFICATION_RETENTION_MS: Final = 15 * 60 * 1000
"""Kafka's: by then every broker that lives has seen a notification."""
NAMES_IN_A_MS: Final = 100
"""All are listed to find a new one, so it waits for others to come: a ms for so many names."""


class ChangeNotifications:
    """Follows the notifications below one path.

    `read_change` gets the path and the data of each; `read_all` is called at the start, and when
    some may have been missed. A KafkaError of either is logged, unless the registry
    cannot be reached: then it is called again.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        path: str,
        read_change: Callable[[str, bytes], Awaitable[None]],
        read_all: Callable[[], Awaitable[None]],
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.path = path
        self._read_one = read_change
        self._read_everything = read_all
        self._watches: list[Watch] = []
        self._last_change = ""
        self._has_news = False
        self._is_behind = False
        """True if notifications may have been written and cleared away unseen."""
        self._is_reading = False
        self._count = 0
        """How many there are, of which most are old."""

    async def start(self) -> None:
        """Read everything, and from here on every change."""
        self._watches = [
            self.registry.watch_children(self.path, self._on_change),
            self.registry.watch_session(self._on_session),
        ]
        await self._read_all()

    def stop(self) -> None:
        """Read no more changes."""
        for watch in self._watches:
            watch.cancel()
        self._watches = []

    async def _read_all(self) -> None:
        seen = await self.registry.children(self.path)
        await self._read_everything()
        self._last_change = seen[-1] if seen else ""

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.RENEWED:
            self._is_behind = True
            self._on_change()

    def _on_change(self) -> None:
        self._has_news = True
        if not self._is_reading:
            self._is_reading = True
            self.runtime.scheduler.spawn(self._read_changes(), f"changes below {self.path}")

    async def _read_changes(self) -> None:
        try:
            while self._has_news and self._watches:
                if self._count >= NAMES_IN_A_MS:
                    await pause(self.runtime.scheduler, self._count // NAMES_IN_A_MS)
                self._has_news = False
                try:
                    await self._catch_up()
                except RegistryFailedError as error:
                    logger.info("%s is read again in a moment: %s", self.path, error)
                    self._has_news = True
                    await pause(self.runtime.scheduler, REGISTRY_RETRY_MS)
        finally:
            self._is_reading = False

    async def _catch_up(self) -> None:
        if self._is_behind:
            await self._read_all()
            self._is_behind = False
        names = await self.registry.children(self.path)
        self._count = len(names)
        for name in names[bisect_right(names, self._last_change) :]:
            await self._read_change(f"{self.path}/{name}")
            self._last_change = name
        await self._clear_away(names)

    async def _read_change(self, path: str) -> None:
        try:
            data, _ = await self.registry.get(path)
            await self._read_one(path, data)
        except NoNodeError:
            pass  # another broker has removed it
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("cannot follow the change %s: %s", path, error)
        except Exception:  # those behind it are read all the same
            logger.exception("cannot follow the change %s", path)

    async def _clear_away(self, names: Sequence[str]) -> None:
        """Remove old notifications. They are numbered: behind one that is not old, none is.

        Their age is measured by the registry's clock, which stamped them all: by this broker's,
        which may be wrong, they might be removed before other brokers have read them.
        """
        newest = None
        for name in (*names[-1:], *names[:-1]):
            path = f"{self.path}/{name}"
            try:
                stat = await self.registry.exists(path)
                newest = newest or stat
                if newest is None:
                    return  # a newer one has come meanwhile, and is handled next
                if stat is newest:
                    continue
                if (
                    stat is not None
                    and newest.created_ms - stat.created_ms <= NOTIFICATION_RETENTION_MS
                ):
                    return
                await self.registry.delete(path)
            except NoNodeError:
                pass  # another broker was faster
            except KafkaError as error:
                logger.error("cannot clear %s away: %s", path, error)
                return
