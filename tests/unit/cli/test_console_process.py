"""A console beside a broker: where it asks, and how it ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from io import StringIO

import pytest

from ottla.cli import console_process as room
from ottla.cli.console_process import ConsoleProcess, is_free
from ottla.cli.terminal import Terminal
from ottla.structs import EndPoint


@pytest.fixture
def terminal():
    return Terminal(out=StringIO(), err=StringIO())


@pytest.fixture
def started(monkeypatch):
    """The words of the processes that are started; each is a program that waits for its input."""
    words: list[list[str]] = []
    begin = subprocess.Popen

    def start(given, **settings):
        words.append(given)
        return begin([sys.executable, "-c", "import sys; sys.stdin.read()"], **settings)

    monkeypatch.setattr(room.subprocess, "Popen", start)
    return words


@pytest.mark.parametrize(
    ("host", "port", "servers"),
    [("", 9092, "127.0.0.1:9092"), ("::1", 9093, "[::1]:9093"), ("a", 1, "a:1")],
)
def test_console_asks_the_first_plain_listener(started, terminal, host, port, servers):
    """And ends when it is told to."""
    console = ConsoleProcess(terminal)
    console.start_at([EndPoint("S", "SSL", "s", 1), EndPoint("P", "PLAINTEXT", host, port)])

    assert started[0][started[0].index("-b") + 1] == servers
    console.stop()
    console.stop()


def test_broker_without_a_plain_listener_has_no_console(started, terminal):
    """A note says how to start one."""
    console = ConsoleProcess(terminal)
    console.start_at([EndPoint("S", "SSL", "s", 1)])
    console.stop()

    assert not started
    assert "--command-config" in terminal.err.getvalue()


def test_port_is_free_or_not():
    """A console takes another one then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
