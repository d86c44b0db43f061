"""`ottla(...)` runs a command in this process with streams and clients of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.cli.terminal import Terminal


@dataclass
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class FakeClients:
    """Hands out the clients that a test has put here, and keeps what was asked for."""

    client: Any = None
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def admin(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("admin", servers, settings)

    def producer(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("producer", servers, settings)

    def consumer(self, servers: str, settings: dict[str, str]) -> Any:
        return self._open("consumer", servers, settings)

    def _open(self, kind: str, servers: str, settings: dict[str, str]) -> Any:
        self.asked.append((kind, servers, dict(settings)))
        if isinstance(self.client, Exception):
            raise self.client
        return self.client


@pytest.fixture
def clients() -> FakeClients:
    """Where a test puts the client that its commands shall get."""
    return FakeClients()


@pytest.fixture
def ottla(clients: FakeClients) -> Callable[..., Outcome]:
    """Run `ottla` with these words and this standard input."""

    def run(*words: object, stdin: bytes = b"") -> Outcome:
        raw = BytesIO()
        out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
        err = StringIO()
        terminal = Terminal(source=BytesIO(stdin), out=out, raw_out=raw, err=err, clients=clients)
        status = main([str(word) for word in words], terminal)
        return Outcome(status, raw.getvalue().decode(), err.getvalue())

    return run
