"""Produces that are appended and wait for an acknowledgement: the next ones are taken meanwhile."""

import socket

import pytest
from network_world import Client, NetworkWorld, frame

from ottla.errors import RemoteProtocolError
from ottla.network.connection import MAX_UNACKNOWLEDGED, Connection
from ottla.runtime import DelayedOperation

PRODUCE, FETCH = b"\0\0", b"\0\1"
NUMBERS = [str(number).encode() for number in range(MAX_UNACKNOWLEDGED + 2)]


class Unacknowledged(DelayedOperation):
    """What gives the answer; the test does so in its place."""

    def __init__(self) -> None:
        super().__init__(600_000)
        self.is_given_up = False

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        raise AssertionError("the test acknowledges")

    def cancel(self) -> None:
        self.is_given_up = True


class Leader:
    """Appends each produce at once, and answers all other requests with an echo."""

    def __init__(self, world: NetworkWorld) -> None:
        world.answer = self.serve
        self.world = world
        self.waiting: dict[bytes, tuple[Connection, Unacknowledged]] = {}

    def serve(self, connection: Connection, request: memoryview) -> None:
        key, name = bytes(request[:2]), bytes(request[2:])
        if key == PRODUCE and not name.startswith(b"acks"):
            self.waiting[name] = connection, Unacknowledged()
            connection.await_acknowledgement(name, self.waiting[name][1])
        elif name == b"acks=0":
            connection.no_response()
        else:
            connection.send([frame(name)])

    def acknowledge(self, *names: bytes) -> None:
        for name in names:
            connection, _ = self.waiting.pop(name)
            connection.send([frame(name)], name)


@pytest.fixture
def leader(world: NetworkWorld) -> Leader:
    return Leader(world)


@pytest.fixture
def client(world: NetworkWorld) -> Client:
    return world.connect()


def produces(names: list[bytes]) -> bytes:
    return b"".join(frame(PRODUCE + name) for name in names)


def names_of(world: NetworkWorld) -> list[bytes]:
    """The requests that have been handed over, without the keys of their APIs."""
    return [request[2:] for request in world.requests]


def sent(world: NetworkWorld, client: Client, data: bytes, count: int) -> None:
    """Send, and wait until `count` requests have been handed over, and no more."""
    world.send(client, data)
    world.until(lambda: len(world.requests) == count)
    world.turn(10)
    assert len(world.requests) == count


@pytest.mark.parametrize("is_one_packet", [True, False])
def test_produces_are_appended_while_others_await_acknowledgements(
    world: NetworkWorld, leader: Leader, client: Client, is_one_packet: bool
) -> None:
    """As many as may wait; the next one comes in with an acknowledgement."""
    if is_one_packet:
        sent(world, client, produces(NUMBERS), MAX_UNACKNOWLEDGED)
    else:
        for count, name in enumerate(NUMBERS, 1):
            sent(world, client, produces([name]), min(count, MAX_UNACKNOWLEDGED))
    assert not client.take()
    leader.acknowledge(NUMBERS[0])
    world.until(lambda: len(world.requests) == MAX_UNACKNOWLEDGED + 1)

    assert world.receive(client, 5) == frame(NUMBERS[0])
    leader.acknowledge(*NUMBERS[1:-1])
    world.until(lambda: len(world.requests) == len(NUMBERS))
    leader.acknowledge(NUMBERS[-1])
    rest = b"".join(map(frame, NUMBERS[1:]))
    assert world.receive(client, len(rest)) == rest
    assert names_of(world) == NUMBERS


