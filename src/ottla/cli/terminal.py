"""What a command touches outside itself: the streams, the clock, and the clients it opens.

Tests hand in their own streams and clients; the real ones are made when first asked for.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Protocol, TextIO

from ottla.cli.command_error import CommandError

if TYPE_CHECKING:
    from ottla import Admin, Consumer, Producer

CONNECT_TIMEOUT_S = 5.0


class Clients(Protocol):
    """Opens the clients that a command asks for; settings have Kafka's dotted keys."""

    def admin(self, servers: str, settings: Mapping[str, str]) -> Admin: ...

    def producer(self, servers: str, settings: Mapping[str, str]) -> Producer: ...

    def consumer(self, servers: str, settings: Mapping[str, str]) -> Consumer: ...


class RealClients:
    """Clients of a real cluster, opened only where a broker listens, so that a wrong address is
    one clear line at once and not a timeout."""

    def admin(self, servers: str, settings: Mapping[str, str]) -> Admin:
        from ottla.clients.admin.admin import Admin

        check_reachable(servers)
        return Admin(servers, without_servers(settings))

    def producer(self, servers: str, settings: Mapping[str, str]) -> Producer:
        from ottla.clients.producer.producer import Producer

        check_reachable(servers)
        return Producer(servers, without_servers(settings))

    def consumer(self, servers: str, settings: Mapping[str, str]) -> Consumer:
        from ottla.clients.consumer.consumer import Consumer

        check_reachable(servers)
        return Consumer(servers, without_servers(settings))


class Terminal:
    """The standard streams of a command, its clock, and its clients."""

    def __init__(
        self,
        *,
        source: BinaryIO | None = None,
        out: TextIO | None = None,
        raw_out: BinaryIO | None = None,
        err: TextIO | None = None,
        clients: Clients | None = None,
    ) -> None:
        self.source = source or sys.stdin.buffer
        self.out = out or sys.stdout
        self.raw_out: BinaryIO = raw_out or sys.stdout.buffer
        self.err = err or sys.stderr
        self.clients = clients or RealClients()

    def print(self, text: str = "") -> None:
        """A line of the command's result."""
        self.out.write(text + "\n")

    def note(self, text: str) -> None:
        """A line beside the result: a warning or a count."""
        self.err.write(text + "\n")

    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000


def without_servers(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings but for the servers, which the command line names."""
    return {key: value for key, value in settings.items() if key != "bootstrap.servers"}


def check_reachable(servers: str) -> None:
    """Raise a CommandError unless one of the brokers accepts a connection."""
    first_reachable([server.strip() for server in servers.split(",")], "a broker")


def first_reachable(servers: Iterable[str], kind: str) -> tuple[str, int]:
    """Host and port of the first server that accepts a connection; a CommandError if none does."""
    failures = []
    for server in servers:
        host, port = host_and_port(server)
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
            return host, port
        except OSError as error:
            failures.append(f"{server} ({error.strerror or error})")
    raise CommandError(f"cannot connect to {kind} at {', '.join(failures)}")


def host_and_port(server: str) -> tuple[str, int]:
    """`host:port` or `[ipv6]:port` in its two parts."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"'{server}' is not an address of the form host:port")
    return host.strip("[]"), int(port)
