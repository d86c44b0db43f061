"""Connections that nobody uses are closed; those that wait for us are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from network_world import NetworkWorld, frame

NewWorld = Callable[..., NetworkWorld]


@pytest.fixture
def world(new_world: NewWorld) -> NetworkWorld:
    return new_world(connections_max_idle_ms=1000)


def test_connection_without_activity_is_closed_after_the_limit(world: NetworkWorld) -> None:
    """Not at the limit, but beyond it."""
    client = world.connect()
    world.send(client, frame(b"hello"))
    world.receive(client, 9)
    world.advance(1000)
    assert world.is_open(client)
    world.advance(1)

    assert world.is_closed(client)
    assert "1000 ms" in world.connections[0].close_reason


def test_connection_in_use_stays_while_the_quiet_one_goes(world: NetworkWorld) -> None:
    """Each is measured from its own last request."""
    busy, quiet = world.connect(), world.connect()
    for _ in range(4):
        world.advance(400)
        world.send(busy, frame(b"hello"))
        assert world.receive(busy, 9) == frame(b"hello")

    assert world.is_closed(quiet)
    assert world.is_open(busy)
    world.advance(1001)
    assert world.is_closed(busy)


def test_connection_that_waits_for_its_answer_is_not_idle(world: NetworkWorld) -> None:
    """A join may take longer than clients are allowed to be quiet."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"join"))
    world.until(lambda: world.requests)
    world.advance(5000)
    world.connections[0].send([frame(b"joined")])

    assert world.receive(client, 10) == frame(b"joined")


def test_client_that_never_reads_is_idle_in_the_end(world: NetworkWorld) -> None:
    """Its answers cannot be sent, and nothing moves."""
    client = world.connect(receive_buffer_bytes=4096)
    world.respond_with([frame(bytes(10_000_000))])
    world.send(client, frame(b"give"))
    world.until(lambda: world.requests)
    world.advance(1001)
    world.until(lambda: len(world.processor.connections) == 0)


def test_unfinished_request_does_not_keep_a_connection(world: NetworkWorld) -> None:
    """Half a frame, and then nothing."""
    client = world.connect()
    world.send(client, frame(b"0123456789")[:7])
    world.until(lambda: any(each.frames.owned_bytes for each in world.processor.connections))
    world.advance(1001)

    assert world.is_closed(client)


def test_minus_one_keeps_connections_for_ever(new_world: NewWorld) -> None:
    """connections.max.idle.ms=-1 disables the check."""
    world = new_world(connections_max_idle_ms=-1)
    client = world.connect()
    world.advance(10**9)

    assert world.is_open(client)
