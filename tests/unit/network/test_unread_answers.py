"""Clients that ask and do not read: which of them are closed, and when."""

from __future__ import annotations

import pytest
from network_world import Client, NetworkWorld, frame

from ottla.network import unread_answers

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
def most(world: NetworkWorld, monkeypatch: pytest.MonkeyPatch) -> int:
    """Room for two answers and a half, beyond what sockets take."""
    world.respond_with([frame(bytes(ANSWER))])
    client = ask(world)
    found = 5 * kept(world) // 2
    monkeypatch.setattr(unread_answers, "MAX_BYTES", found)
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
    size = 4 * ANSWER
    world.respond_with([frame(bytes(size))])
    for _ in range(3):
        assert len(world.receive(ask(world), size)) == size


@pytest.mark.usefixtures("most")
def test_connections_that_are_gone_are_forgotten(world: NetworkWorld) -> None:
    """Their answers went with them."""
    for _ in range(5):
        client = ask(world)
        client.close()
        world.until(lambda: not world.processor.connections)

    assert len(world.processor._unread._sizes) <= 3
    assert len(world.receive(ask(world), ANSWER)) == ANSWER
