"""How long a command waits for a session of ZooKeeper."""

from __future__ import annotations

import kazoo.client
import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import connect


class BusyServer:
    """A client of a server that gives a session after `seconds`; `is_stopped` when it is over."""

    seconds = 0.0
    is_stopped = False

    def __init__(self, hosts, timeout, logger):
        self.hosts = hosts

    def start_async(self):
        return self

    def wait(self, limit_s):
        return self.seconds <= limit_s

    def stop(self):
        BusyServer.is_stopped = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(kazoo.client, "KazooClient", BusyServer)
    monkeypatch.setattr(BusyServer, "seconds", 0.0)
    monkeypatch.setattr(BusyServer, "is_stopped", False)
    return BusyServer


def test_server_that_is_busy_is_waited_for(server):
    """A session that took six seconds was "ZooKeeper does not answer"; Kafka's tools take 30."""
    server.seconds = 29.0

    assert connect(("localhost:2181",), "/kafka", "ERROR").hosts == "localhost:2181/kafka"


def test_server_that_gives_no_session_is_one_line(server):
    """The line says how long was waited, and nothing is left running."""
    server.seconds = 31.0
    with pytest.raises(CommandError, match="localhost:2181 gave no session within 30 s"):
        connect(("localhost:2181",), "", "ERROR")

    assert server.is_stopped
