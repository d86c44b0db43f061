"""A server as a child process: how it is ended."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.cli.cluster_servers import Server
from ottla.cli.server_process import Child

if TYPE_CHECKING:
    from pathlib import Path

HEEDS = "import signal; print(' ready at ', flush=True); signal.pause()"
IGNORES = f"import signal; signal.signal({int(signal.SIGTERM)}, signal.SIG_IGN); {HEEDS}"


class Program(Child):
    """Any program in the place of a server."""

    def __init__(self, tmp_path: Path, code: str) -> None:
        self.code = code
        super().__init__(Server("a server", "broker", 0, tmp_path / "server.properties", {}))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]


@pytest.fixture
def start(tmp_path):
    """Starts a program; it is gone after the test."""
    children = []

    def start(code: str) -> Program:
        children.append(Program(tmp_path, code))
        children[-1].wait_until_ready()
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.process.stdout.close()


def test_server_that_heeds_sigterm_is_ended_in_order(start):
    """A server that a SIGSTOP holds ends as well, and nothing is printed about it."""
    child, said = start(HEEDS), []
    child.process.send_signal(signal.SIGSTOP)

    assert child.stop(lambda: said.append("delay"))
    assert child.process.returncode == -signal.SIGTERM
    assert said == []


def test_server_that_takes_too_long_is_killed_after_a_word(start):
    """It was killed without one, 30 s after the SIGTERM, however many logs it had to flush."""
    child, said = start(IGNORES), []

    assert not child.stop(lambda: said.append("delay"), 0.1, 0.2)
    assert child.process.returncode == -signal.SIGKILL
    assert said == ["delay"]