def test_answers_keep_the_order_of_the_requests(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """Whichever is acknowledged first, or needs no acknowledgement, or has no answer."""
    names = [b"1", b"2", b"acks=1", b"acks=0", b"3"]
    sent(world, client, produces(names), len(names))
    leader.acknowledge(b"3", b"2")
    world.turn(10)
    assert not client.take()
    leader.acknowledge(b"1")

    answers = b"".join(map(frame, [b"1", b"2", b"acks=1", b"3"]))
    assert world.receive(client, len(answers)) == answers


def test_any_other_request_waits_for_the_answers_before_it(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """It may ask for the effect of what was sent before."""
    stream = produces([b"1", b"2"]) + frame(FETCH + b"3") + produces([b"4"])
    sent(world, client, stream, 2)
    leader.acknowledge(b"1")
    world.turn(10)
    assert names_of(world) == [b"1", b"2"]
    leader.acknowledge(b"2")
    world.until(lambda: len(world.requests) == 4)
    leader.acknowledge(b"4")

    answers = b"".join(map(frame, [b"1", b"2", b"3", b"4"]))
    assert world.receive(client, len(answers)) == answers


def test_client_that_closes_its_side_gets_the_answers_that_it_is_owed(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """The first byte of the first one at once, so that a client that is gone is found."""
    sent(world, client, produces([b"1", b"2"]), 2)
    client.shutdown(socket.SHUT_WR)

    assert world.receive(client, 1) == b"\0"
    leader.acknowledge(b"2", b"1")
    answers = (frame(b"1") + frame(b"2"))[1:]
    assert world.receive(client, len(answers)) == answers
    assert world.is_closed(client)


def test_waits_end_with_the_connection(world: NetworkWorld, leader: Leader, client: Client) -> None:
    """An answer that comes later goes nowhere, and is no mistake."""
    sent(world, client, produces([b"1", b"2"]), 2)
    waiting = dict(leader.waiting)
    waiting[b"1"][0].close("an error")
    assert world.is_closed(client)

    assert all(operation.is_given_up for _, operation in waiting.values())
    leader.acknowledge(b"2")
    assert not waiting[b"1"][0].owes_answer


def test_wait_of_a_connection_that_is_closing_does_not_begin(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """A large batch is appended some time after its request."""
    world.answer = world.hold
    sent(world, client, produces([b"1"]), 1)
    operation = Unacknowledged()
    world.connections[0].close("an error")
    world.connections[0].await_acknowledgement(b"1", operation)

    assert operation.is_given_up
    assert not world.connections[0].owed


def test_stop_sends_the_answers_that_are_owed(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """No more requests are taken."""
    sent(world, client, produces([b"1", b"2"]), 2)
    stopping = world.loop.create_task(world.processor.stop(600_000))
    world.turn(1)
    world.send(client, produces([b"3"]))
    world.turn(10)
    leader.acknowledge(b"1", b"2")
    world.until(stopping.done)

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert names_of(world) == [b"1", b"2"]


@pytest.mark.parametrize("broken", ["frame", "request"])
def test_connection_that_breaks_the_protocol_is_closed_behind_the_answers_before(
    world: NetworkWorld, leader: Leader, client: Client, broken: str
) -> None:
    """Or records that are appended would be sent again, by a client that has no answer."""

    def serve(connection: Connection, request: memoryview) -> None:
        if bytes(request[2:]) == b"bad":
            raise RemoteProtocolError("a bad request")
        leader.serve(connection, request)

    world.answer = serve
    bad = frame(PRODUCE + b"bad") if broken == "request" else b"\0\0\0\0\0\0\0\0"
    world.send(client, produces([b"1", b"2"]) + bad + produces([b"3"]))
    world.until(lambda: len(world.requests) == (3 if broken == "request" else 2))
    assert world.is_open(client)
    leader.acknowledge(b"2", b"1")

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert world.is_closed(client)
    assert b"3" not in names_of(world)


def test_answers_that_are_not_sent_yet_are_sent_before_the_connection_is_closed(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """They were given in the turn in which the client breaks the protocol."""
    world.send(client, frame(FETCH + b"1") + frame(FETCH + b"2") + b"\0\0\0\0")

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert world.is_closed(client)


@pytest.mark.parametrize("ends", [True, False])
def test_half_a_request_leaves_the_answers_before_it(
    world: NetworkWorld, leader: Leader, client: Client, ends: bool
) -> None:
    """Its client closes its side within the request, or the request is larger than it may be."""
    world.processor.max_frame_bytes = lambda key: 1000
    sent(world, client, produces([b"1", b"2"]), 2)
    half = frame(PRODUCE + bytes(999))[:500]
    world.send(client, half[:100])
    if ends:
        client.shutdown(socket.SHUT_WR)
    else:
        world.send(client, half[100:])
    world.turn(10)
    leader.acknowledge(b"2", b"1")

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert world.is_closed(client)
    assert len(world.requests) == 2


def test_connection_with_waiting_produces_is_not_idle(new_world: object) -> None:
    """It waits for us, however long that takes."""
    world = new_world(connections_max_idle_ms=1000)
    leader, client = Leader(world), world.connect()
    sent(world, client, produces([b"1"]), 1)
    world.scheduler.advance(5000)
    assert world.is_open(client)
    leader.acknowledge(b"1")
    assert world.receive(client, 5) == frame(b"1")
    world.scheduler.advance(2500)

    assert world.is_closed(client)


def test_throttled_client_gets_the_answers_that_it_is_owed(
    world: NetworkWorld, leader: Leader, client: Client
) -> None:
    """Its next produce waits until the time of the quota is over."""
    sent(world, client, produces([b"1", b"2"]), 2)
    connection = world.connections[0]
    leader.acknowledge(b"1")
    connection.mute_until(world.clock.monotonic_ms() + 1000)
    world.send(client, produces([b"3"]))
    leader.acknowledge(b"2")

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert names_of(world) == [b"1", b"2"]
    world.scheduler.advance(1000)
    world.until(lambda: names_of(world) == [b"1", b"2", b"3"])
