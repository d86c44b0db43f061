"""A loop that serves sockets of others: they, its own descriptors, timers and threads all go on."""

from __future__ import annotations

import asyncio
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import kqueue_calls
import pytest

from ottla.runtime.poller import READABLE, WRITABLE, Poller
from ottla.runtime.portable_pollers import KqueuePoller, PollPoller, SelectPoller
from ottla.runtime.serving_loop import Ready, ServingLoop, SharedSelector, open_poller

POLLERS: dict[str, Callable[[], Poller]] = {
    "best": open_poller,
    "kqueue": partial(KqueuePoller, kqueue_calls),
    "poll": PollPoller,
    "select": SelectPoller,
}


@pytest.fixture(params=POLLERS)
def loop(request: pytest.FixtureRequest) -> Iterator[ServingLoop]:
    """One on each poller, which is closed in the end."""
    loop = ServingLoop(POLLERS[request.param]())
    yield loop
    loop.close()


class Echo:
    """One who serves sockets: each byte is sent back, and noted."""

    def __init__(self, loop: ServingLoop) -> None:
        self.ours: dict[int, socket.socket] = {}
        self.turns = 0
        self.sockets = loop.serve(self.on_ready)

    def client(self) -> socket.socket:
        """A new client, whose bytes are served."""
        ours, client = socket.socketpair()
        self.ours[ours.fileno()] = ours
        self.sockets.register(ours.fileno(), READABLE)
        client.setblocking(False)
        return client

    def on_ready(self, ready: Ready) -> None:
        self.turns += 1
        for fd, _ in ready:
            if data := self.ours[fd].recv(1):
                self.ours[fd].send(data)
            else:
                self.sockets.unregister(fd)

    def close(self) -> None:
        self.sockets.close()
        for each in self.ours.values():
            each.close()


@pytest.fixture
def echo(loop: ServingLoop) -> Iterator[Echo]:
    made = Echo(loop)
    yield made
    made.close()


async def exchange(client: socket.socket, count: int) -> bytes:
    """Send so many bytes, each when the one before has come back, by the loop's own calls."""
    loop = asyncio.get_running_loop()
    back = b""
    for number in range(count):
        await loop.sock_sendall(client, bytes([number]))
        back += await loop.sock_recv(client, 10)
    return back


def test_sockets_of_others_and_of_the_loop_are_served(loop: ServingLoop, echo: Echo) -> None:
    """The client is the loop's, the server is not: each waits for the other in every step."""

    async def both() -> list[bytes]:
        with echo.client() as one, echo.client() as other:
            return await asyncio.gather(exchange(one, 20), exchange(other, 20))

    assert loop.run_until_complete(both()) == [bytes(range(20))] * 2
    assert echo.turns


def test_each_gets_its_own_sockets(loop: ServingLoop, echo: Echo) -> None:
    """Also where one of them is closed while the other goes on, and where numbers come again."""
    second = Echo(loop)

    async def play() -> None:
        with echo.client() as one, second.client() as other:
            back = await asyncio.gather(exchange(one, 5), exchange(other, 5))
            assert back == [bytes(range(5))] * 2
        second.close()
        with echo.client() as third:
            assert await exchange(third, 3) == bytes(range(3))

    loop.run_until_complete(play())


def test_timers_are_due_while_others_are_busy(loop: ServingLoop) -> None:
    """A socket that is ready all the time does not keep the loop from its own work."""
    ours, theirs = socket.socketpair()
    busy = loop.serve(lambda ready: None)
    busy.register(ours.fileno(), WRITABLE)

    async def wait() -> None:
        is_due = asyncio.Event()
        loop.call_later(0.01, is_due.set)
        await asyncio.wait_for(is_due.wait(), 60)

    with ours, theirs:
        loop.run_until_complete(wait())
        busy.close()


def test_other_threads_and_turns_wake_the_loop(loop: ServingLoop) -> None:
    """What a thread, or a turn of one who serves, schedules is done at once."""
    by_thread, by_turn = asyncio.Event(), asyncio.Event()
    ours, theirs = socket.socketpair()

    def on_ready(ready: Ready) -> None:
        ours.recv(1)
        loop.call_soon(by_turn.set)

    async def play() -> None:
        threading.Thread(target=lambda: loop.call_soon_threadsafe(by_thread.set)).start()
        await asyncio.wait_for(by_thread.wait(), 60)
        sockets = loop.serve(on_ready)
        sockets.register(ours.fileno(), READABLE)
        theirs.send(b"x")
        await asyncio.wait_for(by_turn.wait(), 60)
        sockets.close()

    with ours, theirs:
        loop.run_until_complete(play())


