"""Which processes the stop commands signal, and who listens on a port of this machine."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from ottla.cli.local_servers import BrokerStopCommand, ZooKeeperStopCommand

HERE = os.path.dirname(sys.executable)
PROCESSES = {
    11: [f"{HERE}/python", "-m", "ottla", "broker", "server.properties"],
    12: [f"{HERE}/python3", f"{HERE}/ottla", "broker"],
    13: [f"{HERE}/python", "-P", "-m", "ottla", "kafka-server-start.sh", "server.properties"],
    14: [f"{HERE}/python", "-m", "ottla", "zookeeper", "zookeeper.properties"],
    15: [f"{HERE}/python", "-m", "ottla", "broker-stop"],
    16: ["/elsewhere/bin/python", "-m", "ottla", "broker"],
    17: ["grep", "ottla", "broker"],
    18: [],
}


@pytest.fixture
def stop(ottla, monkeypatch, tmp_path):
    """Run a stop command where these processes run; what it has signalled, and the outcome."""
    for number, words in PROCESSES.items():
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in words))
    signalled = []

    def run(command, *words, processes=PROCESSES):
        for number in PROCESSES.keys() - processes:
            (tmp_path / str(number) / "cmdline").unlink()
        made = command(tmp_path, lambda process, number: signalled.append((process, number)))
        monkeypatch.setattr("ottla.cli.main.load_command", lambda name: made)
        return signalled, ottla(command.name, *words)

    return run


def test_brokers_of_this_installation_are_stopped(stop):
    """However they were started; those of another Python are left alone, and so is ZooKeeper."""
    signalled, outcome = stop(BrokerStopCommand)

    assert signalled == [(number, signal.SIGTERM) for number in (11, 12, 13)]
    assert outcome.status == 0


def test_zookeeper_is_stopped_by_a_signal_of_choice(stop):
    """The signal's name, with SIG or without."""
    assert stop(ZooKeeperStopCommand, "--signal", "SIGINT")[0] == [(14, signal.SIGINT)]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (BrokerStopCommand, "No kafka server to stop\n"),
        (ZooKeeperStopCommand, "No zookeeper server to stop\n"),
    ],
)
def test_nothing_to_stop_is_a_failure(stop, command, line):
    """Kafka's line and status; a process that has just ended is no server."""
    signalled, outcome = stop(command, processes={16, 17, 18})

    assert (signalled, outcome.out, outcome.status) == ([], line, 1)


def test_unknown_signal_is_refused(stop):
    """Nothing is signalled then."""
    signalled, outcome = stop(BrokerStopCommand, "--signal", "NO")

    assert signalled == []
    assert "there is no signal NO" in outcome.err


# Who listens on a port of this machine.
