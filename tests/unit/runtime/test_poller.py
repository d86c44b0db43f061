"""Each poller that this system has, and kqueue on a fake of its calls: all tell the same."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import kqueue_calls
import pytest

from ottla.runtime.poller import (
    EPOLL,
    HALF_CLOSED,
    HUNG_UP,
    READABLE,
    WRITABLE,
    EpollPoller,
    Poller,
    pollers,
)
from ottla.runtime.portable_pollers import PORTABLE_POLLERS, KqueuePoller
from ottla.testing import wait_until

MAKERS = {EPOLL: EpollPoller, **PORTABLE_POLLERS}
POLLERS: dict[str, Callable[[], Any]] = {
    **{name: maker for name, maker in MAKERS.items() if name in pollers()},
    "kqueue on a fake": lambda: KqueuePoller(kqueue_calls),
}
TELLING = [name for name in POLLERS if name != "select"]
"""Those that tell what happens to a socket of which nothing is asked."""

every_poller = pytest.mark.parametrize("poller", POLLERS, indirect=True)
every_telling_poller = pytest.mark.parametrize("poller", TELLING, indirect=True)


@pytest.fixture
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    """One, which is closed in the end."""
    made: Poller = POLLERS[request.param]()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end of a TCP connection, and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    with ours, client:
        ours.setblocking(False)
        yield ours, client


def told(poller: Poller, ours: socket.socket) -> int:
    """What is told of one socket now."""
    return dict(poller.poll(0, 100)).get(ours.fileno(), 0)


def until_told(poller: Poller, ours: socket.socket, wanted: int) -> int:
    """What is told once it has all of `wanted`."""
    events: list[int] = [0]

    def is_told() -> bool:
        events[0] = told(poller, ours)
        return events[0] & wanted == wanted

    wait_until(is_told, f"events {wanted:#x}", seen=lambda: hex(events[0]))
    return events[0]


def arrived(ours: socket.socket) -> None:
    """Wait until bytes of the client, or its end, are in our socket."""
    assert select.select([ours], [], [], 60)[0]


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@every_poller
def test_bytes_are_told_until_they_are_read(poller: Poller, pair: Any) -> None:
    """Level-triggered: what a bounded turn leaves is told again."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    assert told(poller, ours) == 0
    client.send(b"12")

    assert until_told(poller, ours, READABLE) == READABLE
    assert told(poller, ours) == READABLE
    ours.recv(1)
    assert told(poller, ours) == READABLE
    ours.recv(1)
    assert told(poller, ours) == 0


@every_poller
def test_room_is_told_where_it_is_asked_for(poller: Poller, pair: Any) -> None:
    """Room is reported while it is asked for, and not afterwards."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    poller.modify(ours.fileno(), WRITABLE)
    client.send(b"not asked for")
    arrived(ours)
    assert told(poller, ours) == WRITABLE

    poller.modify(ours.fileno(), READABLE | WRITABLE)
    assert told(poller, ours) == READABLE | WRITABLE
    poller.modify(ours.fileno(), 0)
    assert told(poller, ours) == 0
    poller.modify(ours.fileno(), READABLE)
    assert told(poller, ours) == READABLE


@every_poller
def test_nothing_is_told_of_what_is_unregistered(poller: Poller, pair: Any) -> None:
    """A number that is used again begins anew."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    client.send(b"x")
    until_told(poller, ours, READABLE)
    poller.unregister(ours.fileno())
    assert told(poller, ours) == 0
    poller.register(ours.fileno(), READABLE)
    assert told(poller, ours) == READABLE


@every_poller
def test_end_of_stream_is_readable(poller: Poller, pair: Any) -> None:
    """The end of a stream is readable in all systems."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    client.close()

    assert until_told(poller, ours, READABLE)
    assert ours.recv(1) == b""


@every_poller
def test_all_are_told_in_time_where_more_are_ready_than_asked_for(poller: Poller) -> None:
    """None waits behind those that are ready again and again."""
    with contextlib.ExitStack() as opened:
        listeners = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
        for each in listeners:
            opened.enter_context(socket.create_connection(each.getsockname()))
            arrived(each)
            poller.register(each.fileno(), READABLE)
        turns = [poller.poll(0, 2) for _ in range(5)]

    assert all(len(turn) == 2 for turn in turns)
    assert len({fd for turn in turns for fd, _ in turn}) == 5


@every_telling_poller
@pytest.mark.parametrize("ahead", [b"", b"unread"], ids=["nothing unread", "behind unread bytes"])
def test_half_close_is_told_where_bytes_are_not_wanted(
    poller: Poller, pair: Any, ahead: bytes
) -> None:
    """The half-close is reported once, and not where it is not asked for."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    client.send(ahead)
    if ahead:
        arrived(ours)
    poller.modify(ours.fileno(), HALF_CLOSED)
    assert told(poller, ours) == 0
    client.shutdown(socket.SHUT_WR)

    assert until_told(poller, ours, HALF_CLOSED) == HALF_CLOSED
    poller.modify(ours.fileno(), 0)
    assert told(poller, ours) == 0
    poller.modify(ours.fileno(), HALF_CLOSED)
    assert until_told(poller, ours, HALF_CLOSED) == HALF_CLOSED


@every_telling_poller
@pytest.mark.parametrize("interest", [HALF_CLOSED, WRITABLE, 0])
def test_reset_is_told_whatever_is_asked_for(poller: Poller, pair: Any, interest: int) -> None:
    """The client that waits for its answer has gone."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    poller.modify(ours.fileno(), interest)
    told(poller, ours)
    reset(client)

    until_told(poller, ours, HUNG_UP)


@every_telling_poller
def test_reset_is_told_after_a_half_close(poller: Poller, pair: Any) -> None:
    """The first byte of an answer finds that nobody reads."""
    ours, client = pair
    poller.register(ours.fileno(), READABLE)
    poller.modify(ours.fileno(), HALF_CLOSED)
    client.close()
    until_told(poller, ours, HALF_CLOSED)
    poller.modify(ours.fileno(), 0)
    ours.send(b"x")

    until_told(poller, ours, HUNG_UP)


def test_select_refuses_a_descriptor_that_is_too_high() -> None:
    """It could not be waited for, and would keep all others from it."""
    poller = PORTABLE_POLLERS["select"]()
    with pytest.raises(OSError, match="too high a descriptor"):
        poller.register(1 << 20, READABLE)
    poller.close()


def test_poll_without_its_newest_bit_tells_of_all_else(
    monkeypatch: pytest.MonkeyPatch, pair: Any
) -> None:
    """A half-close is found when the answer is due; a reset is told."""
    monkeypatch.delattr(select, "POLLRDHUP")
    ours, client = pair
    poller = PORTABLE_POLLERS["poll"]()
    poller.register(ours.fileno(), HALF_CLOSED)
    client.shutdown(socket.SHUT_WR)
    arrived(ours)
    assert told(poller, ours) == 0
    reset(client)

    until_told(poller, ours, HUNG_UP)
    poller.close()
