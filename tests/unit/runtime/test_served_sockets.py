"""Sockets that are served on a loop of somebody else: all at once, with all of their events."""

from __future__ import annotations

import asyncio
import select
import socket

import pytest

from ottla.runtime.poller import HALF_CLOSED, HUNG_UP, READABLE, WRITABLE
from ottla.runtime.served_sockets import GuestSockets, served_sockets
from ottla.runtime.serving_loop import Ready, ServingLoop

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")


class Turns:
    """The turns in which sockets were found ready, each with their events."""

    def __init__(self) -> None:
        self.seen: list[dict[int, int]] = []
        self.news = asyncio.Event()
        self.sockets = served_sockets(self.on_ready)

    def on_ready(self, ready: Ready) -> None:
        """Note them, and watch them no longer: each test looks at one turn."""
        self.seen.append(dict(ready))
        for fd, _ in ready:
            self.sockets.unregister(fd)
        self.news.set()

    async def next(self) -> dict[int, int]:
        await self.news.wait()
        self.news.clear()
        return self.seen[-1]


def test_sockets_that_are_ready_come_in_one_turn() -> None:
    """The loop of asyncio.run sees their poller alone."""

    async def serve() -> None:
        turns = Turns()
        pairs = [socket.socketpair() for _ in range(3)]
        for ours, theirs in pairs:
            theirs.send(b"x")
            turns.sockets.register(ours.fileno(), READABLE)
        assert await turns.next() == {ours.fileno(): READABLE for ours, _ in pairs}
        turns.sockets.close()
        for pair in pairs:
            for each in pair:
                each.close()

    asyncio.run(serve())


def test_all_events_of_the_poller_are_seen() -> None:
    """A peer that sends no more, or has gone, is told apart from one that has sent something."""

    async def serve() -> None:
        turns = Turns()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            turns.sockets.register(ours.fileno(), WRITABLE)
            assert await turns.next() == {ours.fileno(): WRITABLE}
            turns.sockets.register(ours.fileno(), HALF_CLOSED)
            theirs.shutdown(socket.SHUT_WR)
            assert await turns.next() == {ours.fileno(): HALF_CLOSED}
            turns.sockets.register(ours.fileno(), 0)
            theirs.close()
            assert await turns.next() == {ours.fileno(): HUNG_UP}
        turns.sockets.close()

    asyncio.run(serve())


def test_nothing_is_seen_after_the_end() -> None:
    """Their poller is closed, and the loop has forgotten it; another end changes nothing."""

    async def serve() -> None:
        turns = Turns()
        assert isinstance(turns.sockets, GuestSockets)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            turns.sockets.register(ours.fileno(), READABLE)
            theirs.send(b"x")
            turns.sockets.close()
            turns.sockets.close()
            assert turns.sockets.is_closed
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert turns.seen == []

    asyncio.run(serve())


def test_error_of_one_who_serves_is_the_loops_to_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop goes on, and so do the sockets."""

    async def serve() -> None:
        served = asyncio.Event()
        ours, theirs = socket.socketpair()

        def on_ready(ready: Ready) -> None:
            if ours.recv(1) == b"y":
                served.set()
            else:
                raise KeyError("not served")

        sockets = served_sockets(on_ready)
        with ours, theirs:
            sockets.register(ours.fileno(), READABLE)
            theirs.send(b"xy")
            await served.wait()
            sockets.close()

    asyncio.run(serve())

    assert "serving ready sockets failed" in caplog.text


def test_loop_of_a_broker_has_no_guests() -> None:
    """Its own poller has the sockets."""

    async def serve() -> None:
        sockets = served_sockets(lambda ready: None)
        assert not isinstance(sockets, GuestSockets)
        sockets.close()

    with asyncio.Runner(loop_factory=ServingLoop) as runner:
        runner.run(serve())


def test_system_without_epoll_has_no_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other poller can be watched by one; the error names the loop."""
    monkeypatch.delattr(select, "epoll")

    async def ask() -> None:
        served_sockets(lambda ready: None)

    with pytest.raises(TypeError, match="a broker runs on ServingLoop, not on "):
        asyncio.run(ask())
