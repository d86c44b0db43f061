"""A client of Kafka 0.7 that knows bytes alone, for the listener of a broker in this process."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from byte_logs_world import entry

from ottla.extensions.first_design.first_design import FirstDesign
from ottla.testing import InProcessBroker, wait_until

SETTINGS: dict[str, Any] = {
    "first_design_listener": ":0",
    "first_design_flush_interval_messages": 1,
    "num_partitions": 2,
}
LIMIT_S = 20


def feature(broker: InProcessBroker) -> FirstDesign:
    """The feature of a broker that runs."""
    found = broker.broker.find(FirstDesign)
    assert found is not None
    return found


class RawClient:
    """One connection, with a limit of time; without an address it is to the feature's listener."""

    def __init__(self, broker: InProcessBroker, address: tuple[str, int] | None = None) -> None:
        address = address or feature(broker).listener.address
        self.socket = socket.create_connection(address, LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"the broker has closed the connection after {data!r}")
            data += piece
        return data

    def answer(self) -> bytes:
        """A whole answer, with its size."""
        head = self.receive(4)
        return head + self.receive(int.from_bytes(head))

    def ask(self, body: bytes) -> bytes:
        self.send(body)
        return self.answer()

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def produce(self, *payloads: bytes, topic: bytes = b"pages", partition: int = 0) -> None:
        """Send messages; they are there when the offsets tell so."""
        data = b"".join(map(entry, payloads))
        self.send(b"\0\0" + part(topic, partition) + struct.pack(">i", len(data)) + data)

    def wait_for_end(self, end: int, topic: bytes = b"pages", partition: int = 0) -> None:
        """Until readers see all before this id."""
        wait_until(lambda: self.offsets(topic, partition)[:1] == [end], f"id {end}", LIMIT_S)

    def offsets(
        self, topic: bytes = b"pages", partition: int = 0, time: int = -1, most: int = 10
    ) -> list[int]:
        answer = self.ask(b"\0\4" + part(topic, partition) + struct.pack(">qi", time, most))
        return [*struct.unpack(f">{(len(answer) - 10) // 8}q", answer[10:])]

    def fetch(self, position: int, *, size: int = 1_000_000, partition: int = 0) -> bytes:
        return self.ask(b"\0\1" + place(b"pages", partition, position, size))


def part(topic: bytes, partition: int) -> bytes:
    return struct.pack(">h", len(topic)) + topic + struct.pack(">i", partition)


def place(topic: bytes, partition: int, position: int, size: int) -> bytes:
    return part(topic, partition) + struct.pack(">qi", position, size)
