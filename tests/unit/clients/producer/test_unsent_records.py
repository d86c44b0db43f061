"""What is said at the end of a program that has not waited for its producers."""

from __future__ import annotations

import subprocess
import sys

import pytest
from producer_world import ProducerWorld

from ottla.clients.producer import unsent_records
from ottla.clients.producer.unsent_records import tell_of_all
from ottla.protocol.produce import ProduceRequest


def told(caplog) -> list[str]:
    """What the end of the program would log now."""
    caplog.clear()
    tell_of_all()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("settings", [{}, {"linger_ms": 60_000}, {"acks": 1}])
def test_records_that_are_not_delivered_are_counted(runtime, cluster, caplog, settings):
    """Queued or in flight, until they are answered."""
    world = ProducerWorld(runtime, cluster, client_id="till", **settings)
    cluster[0].on(ProduceRequest, "hold")
    assert told(caplog) == []
    for value in "abc":
        world.send(value)
        world.run(10)
    (line,) = told(caplog)
    assert line.startswith("the program ends before 3 records of the producer till are delivered")

    runtime.scheduler.run(world.core.close())
    assert told(caplog) == []


def test_delivered_records_are_not_mentioned(runtime, cluster, caplog):
    """The producer need not be closed for that."""
    world = ProducerWorld(runtime, cluster)
    world.send("a")
    world.run(100)

    assert world.log == [b"a"]
    assert told(caplog) == []


def test_child_of_a_fork_does_not_speak_of_the_records_of_its_parent(
    runtime, cluster, caplog, monkeypatch
):
    """They are delivered there."""
    world = ProducerWorld(runtime, cluster, linger_ms=60_000)
    world.send("a")
    monkeypatch.setattr(unsent_records.os, "getpid", lambda: -1)

    assert told(caplog) == []


def test_program_says_it_as_it_ends():
    """By itself, and on stderr where nothing is set up for logging."""
    program = """
from types import SimpleNamespace
from ottla.clients.producer.unsent_records import UnsentRecords
records = UnsentRecords("till", SimpleNamespace(unfinished_count=3))
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "the program ends before 3 records of the producer till" in ended.stderr
