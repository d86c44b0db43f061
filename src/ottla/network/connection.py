"""A client's connection: framing, one request in flight, and the answers on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.runtime import Buffer, FileRegion

Part: TypeAlias = "Buffer | FileRegion"


class Connection:
    """One client. Every request that is handed over ends in one `send` or `no_response`."""

    __slots__ = (
        "client_host",
        "client_port",
        "id",
        "listener_name",
        "principal",
    )

    def __init__(self, id: str, listener_name: str, client_host: str, client_port: int) -> None:
        self.id = id
        self.listener_name = listener_name
        self.client_host = client_host
        self.client_port = client_port
        self.principal = "User:ANONYMOUS"

    def send(self, parts: Sequence[Part]) -> None:
        """Answer the request in flight; parts must not be views of its frame."""
        raise NotImplementedError

    def no_response(self) -> None:
        """End the request in flight without an answer, as acks=0 does."""
        raise NotImplementedError

    def mute_until(self, deadline_ms: int) -> None:
        """Take no more requests before the monotonic clock reaches `deadline_ms` (throttling)."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close at the end of the turn; what is queued is dropped."""
        raise NotImplementedError
