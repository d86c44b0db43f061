"""Clients of a SASL listener at the processor: how much they may send, and how they end."""

from __future__ import annotations

import pytest
from network_world import NetworkWorld, frame

from ottla.network.connection import Connection
from ottla.security.principal import ANONYMOUS
from ottla.security.sasl import PlainServer, SaslListener
from ottla.testing import MockClock

LIMIT = 1000
LISTENER = SaslListener({"PLAIN": lambda: PlainServer({})}, {}, LIMIT, 100)


@pytest.fixture
def login_world(new_world) -> NetworkWorld:
    return new_world(sasl={"PLAINTEXT": LISTENER})


def test_listener_without_a_login_has_no_authenticator(world: NetworkWorld) -> None:
    """Its requests are looked at by nothing."""
    world.send(world.connect(), frame(b"request"))
    world.until(lambda: world.requests)

    assert world.connections[0].authenticator is None
    assert world.config.authenticator("PLAINTEXT", MockClock()) is None


def test_client_may_send_little_before_its_login(login_world: NetworkWorld) -> None:
    """sasl.server.max.receive.size, and not one byte more."""
    client, other = login_world.connect(), login_world.connect()
    login_world.send(client, frame(b"x" * LIMIT))
    login_world.receive(client, LIMIT + 4)
    login_world.send(other, frame(b"x" * (LIMIT + 1))[:8])

    assert login_world.is_closed(other)
    assert login_world.requests == [b"x" * LIMIT]


def test_memory_of_a_client_before_its_login_is_bounded(login_world: NetworkWorld) -> None:
    """A client that announces much holds no more than it has sent, times a few."""
    client = login_world.connect()
    login_world.send(client, frame(b"x" * LIMIT)[:20])
    login_world.turn()

    assert login_world.processor.connections[0].frames.owned_bytes <= LIMIT


def test_client_may_send_much_after_its_login(login_world: NetworkWorld) -> None:
    """From the next request on: socket.request.max.bytes."""

    def log_in(connection: Connection, request: memoryview) -> None:
        if connection.authenticator is not None:
            connection.authenticated(connection.authenticator, ANONYMOUS)
        connection.send([frame(b"ok")])

    login_world.answer = log_in
    client = login_world.connect()
    login_world.send(client, frame(b"password"))
    login_world.receive(client, 6)
    assert login_world.connections[0].authenticator is None
    login_world.send(client, frame(b"x" * 100_000))
    login_world.receive(client, 6)

    assert [len(request) for request in login_world.requests] == [8, 100_000]


def test_last_answer_arrives_before_the_end(login_world: NetworkWorld) -> None:
    """A client that was refused reads why; what it sent meanwhile is not looked at."""
    login_world.answer = login_world.hold
    client = login_world.connect()
    login_world.send(client, frame(b"password") + frame(b"more"))
    login_world.until(lambda: login_world.connections)
    login_world.connections[0].send_last([frame(b"wrong")], "it was refused")

    assert login_world.receive(client, 9) == frame(b"wrong")
    assert login_world.is_closed(client)
    assert login_world.requests == [b"password"]
    assert login_world.connections[0].close_reason == "it was refused"
