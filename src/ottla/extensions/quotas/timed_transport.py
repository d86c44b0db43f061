"""The time that encryption and the kernel take for a client, charged to its budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.extensions.quotas.budget import Budget
from ottla.network.connection import Connection
from ottla.network.transport import Transport
from ottla.runtime import Buffer, Clock, File

PERCENT_PER_NS: Final = 100 / 1e9


class TimedTransport:
    """A connection's transport whose time is charged to a budget: encryption and the kernel's part.

    Nobody is held for it at once: the next request finds it there, as in Kafka.
    """

    __slots__ = ("_clock", "budget", "plain")

    def __init__(self, plain: Transport, clock: Clock) -> None:
        self.plain = plain
        self._clock = clock
        self.budget: Budget | None = None
        """The budget of the client's last request; None where that was exempt."""

    def recv_into(self, target: memoryview) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.recv_into(target)
        finally:
            self._charge(began_ns)

    def send(self, data: Buffer) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send(data)
        finally:
            self._charge(began_ns)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send_all_of(buffers, more_follows)
        finally:
            self._charge(began_ns)

    def send_file(self, file: File, position: int, count: int) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send_file(file, position, count)
        finally:
            self._charge(began_ns)

    def _charge(self, began_ns: int) -> None:
        budget = self.budget
        if budget is not None:
            percent = (self._clock.monotonic_ns() - began_ns) * PERCENT_PER_NS
            budget.meter.record(percent, budget.limit, self._clock.monotonic_ms())

    def fileno(self) -> int:
        return self.plain.fileno()

    def has_ended(self) -> bool:
        return self.plain.has_ended()

    def probe_peer(self) -> None:
        self.plain.probe_peer()

    def close(self) -> None:
        self.plain.close()


def time_network(
    connection: Connection, budget: Budget | None, clock: Clock
) -> TimedTransport | None:
    """Charge the bytes of a connection to a budget from now on; None: to nobody."""
    transport = connection.transport
    if budget is None:
        if isinstance(transport, TimedTransport):
            connection.transport = transport.plain
        return None
    if not isinstance(transport, TimedTransport):
        transport = connection.transport = TimedTransport(transport, clock)
    transport.budget = budget
    return transport
