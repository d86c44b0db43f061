"""An error of ours costs one client its connection, and no other one anything; and it can end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from network_world import NetworkWorld, frame
from tls_world import listening

from ottla.network.connection import Connection
from ottla.network.transport import Transport

ERRORS = [ValueError("ours"), OverflowError("ours"), asyncio.CancelledError("ours")]


class FailingTransport:
    """A transport, one call of which fails; it is closed all the same."""

    def __init__(self, real: Transport, call: str, error: BaseException) -> None:
        self._real, self._call, self._error = real, call, error

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._call else getattr(self._real, name)

    def _fail(self, *_: object) -> None:
        if self._call == "close":
            self._real.close()
        raise self._error


def serves_on(world: NetworkWorld) -> bool:
    """Whether old and new clients are served, and the processor stops in the end."""
    old, new = world.clients[-1], world.connect()
    for client in (old, new):
        world.send(client, frame(b"after"))
        assert world.receive(client, 9) == frame(b"after")
    stopping = world.loop.create_task(world.processor.stop(timeout_ms=1000))
    world.until(stopping.done, "the end of the processor")
    return not world.processor.connections


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("call", ["recv_into", "send", "probe_peer", "close"])
def test_error_in_any_stage_is_that_of_one_client(
    world: NetworkWorld, call: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one's request comes behind it in the same turn."""

    def answer(connection: Connection, request: memoryview) -> None:
        if request != b"held":
            world.echo(connection, request)

    world.answer = answer
    bad, good = world.connect(), world.connect()
    connection = world.processor.connections[0]
    connection.transport = FailingTransport(connection.transport, call, error)
    with caplog.at_level(logging.ERROR):
        bad.send(frame(b"held" if call == "probe_peer" else b"bad"))
        world.turn()
        bad.close()
        good.send(frame(b"good"))
        assert world.receive(good, 8) == frame(b"good")
        world.until(lambda: connection not in world.processor.connections)

    assert "ours" in caplog.text
    assert serves_on(world)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("where", ["request", "sent", "identify", "complete"])
def test_error_of_others_is_that_of_one_client(
    world: NetworkWorld, where: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Handlers, measures, names and delayed work are not the processor's own."""
    left = [error]

    def fail_once(*_: object) -> None:
        if left:
            raise left.pop()

    def answer(connection: Connection, request: memoryview) -> None:
        if where == "request":
            fail_once()
        connection.unsent = (None,)  # type: ignore[assignment]
        world.echo(connection, request)
        if where == "identify":
            world.processor.identify = fail_once

    if where == "sent":
        world.processor.sent.on_sent = fail_once
    elif where == "complete":
        world.complete_delayed = fail_once
    world.answer = answer
    bad, good = world.connect(), world.connect()
    with caplog.at_level(logging.ERROR):
        bad.send(frame(b"bad"))
        good.send(frame(b"good"))
        assert world.receive(good, 8) == frame(b"good")
        if where == "identify":
            world.connect()
            world.processor.identify = None
            world.clients.append(good)
        world.until(lambda: not left)

    assert "ours" in caplog.text
    assert serves_on(world)


@pytest.mark.parametrize("is_accepted", [False, True], ids=["new client", "TLS handshake"])
def test_listener_that_goes_between_a_look_and_its_turn_is_passed_over(
    new_world: Callable[..., NetworkWorld], certificates: Any, is_accepted: bool
) -> None:
    """A turn is due when the poller reports a client of it; other callbacks come before."""
    world = new_world(tls={"OTHER": listening(certificates)})
    world.connect()
    port = world.processor.listen("OTHER", "127.0.0.1", 0).port
    with world.new_client() as client:
        client.connect(("127.0.0.1", port))
        if is_accepted:
            world.until(lambda: len(world.processor._handshakes))
        client.send(b"\x16")
        world.processor._schedule_turn()
        world.look()
        world.processor.stop_listening("OTHER")
        world.turn()
    world.clients.remove(client)

    assert serves_on(world)
