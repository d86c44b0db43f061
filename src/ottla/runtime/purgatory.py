"""Operations that cannot be answered yet, and the events that may complete them.

A produce with acks=all waits for replicas, a fetch for data, a join for the other members. Such
an operation is watched under the keys of all that can complete it, and has a time limit on the
timing wheel. It ends exactly once: completed by a check, forced, expired, or cancelled.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from math import inf
from typing import Any, Generic, TypeVar

from ottla.compiled import mypyc_attr
from ottla.runtime.scheduler import Scheduler, Timer

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

PURGED_AT_ONCE = 10_000
"""The entries of the lists that are looked at in one turn of the loop."""


@mypyc_attr(allow_interpreted_subclasses=True)  # groups wait by operations of their own
class DelayedOperation(ABC):
    """Something to be done as soon as it can be, or when its time is up.

    Invariant: `on_complete` runs exactly once, however the operation ends, unless it is cancelled;
    `on_expiration` runs after it if time ended it.
    """

    __slots__ = ("_listener", "_timer", "delay_ms", "is_completed", "watch_count")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.is_completed = False
        self.watch_count = 0
        self._listener: DelayedOperationPurgatory[Any] | None = None
        self._timer: Timer | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """If it can be done now, call `force_complete` and return its result; else False."""

    @abstractmethod
    def on_complete(self) -> None:
        """Do it, with all that was waited for or with the part that is there after the wait."""

    def on_expiration(self) -> None:
        """Note that time ended the wait, as metrics want to know. Nothing by default."""

    def force_complete(self) -> bool:
        """Complete it now even if something is missing; False if it was completed before."""
        if self.is_completed:
            return False
        self._end_wait()
        self.on_complete()
        return True

    def cancel(self) -> None:
        """End the wait without `on_complete`: the client that asked is gone."""
        if not self.is_completed:
            self._end_wait()

    def _end_wait(self) -> None:
        self.is_completed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listener is not None:
            self._listener.forget(self)

    def begin_wait(self, scheduler: Scheduler, listener: DelayedOperationPurgatory[Any]) -> None:
        """Let time end the wait after `delay_ms`, and tell `listener` how it ends."""
        self._listener = listener
        self._timer = scheduler.call_later(self.delay_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.force_complete():
            if self._listener is not None:
                self._listener.expired += 1
            self.on_expiration()


class DelayedOperationPurgatory(Generic[K]):
    """Delayed operations by the keys that may complete them.

    `watched` counts entries in the lists of the keys, `delayed` the operations that still wait,
    `expired` those that time has ended.
    An operation under several keys leaves its other lists only when they are checked or purged;
    all lists are purged when more than `purge_interval` such leftovers have gathered, and half of
    all entries are leftovers.
    """

    __slots__ = (
        "_due",
        "_leftover_count",
        "_purge_interval",
        "_scheduler",
        "_to_purge",
        "_watchers",
        "delayed",
        "expired",
        "name",
        "watched",
    )

    def __init__(self, name: str, scheduler: Scheduler, purge_interval: int = 1000) -> None:
        self.name = name
        self.watched = 0
        self.delayed = 0
        self.expired = 0
        self._scheduler = scheduler
        self._purge_interval = purge_interval
        self._leftover_count = 0
        self._watchers: dict[K, list[DelayedOperation]] = {}
        # Ordered: a simulation with the same seed must run the same way again.
        self._due: dict[DelayedOperation, None] = {}
        self._to_purge: list[K] = []

    def __contains__(self, key: object) -> bool:
        """Whether an operation may wait for this key."""
        return key in self._watchers

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[K]) -> bool:
        """Complete the operation, or keep it under each key; was it completed?"""
        if operation.is_completed or operation.try_complete():
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[K]) -> None:
        """Keep an operation that was just found impossible under each key, until its time is up."""
        for key in keys:
            self._watchers.setdefault(key, []).append(operation)
            operation.watch_count += 1
        self.watched += operation.watch_count
        self.delayed += 1
        operation.begin_wait(self._scheduler, self)

    def try_due(self, most_entries: float = inf) -> bool:
        """Try the operations that are due, until they have had so many entries in the lists.

        Returns whether some are left for another time: to try one that waits for thousands of
        partitions is to look at all of them.
        """
        entries = 0
        while self._due and entries < most_entries:
            operation = next(iter(self._due))
            del self._due[operation]
            if not operation.is_completed:
                entries += operation.watch_count
                self._try(operation)
        return bool(self._due)

    def check(self, keys: Iterable[K], most_entries: float = inf) -> bool:
        """These keys have changed: try each operation that waits for some of them, once.

        Operations that are too many for `most_entries` stay due; whether some do, as `try_due`.
        """
        changed = [key for key in keys if key in self._watchers]
        for key in changed:
            self._due.update(dict.fromkeys(self._watchers[key]))
        is_left = self.try_due(most_entries)
        for key in changed:
            self._sweep(key)
        return is_left

    def watched_keys(self) -> list[K]:
        """The keys that some operation may wait for."""
        return list(self._watchers)

    def check_all(self) -> None:
        """Try each operation once, whatever it waits for."""
        self.check(self.watched_keys())

    def cancel_for_key(self, key: K) -> list[DelayedOperation]:
        """Take the operations that still wait out of the list of `key`, and return them."""
        self._sweep(key)
        operations = self._watchers.pop(key, [])
        self.watched -= len(operations)
        for operation in operations:
            operation.watch_count -= 1
        return operations

    def forget(self, operation: DelayedOperation) -> None:
        """An operation has ended; its entries are leftovers from now on."""
        self.delayed -= 1
        self._leftover_count += operation.watch_count
        most = max(self._purge_interval, self.watched // 2)
        if self._leftover_count > most and not self._to_purge:
            self._to_purge = list(self._watchers)
            self._purge()

    def _purge(self) -> None:
        """Take the leftovers out of all lists, some in each turn of the loop."""
        entries = 0
        while self._to_purge and entries < PURGED_AT_ONCE:
            key = self._to_purge.pop()
            entries += len(self._watchers.get(key, ()))
            self._sweep(key)
        if self._to_purge:
            self._scheduler.call_soon(self._purge)

    def complete_all(self) -> None:
        """Force every operation that still waits, as at shutdown."""
        for key in list(self._watchers):
            for operation in self.cancel_for_key(key):
                operation.force_complete()

    def _try(self, operation: DelayedOperation) -> bool:
        try:
            return operation.try_complete()
        except Exception:
            # The others must not suffer. This one stays if it did not get as far as completing.
            logger.exception("%s: %r failed to complete", self.name, operation)
            return operation.is_completed

    def _sweep(self, key: K) -> None:
        """Drop the completed operations from the list of `key`, and the list if it is empty."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        waiting = []
        for operation in watchers:
            if operation.is_completed:
                operation.watch_count -= 1
            else:
                waiting.append(operation)
        dropped_count = len(watchers) - len(waiting)
        self._leftover_count -= dropped_count
        self.watched -= dropped_count
        if waiting:
            self._watchers[key] = waiting
        else:
            del self._watchers[key]