def test_error_of_one_who_serves_is_logged_and_ends_nothing(
    loop: ServingLoop, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop goes on, and so do the others."""
    ours, theirs = socket.socketpair()
    failing = loop.serve(lambda ready: {}["no such key"])
    failing.register(ours.fileno(), READABLE)

    async def play() -> None:
        theirs.send(b"x")
        for _ in range(3):
            await asyncio.sleep(0)  # the loop goes on, though the socket stays ready
        failing.close()
        with echo.client() as client:
            assert await exchange(client, 3) == bytes(range(3))

    with ours, theirs, caplog.at_level(logging.ERROR):
        loop.run_until_complete(play())
    assert "serving ready sockets failed" in caplog.text
    assert "KeyError" in caplog.text


def test_error_and_hang_up_are_whatever_asyncio_asks_for(loop: ServingLoop) -> None:
    """A connection that is refused ends its wait, as one that is closed does."""

    async def connect() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # nobody else listens there either
            with pytest.raises(ConnectionRefusedError):
                await asyncio.wait_for(asyncio.open_connection(*unused.getsockname()), 60)

    loop.run_until_complete(connect())


class Looks:
    """A poller that finds something at its third look, and counts those that do not wait."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []
        self.found: list[Ready] = []

    def poll(self, timeout_s: float | None, max_events: int) -> Ready:
        self.waits.append(timeout_s)
        return self.found.pop(0) if self.found else []

    def register(self, fd: int, events: int) -> None:
        """Nothing is watched."""

    modify = register

    def unregister(self, fd: int) -> None:
        """Nothing was watched."""

    def close(self) -> None:
        """Nothing is open."""


def test_spinning_looks_again_before_it_sleeps() -> None:
    """Only after it has served; a request that comes meanwhile is served without a sleep."""
    looks = Looks()
    looks.found = [[(7, READABLE)], [], [], [(7, READABLE)]]
    shared = SharedSelector(looks, spin_us=1_000_000)
    turns: list[Ready] = []

    def serve(ready: Ready) -> None:
        turns.append(ready)
        shared.is_wanted = len(turns) == 2

    shared.served.append(type("Served", (), {"on_ready": staticmethod(serve), "fds": {7}}))

    assert shared.select(5) == []
    assert len(turns) == 2
    assert looks.waits == [5, 0, 0, 0]


def test_selector_has_the_calls_of_selectors() -> None:
    """asyncio looks its keys up by number, and others by file."""
    shared = SharedSelector(open_poller(), 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shared.register(ours, selectors.EVENT_READ, "data")
        shared.modify(ours, selectors.EVENT_WRITE, "other")
        assert shared.get_key(ours.fileno()).data == "other"
        assert shared.select(0) == [(shared.get_key(ours.fileno()), selectors.EVENT_WRITE)]
        shared.unregister(ours)
        assert shared.select(0) == []
    shared.close()


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
def test_no_error_of_one_who_serves_ends_the_loop(
    loop: ServingLoop, echo: Echo, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that asyncio has for its own tasks: a future that was given up has it, too."""
    ours, theirs = socket.socketpair()

    def fail(ready: Ready) -> None:
        raise error

    failing = loop.serve(fail)
    failing.register(ours.fileno(), WRITABLE)

    async def play() -> None:
        with echo.client() as client:
            assert await exchange(client, 3) == bytes(range(3))

    with ours, theirs, caplog.at_level(logging.ERROR):
        loop.run_until_complete(play())
        failing.close()
    assert type(error).__name__ in caplog.text


def test_one_who_serves_can_stop_the_loop(loop: ServingLoop) -> None:
    """Nothing else comes that would wake it."""
    ours, theirs = socket.socketpair()

    def on_ready(ready: Ready) -> None:
        sockets.close()
        loop.stop()

    sockets = loop.serve(on_ready)
    sockets.register(ours.fileno(), WRITABLE)
    with ours, theirs:
        loop.run_forever()


def test_files_are_watched_as_well_as_their_numbers(loop: ServingLoop) -> None:
    """As on any loop of asyncio: a file that is read and written to is one descriptor."""
    ours, theirs = socket.socketpair()
    read, written = asyncio.Event(), asyncio.Event()

    async def play() -> None:
        loop.add_reader(ours, read.set)
        loop.add_writer(ours, written.set)
        theirs.send(b"x")
        await asyncio.wait_for(asyncio.gather(read.wait(), written.wait()), 60)
        assert loop.remove_reader(ours)
        assert loop.remove_writer(ours.fileno())

    with ours, theirs:
        loop.run_until_complete(play())
