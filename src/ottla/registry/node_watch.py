"""Watches that last: ZooKeeper's own tell of one change and are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from ottla.registry.session_tree import WatchKind
from ottla.registry.zookeeper_session import ZooKeeperSession

logger = logging.getLogger(__name__)


class NodeWatch:
    """One node that is watched, for as many callbacks as want it.

    The server's watch is armed again first, and only then are the callbacks called: their reads are
    newer than the last change without a call. After the connection broke, the node is compared with
    its former state, and the callbacks are called if it has changed.
    """

    def __init__(self, session: ZooKeeperSession, path: str, kind: WatchKind) -> None:
        self.session = session
        self.path = path
        self.kind = kind
        self.callbacks: list[Callable[[], object]] = []
        self._is_known = False
        self._seen: tuple[int, int] | None = None
        self._has_news = False
        self._is_missing = False

    def arm(self) -> None:
        """Ask the server to tell of the next change; harmless if it was asked already."""
        self.session.submit(self._send, self._on_armed)

    def _send(self, client: KazooClient) -> Any:
        # Children of a node that is not there cannot be watched, but its creation can.
        if self.kind is WatchKind.DATA or self._is_missing:
            return client.exists_async(self.path, watch=self._on_event_thread)
        return client.get_children_async(self.path, watch=self._on_event_thread, include_data=True)

    def _on_armed(self, answer: Any, error: BaseException | None) -> None:
        if isinstance(error, kazoo_errors.NoNodeError):
            self._is_missing = True
            self.arm()
        elif isinstance(error, kazoo_errors.ConnectionLoss | kazoo_errors.SessionExpiredError):
            # It is armed again when there is a connection. A caller that has read meanwhile,
            # without a watch, may have missed a change.
            self._has_news = self._has_news or not self._is_known
        elif error is not None:
            reason = "its ACL" if isinstance(error, kazoo_errors.NoAuthError) else repr(error)
            logger.error("%s cannot be watched in ZooKeeper: %s", self.path, reason)
        elif self.kind is WatchKind.CHILDREN and self._is_missing and answer is not None:
            self._is_missing = False
            self.arm()
        else:
            self._compare(answer)

    def _compare(self, answer: Any) -> None:
        seen = self._fingerprint(answer)
        must_call = self._has_news or (self._is_known and seen != self._seen)
        self._seen, self._is_known, self._has_news = seen, True, False
        if must_call:
            for callback in tuple(self.callbacks):
                self.session.runtime.scheduler.call_soon(callback)

    def _fingerprint(self, answer: Any) -> tuple[int, int] | None:
        """The version, which differs after every change; None where there is no node."""
        if answer is None:
            return None
        if self.kind is WatchKind.DATA:
            stat: ZnodeStat = answer
            return stat.czxid, stat.mzxid
        _, stat = answer
        return stat.czxid, stat.pzxid

    def _on_event_thread(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # the connection broke: connecting again will arm it
            self.session.post_thread(self._on_event)

    def _on_event(self) -> None:
        if self.callbacks:
            self._has_news = True
            self._is_missing = False
            self.arm()


class NodeWatches:
    """All watches of a registry, one for each node and kind."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self._watches: dict[tuple[str, WatchKind], NodeWatch] = {}

    def add(self, path: str, kind: WatchKind, callback: Callable[[], object]) -> _Subscription:
        """Call back from now on: a node that is read after this is watched."""
        watch = self._watches.get((path, kind))
        if watch is None:
            watch = self._watches[path, kind] = NodeWatch(self.session, path, kind)
            watch.arm()
        watch.callbacks.append(callback)
        return _Subscription(self, watch, callback)

    def remove(self, watch: NodeWatch, callback: Callable[[], object]) -> None:
        watch.callbacks.remove(callback)
        if not watch.callbacks:
            del self._watches[watch.path, watch.kind]

    def arm_all(self) -> None:
        """The connection is a new one, on which nothing is armed."""
        for watch in self._watches.values():
            watch.arm()


class _Subscription:
    """One callback of a watch."""

    __slots__ = ("_callback", "_is_active", "_watch", "_watches")

    def __init__(
        self, watches: NodeWatches, watch: NodeWatch, callback: Callable[[], object]
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._callback = callback
        self._is_active = True

    def cancel(self) -> None:
        if self._is_active:
            self._is_active = False
            self._watches.remove(self._watch, self._callback)
