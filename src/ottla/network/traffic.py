"""What has passed over connections, by listener, for metrics."""

from __future__ import annotations

from ottla.network.connection import Connection


class Traffic:
    """The connections of a listener that were made and ended, and their bytes."""

    __slots__ = ("closed", "created", "received_bytes", "request_count", "sent_bytes")

    def __init__(self) -> None:
        self.created = self.closed = 0
        self.received_bytes = self.sent_bytes = self.request_count = 0

    def add(self, connection: Connection) -> None:
        """The bytes and requests of a connection, at its end or until now."""
        self.received_bytes += connection.received_bytes
        self.sent_bytes += connection.outgoing.sent_bytes
        self.request_count += connection.request_count

    def copy(self) -> Traffic:
        """The same numbers, to which others can be added."""
        other = Traffic()
        other.created, other.closed = self.created, self.closed
        other.received_bytes, other.sent_bytes = self.received_bytes, self.sent_bytes
        other.request_count = self.request_count
        return other


class TrafficByListener(dict[str, Traffic]):
    """The traffic of each listener that has had a connection, by its name."""

    def begin(self, connection: Connection) -> None:
        """A connection was made."""
        self.setdefault(connection.listener_name, Traffic()).created += 1

    def end(self, connection: Connection) -> None:
        """A connection has ended: nothing more passes over it."""
        traffic = self[connection.listener_name]
        traffic.closed += 1
        traffic.add(connection)
