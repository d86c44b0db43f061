"""Clients that stop in the middle of requests or answers: which are closed, and when."""

from __future__ import annotations

import pytest
from network_world import Client, NetworkWorld, frame

from ottla.network.held_bytes import LONG_BYTES

ANSWER = 8_000_000


def ask(world: NetworkWorld) -> Client:
    """A client with a small window whose answer is begun."""
    client, before = world.connect(receive_buffer_bytes=4096), len(world.requests)
    client.send(frame(b"much"))
    world.until(lambda: len(world.requests) > before)
    world.turn(5)
    world.clock.advance(1)
    return client


def kept(world: NetworkWorld) -> int:
    """How many bytes of answers wait, of which the sockets have taken a part."""
    return sum(each.outgoing.bytes_in_memory for each in world.processor.connections)


@pytest.fixture
def most(world: NetworkWorld) -> int:
    """Room for two answers and a half, beyond what sockets take."""
    world.respond_with([frame(bytes(ANSWER))])
    client = ask(world)
    found = 5 * kept(world) // 2
    world.processor._unread._max_bytes = found
    client.close()
    world.until(lambda: not world.processor.connections)
    return found


def test_answers_that_nobody_reads_are_bounded_together(world: NetworkWorld, most: int) -> None:
    """Each is bounded by its API: a hundred clients had a hundred of them."""
    clients = [ask(world) for _ in range(12)]

    assert 0 < kept(world) <= most
    assert {world.is_closed(each) for each in clients[:8]} == {True}
    assert len(world.receive(clients[-1], ANSWER)) == ANSWER


@pytest.mark.usefixtures("most")
def test_who_reads_slowly_stays_longer_than_who_does_not_read(world: NetworkWorld) -> None:
    """The one that moved last is the last to go."""
    slow, silent = ask(world), ask(world)
    world.receive(slow, 1_000_000)
    ask(world)

    assert world.is_closed(silent)
    assert len(world.receive(slow, ANSWER - 1_000_000)) == ANSWER - 1_000_000


@pytest.mark.usefixtures("most")
def test_one_answer_may_be_larger_than_all(world: NetworkWorld) -> None:
    """A reader that is alone with it gets it, and what was read counts no more."""
    size = 3 * ANSWER
    world.respond_with([frame(bytes(size))])
    for _ in range(2):
        assert len(world.receive(ask(world), size)) == size


@pytest.mark.usefixtures("most")
def test_connections_that_are_gone_are_forgotten(world: NetworkWorld) -> None:
    """Their answers went with them."""
    for _ in range(5):
        client = ask(world)
        client.close()
        world.until(lambda: not world.processor.connections)

    assert len(world.processor._unread.sizes) <= 3
    assert len(world.receive(ask(world), ANSWER)) == ANSWER


def begin(world: NetworkWorld, size: int, come: int) -> Client:
    """A client of whose request so many bytes come."""
    client = world.connect()
    world.send(client, frame(bytes(size))[: 4 + come])
    world.until(lambda: held(world) and not client.inbox)
    world.turn(5)
    world.clock.advance(1)
    return client


def held(world: NetworkWorld) -> int:
    return sum(each.frames.owned_bytes for each in world.processor.connections)


def test_half_requests_are_bounded_together(world: NetworkWorld) -> None:
    """Those whose rest has not come for longest end; one that is alone may have any size."""
    world.processor._begun._max_bytes = 6_000_000
    size, come = 2_000_000, 1_500_000
    clients = [begin(world, size, come) for _ in range(8)]

    assert 0 < held(world) <= 6_000_000
    assert {world.is_closed(each) for each in clients[:4]} == {True}
    world.send(clients[-1], bytes(size - come))
    assert len(world.receive(clients[-1], 4 + size)) == 4 + size
    large = world.connect()
    world.send(large, frame(bytes(7_000_000)))
    assert len(world.receive(large, 7_000_004)) == 7_000_004


def test_small_requests_and_answers_are_not_looked_at(world: NetworkWorld) -> None:
    """However many there are: what counts is not noted for each request."""
    world.processor._begun._max_bytes = world.processor._unread._max_bytes = LONG_BYTES
    clients = [begin(world, 20_000, 10_000) for _ in range(12)]

    assert {world.is_open(each) for each in clients} == {True}
    assert not world.processor._begun.sizes
