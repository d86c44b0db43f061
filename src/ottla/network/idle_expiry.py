"""The end of connections that are no longer used (`connections.max.idle.ms`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ottla.network.acceptor import End, Listener
from ottla.network.connection import THROTTLED, Connection
from ottla.runtime import Runtime, Timer


class IdleExpiry:
    """Connections in the order of their last activity, the quietest first.

    One timer waits for the head of the order. It is set when a connection is added, and then
    again each time that it goes off; activity only moves connections to the end.
    """

    __slots__ = ("_by_activity", "_max_idle_ms", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, max_idle_ms: int) -> None:
        self._runtime = runtime
        self._max_idle_ms = max_idle_ms
        self._by_activity: OrderedDict[Connection, None] = OrderedDict()
        self._timer: Timer | None = None

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._by_activity)

    def add(self, connection: Connection, now_ms: int) -> None:
        connection.last_active_ms = now_ms
        self._by_activity[connection] = None
        if self._timer is None and self._max_idle_ms >= 0:
            self._timer = self._runtime.scheduler.call_later(self._max_idle_ms + 1, self._expire)

    def touch(self, connection: Connection, now_ms: int) -> None:
        """Bytes have moved."""
        connection.last_active_ms = now_ms
        self._by_activity.move_to_end(connection)

    def remove(self, connection: Connection) -> None:
        del self._by_activity[connection]

    def quietest(self, listener: Listener) -> End | None:
        """Ends the connection of another listener that can make room for a broker's."""
        for connection in self:
            if connection.listener_name != listener.name and not connection.is_closing:
                return connection.close
        return None

    def stop(self) -> None:
        """Stop expiring connections."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._runtime.clock.monotonic_ms()
        for connection in list(self._by_activity):
            if now_ms - connection.last_active_ms <= self._max_idle_ms:
                break
            if connection.owes_answer or connection.muted & THROTTLED:
                self.touch(connection, now_ms)  # it waits for us
            else:
                connection.close(f"nothing moved for {self._max_idle_ms} ms")
        # Those just closed leave at the end of the turn; they are not waited for again.
        waiting = (each for each in self._by_activity if not each.is_closing)
        head = next(waiting, None)
        if head is not None:
            delay_ms = head.last_active_ms + self._max_idle_ms + 1 - now_ms
            self._timer = self._runtime.scheduler.call_later(delay_ms, self._expire)
