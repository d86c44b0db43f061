"""The messages between the members of a group of workers: the bytes of the protocol `connect`.

Three versions: 0 (`default`) gives all work up before each rebalance, 1 (`compatible`) moves only
the work that must move (KIP-415), and 2 (`sessioned`) also has workers sign their requests to each
other (KIP-507). Numbers are big-endian; a text is an int16 length and UTF-8, an array an int32
count.

The leader makes the key for signatures and keeps it in the config topic, which only workers read. A
signature is a MAC of the body, in `X-Connect-Authorization`, by the algorithm in
`X-Connect-Request-Signature-Algorithm`; a stranger to the group is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.config_topic import SessionKey
from ottla.connect.worker import refusal
from ottla.connect.worker_task import TaskId
from ottla.errors import ErrorCode, KafkaError

PROTOCOL_TYPE: Final = "connect"
VERSIONS: Final = {"default": 0, "compatible": 1, "sessioned": 2}
OFFERED: Final = {
    "sessioned": ("sessioned", "compatible", "default"),
    "compatible": ("compatible", "default"),
    "eager": ("default",),
}
"""What a worker offers, the best first, for each value of connect.protocol."""
CONNECTOR: Final = -1
"""In the place of a task's number: the connector itself."""
NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1

Work = frozenset[TaskId]
"""Connectors (with CONNECTOR for a number) and tasks."""


@dataclass(frozen=True)
class WorkerState:
    """The metadata of a member that joins: its address, its offset, and its work.

    `delay_ms` is that of its last assignment. At the delay's end all join again, and the metadata
    of the first of them has to differ from before: the coordinator answers a follower with the same
    with the generation that there is, and the others would wait for heartbeats to hear of the next.
    """

    url: str
    config_offset: int
    running: Work = frozenset()
    delay_ms: int = 0

    def encode(self, version: int) -> bytes:
        found = struct.pack(">h", version) + _text(self.url) + struct.pack(">q", self.config_offset)
        if version == 0:
            return found
        allocation = Assignment(assigned=self.running, delay_ms=self.delay_ms).encode(version)
        return found + struct.pack(">i", len(allocation)) + allocation

    @classmethod
    def decode(cls, data: bytes) -> WorkerState:
        reader = WorkReader(data)
        version = reader.int16()
        url, offset = reader.text(), reader.int64()
        if version == 0:
            return cls(url, offset)
        last = Assignment.decode(reader.nullable_bytes() or b"")
        return cls(url, offset, last.assigned, last.delay_ms)


@dataclass(frozen=True)
class Assignment:
    """What the leader gives a member: all its work (version 0), or its gains and losses."""

    error: int = NO_ERROR
    leader: str = ""
    leader_url: str = ""
    config_offset: int = -1
    assigned: Work = frozenset()
    revoked: Work = field(default=frozenset())
    delay_ms: int = 0
    """After so long the member joins again, for work that is kept for one that may come back."""

    def encode(self, version: int) -> bytes:
        found = struct.pack(">hh", version, self.error)
        found += _text(self.leader) + _text(self.leader_url) + struct.pack(">q", self.config_offset)
        found += _work(self.assigned)
        if version == 0:
            return found
        return found + _work(self.revoked) + struct.pack(">i", self.delay_ms)

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        if not data:
            return cls()
        reader = WorkReader(data)
        version, error = reader.int16(), reader.int16()
        leader, url, offset = reader.text(), reader.text(), reader.int64()
        assigned = reader.work()
        if version == 0 or reader.is_over:
            return cls(error, leader, url, offset, assigned)
        revoked = reader.work()
        return cls(
            error, leader, url, offset, assigned, revoked, 0 if reader.is_over else reader.int32()
        )


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _work(work: Iterable[TaskId]) -> bytes:
    numbers: dict[str, list[int]] = {}
    for connector, number in sorted(work):
        numbers.setdefault(connector, []).append(number)
    found = struct.pack(">i", len(numbers))
    for connector, tasks in numbers.items():
        found += _text(connector) + struct.pack(f">i{len(tasks)}i", len(tasks), *tasks)
    return found


class WorkReader:
    """Reads the fields of one message; KafkaError where it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def text(self) -> str:
        return self._bytes(max(0, self.int16())).decode()

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._bytes(length)

    def work(self) -> Work:
        found = []
        for _ in range(max(0, self.int32())):
            connector = self.text()
            found += [TaskId(connector, self.int32()) for _ in range(max(0, self.int32()))]
        return frozenset(found)

    def _number(self, layout: str, size: int) -> int:
        return int(struct.unpack(layout, self._bytes(size))[0])

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"a message of {len(self._data)} bytes in a group of workers ends too early",
            )
        self._at += size
        return found


SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
DIGESTS: Final = {
    "HmacSHA1": hashlib.sha1,
    "HmacSHA256": hashlib.sha256,
    "HmacSHA384": hashlib.sha384,
    "HmacSHA512": hashlib.sha512,
}


def body_of(tasks: Any) -> bytes:
    """The bytes that are sent, and signed."""
    return json.dumps(tasks, separators=(",", ":")).encode()


def sign(body: bytes, key: SessionKey | None) -> dict[str, str]:
    """The headers of a request with this body; none while there is no key."""
    if key is None:
        return {}
    mac = hmac.new(key.key, body, DIGESTS[key.algorithm]).digest()
    return {SIGNATURE: base64.b64encode(mac).decode(), ALGORITHM: key.algorithm}


def check_signature(
    headers: Mapping[str, str], body: bytes, key: SessionKey | None, allowed: tuple[str, ...]
) -> None:
    """ConnectRestError 400 without a signature, 403 for a wrong one, 503 while there is no key."""
    signature, algorithm = headers.get(SIGNATURE), headers.get(ALGORITHM)
    if signature is None or algorithm is None:
        raise refusal(400, f"{SIGNATURE} and {ALGORITHM}: a request between workers must have both")
    if algorithm not in allowed or algorithm not in DIGESTS:
        raise refusal(400, f"{ALGORITHM}={algorithm}: must be one of {', '.join(allowed)}")
    if key is None:
        raise refusal(503, "This worker is still starting up and has not read a session key yet")
    mac = hmac.new(key.key, body, DIGESTS[algorithm]).digest()
    try:
        given = base64.b64decode(signature, validate=True)
    except ValueError:
        given = b""
    if not hmac.compare_digest(mac, given):
        raise refusal(403, "Internal request contained invalid signature.")
