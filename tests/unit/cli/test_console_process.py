"""A console beside a broker: where it asks, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

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


def test_console_of_a_run_has_its_report(started, terminal, tmp_path, monkeypatch):
    """By its whole path, as the console may have another working directory."""
    monkeypatch.chdir(tmp_path)
    with ConsoleProcess(terminal) as console:
        console.start("a:1", Path("out/report.html"))

    assert started[0][-2:] == ["--report", str(tmp_path / "out/report.html")]


def test_console_stays_until_it_is_told_to_end(started, terminal):
    """By a signal, or as it has ended itself; one that was not started stays for no time."""
    ConsoleProcess(terminal).stay()
    assert terminal.out.getvalue() == ""
    with ConsoleProcess(terminal) as console:
        console.start("a:1")
        sent = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        sent.start()
        console.stay()
        sent.join()
        console.stop()
        console.stay()
    assert terminal.out.getvalue().count("the console stays until Ctrl-C") == 2
