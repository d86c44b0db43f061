"""A connection that is closed while somebody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.config.client_config import AdminConfig
from ottla.errors import KafkaError
from ottla.network.node_connection import NodeConnection
from ottla.structs import Node, replace
from ottla.testing import mock_runtime


class SilentNetwork:
    """Nobody answers."""

    async def connect(self, *_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def runtime():
    return replace(mock_runtime(), network=SilentNetwork())


@pytest.fixture
def connection(runtime):
    config = AdminConfig.parse({"bootstrap.servers": "a:1"})
    return NodeConnection(runtime, config, Node(1, "a", 1))


def test_whoever_waits_is_told_that_the_connection_was_closed(runtime, connection):
    """It is no cancellation of its own, which would end the task that waits without a word."""

    async def wait_and_close():
        waiting = asyncio.ensure_future(connection.ready())
        await asyncio.sleep(0)
        connection.close("the broker is gone")
        await waiting

    with pytest.raises(KafkaError, match="the connection was closed"):
        runtime.scheduler.run(wait_and_close())


def test_whoever_is_cancelled_stops_waiting(runtime, connection):
    """The attempt goes on for the others."""

    async def wait_and_cancel():
        waiting = asyncio.ensure_future(connection.ready())
        other = asyncio.ensure_future(connection.ready())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not other.done()
        other.cancel()
        connection.close("the end")
        await asyncio.sleep(0)

    runtime.scheduler.run(wait_and_cancel())
