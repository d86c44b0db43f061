"""The processor over real sockets: framing, order, pipelining, bounds, closing, stopping."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections import Counter

import pytest
from network_world import NetworkWorld, frame

from ottla.errors import RemoteProtocolError
from ottla.network.connection import Connection
from ottla.network.frame_buffer import MAX_POOLED_BYTES, lasting
from ottla.network.processor import (
    RECEIVE_BYTES,
    TURN_LARGE_SENDS,
    TURN_NS,
    TURN_RECEIVE_BYTES,
)
from ottla.network.transport import PROBE_SECONDS
from ottla.runtime import FileRegion
from ottla.runtime.poller import READABLE
from ottla.testing import MemoryDisk

MANY = [f"request {number}".encode() for number in range(40)]


def test_whole_frames_are_answered_one_by_one(world: NetworkWorld) -> None:
    """The first of the triad: each frame in one piece."""
    client = world.connect()
    for body in MANY:
        world.send(client, frame(body))
        assert world.receive(client, len(frame(body))) == frame(body)

    assert world.requests == MANY


def test_frames_may_come_one_byte_at_a_time(world: NetworkWorld) -> None:
    """The second of the triad: however bytes are cut, the frames are the same."""
    client = world.connect()
    stream = b"".join(map(frame, MANY[:5]))
    for position in range(len(stream)):
        client.send(stream[position : position + 1])
        world.turn(1)

    assert world.receive(client, len(stream)) == stream
    assert world.requests == MANY[:5]


def test_many_frames_at_once_are_answered_in_order(world: NetworkWorld) -> None:
    """The third of the triad: a client that sends ahead gets its answers in its own order."""
    client = world.connect()
    stream = b"".join(map(frame, MANY)) + b"\0\0\0\x09half"
    world.send(client, stream)

    assert world.receive(client, len(stream) - 8) == stream[:-8]
    world.send(client, b" more")
    assert world.receive(client, 13) == frame(b"half more")


@pytest.mark.parametrize("size", [100, 32_764, 32_765, 200_000, 3_000_000, 8_000_000])
def test_frame_of_any_size_arrives_whole(world: NetworkWorld, size: int) -> None:
    """Below and above what is received at once, and with a small frame behind it."""
    client = world.connect()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    world.answer = lambda connection, request: connection.send([struct.pack(">i", 0)])
    world.send(client, frame(body) + frame(b"small"))
    world.receive(client, 8)

    assert world.requests == [body, b"small"]


def test_frame_is_writable_while_it_is_handled(world: NetworkWorld) -> None:
    """Offsets are stamped in place."""
    client = world.connect()

    def stamp(connection: Connection, request: memoryview) -> None:
        request[:2] = b"!!"
        connection.send([frame(bytes(request))])

    world.answer = stamp
    world.send(client, frame(b"..small") + frame(b".." + bytes(100_000)))

    assert world.receive(client, 11)[4:] == b"!!small"
    assert world.receive(client, 100_006)[4:6] == b"!!"


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 1001),
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
    ids=["2 GiB", "too large", "zero", "negative", "most negative", "HTTP", "TLS", "SSH"],
)
def test_size_that_is_none_closes_the_connection(new_world: object, head: bytes) -> None:
    """Nothing is handled, and the next client is served."""
    world = new_world(socket_request_max_bytes=1000)
    client = world.connect()
    client.send(head)

    assert world.is_closed(client)
    assert world.requests == []
    other = world.connect()
    world.send(other, frame(b"ok"))
    assert world.receive(other, 6) == frame(b"ok")


@pytest.mark.parametrize("junk", [1, 5_000, 300_000])
def test_answer_that_is_on_its_way_arrives_where_the_rest_is_not_read(
    new_world: object, junk: int
) -> None:
    """The client has sent much behind a size that is none, and its window is small."""
    world = new_world(socket_request_max_bytes=1000, socket_send_buffer_bytes=400_000)
    world.respond_with([frame(b"!" * 100_000)])
    client = world.connect(receive_buffer_bytes=2048)
    client.send(frame(b"asked"))
    world.until(lambda: world.requests)
    world.send(client, struct.pack(">i", -1) + bytes(junk))
    world.turn(10)

    assert world.receive(client, 100_004) == frame(b"!" * 100_000)
    assert world.is_closed(client)


@pytest.mark.parametrize("first", [5, 6, 100, 40_000])
def test_frame_above_the_limit_of_its_api_is_not_received(world: NetworkWorld, first: int) -> None:
    """Not to its end, at least: the size and the key of the API are its first six bytes."""
    world.processor.max_frame_bytes = {0: 0, 1: 50_000, 2: 200_000}.__getitem__
    frames = {key: struct.pack(">ihh", 100_000, key, 0) + bytes(99_996) for key in (1, 2)}
    allowed, refused = world.connect(), world.connect()
    allowed.send(frames[2][:first])
    refused.send(frames[1][:first])
    world.turn(3)
    with contextlib.suppress(ConnectionError):  # it may have been closed by now
        refused.send(frames[1][first:60_000])
    world.send(allowed, frames[2][first:])
    world.turn(5)

    assert world.requests == [frames[2][4:]]
    assert world.is_closed(refused)
    assert world.is_open(allowed)


def test_frames_above_the_limit_of_their_api_have_one_line(
    world: NetworkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A few bytes are enough for one, and the client comes again at once."""
    caplog.set_level(logging.INFO)
    world.processor.max_frame_bytes = lambda key: 1000
    for _ in range(3):
        client = world.connect()
        client.send(struct.pack(">ihh", 100_000, 1, 0))
        world.turn(3)
        with contextlib.suppress(ConnectionError):  # it may have been closed by now
            client.send(bytes(100))
        world.turn(5)
        assert world.is_closed(client)

    assert caplog.text.count("it may not have so many") == 1


def test_frame_of_the_largest_size_is_taken(new_world: object) -> None:
    """socket.request.max.bytes is the last size that is allowed."""
    world = new_world(socket_request_max_bytes=1000)
    client = world.connect()
    world.send(client, frame(b"x" * 1000))

    assert len(world.receive(client, 1004)) == 1004


def test_promised_bytes_take_no_memory_before_they_come(world: NetworkWorld) -> None:
    """100 clients promise 100 MB each, and send 100 bytes of it."""
    for _ in range(100):
        client = world.connect()
        client.send(struct.pack(">i", 100 * 1024 * 1024) + bytes(100))
    world.until(lambda: len(world.processor.connections) == 100)

    def owned() -> list[int]:
        return [each.frames.owned_bytes for each in world.processor.connections]

    world.until(lambda: all(owned()))
    world.turn(5)
    assert all(size <= 1024 for size in owned())


def test_next_request_waits_for_the_answer_to_the_last_one(world: NetworkWorld) -> None:
    """One request in flight per connection, however far ahead the client sends."""
    client, other = world.connect(), world.connect()
    world.answer = world.hold
    world.send(client, frame(b"first") + frame(b"second"))
    world.send(client, frame(b"third"))
    world.until(lambda: world.requests)
    world.turn()
    assert world.requests == [b"first"]

    world.answer = world.echo
    world.send(other, frame(b"other"))
    assert world.receive(other, 9) == frame(b"other")

    world.connections[0].send([frame(b"FIRST")])
    expected = frame(b"FIRST") + frame(b"second") + frame(b"third")
    assert world.receive(client, len(expected)) == expected


def test_bytes_that_come_as_an_answer_is_due_do_not_end_the_connection(world: NetworkWorld) -> None:
    """A whole request waits in the buffer, the answer before it is not sent yet, more arrives."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"first") + frame(b"second"))
    world.until(lambda: world.requests)
    world.answer = world.echo

    world.connections[0].send([frame(b"FIRST")])
    client.send(frame(b"third"))
    world.await_bytes(world.connections[0].transport)

    expected = frame(b"FIRST") + frame(b"second") + frame(b"third")
    assert world.receive(client, len(expected)) == expected


def test_request_without_response_lets_the_next_one_through(world: NetworkWorld) -> None:
    """acks=0: nothing is sent, in the same turn or later."""
    client = world.connect()
    world.answer = lambda connection, request: connection.no_response()
    world.send(client, frame(b"1") + frame(b"2"))
    world.until(lambda: len(world.requests) == 2)
    world.answer = world.hold
    world.send(client, frame(b"3") + frame(b"4"))
    world.until(lambda: len(world.requests) == 3)
    world.turn()
    assert world.requests == [b"1", b"2", b"3"]

    world.answer = world.echo
    world.connections[-1].no_response()
    assert world.receive(client, 5) == frame(b"4")


def test_frame_buffer_may_be_used_again_before_the_answer(world: NetworkWorld) -> None:
    """A late answer must not depend on the frame, and other requests do not mix with it."""
    slow, fast = world.connect(), world.connect()
    world.answer = world.hold
    world.send(slow, frame(b"s" * 300_000))
    world.until(lambda: world.requests)
    world.answer = world.echo
    world.send(fast, frame(b"f" * 300_000))
    assert world.receive(fast, 300_004) == frame(b"f" * 300_000)

    world.connections[0].send([frame(world.requests[0])])
    assert world.receive(slow, 300_004) == frame(b"s" * 300_000)


@pytest.mark.parametrize("size", [100, 70_000, 3_000_000, MAX_POOLED_BYTES + 1])
def test_what_is_kept_of_a_frame_stays_as_it_was(world: NetworkWorld, size: int) -> None:
    """Frames of the same sizes that come behind it do not change it, copied or not."""
    kept = []

    def keep(connection: Connection, request: memoryview) -> None:
        kept.append(lasting(request[size // 2 :]))
        connection.send([b"\0\0\0\0"])

    world.answer = keep
    clients = [world.connect() for _ in range(2)]
    for number in range(4):
        client = clients[number % 2]
        world.send(client, frame(b"%d" % number * size))
        world.until(lambda number=number: len(kept) > number)

    for number, part in enumerate(kept):
        assert part == b"%d" % number * (size - size // 2)


def test_delayed_answers_of_a_turn_are_sent_in_that_turn(world: NetworkWorld) -> None:
    """The stage between requests and sending completes what the requests made possible."""
    waiting, client = world.connect(), world.connect()
    world.answer = world.hold
    world.send(waiting, frame(b"wait"))
    world.until(lambda: world.requests)
    world.answer = world.echo
    world.complete_delayed = lambda: (
        len(world.requests) == 2 and world.connections[0].send([frame(b"done")])
    )
    client.send(frame(b"go"))
    world.until(lambda: len(world.requests) == 2)
    world.complete_delayed = lambda: None

    assert world.receive(waiting, 8) == frame(b"done")


def test_throttled_client_is_not_heard_until_its_time_is_over(world: NetworkWorld) -> None:
    """The answer goes out at once, the next request waits (KIP-219)."""
    client = world.connect()

    def throttle(connection: Connection, request: memoryview) -> None:
        world.echo(connection, request)
        connection.mute_until(world.clock.monotonic_ms() + 500)
        connection.mute_until(world.clock.monotonic_ms() + 100)

    world.answer = throttle
    world.send(client, frame(b"1") + frame(b"2"))
    assert world.receive(client, 5) == frame(b"1")
    world.send(client, frame(b"3"))
    world.advance(499)
    assert world.requests == [b"1"]

    world.answer = world.echo
    world.advance(1)
    assert world.receive(client, 10) == frame(b"2") + frame(b"3")


def test_client_that_leaves_is_forgotten(world: NetworkWorld) -> None:
    """Between requests, in the middle of one, and while its answer is awaited."""
    quiet, midway, waiting = (world.connect() for _ in range(3))
    world.answer = world.hold
    world.send(midway, frame(b"0123456789")[:8])
    world.send(waiting, frame(b"wait"))
    world.until(lambda: len(world.processor.connections) == 3)
    for client in (quiet, midway, waiting):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with linger 0: a reset
    world.until(lambda: len(world.processor.connections) == 0)

    world.connections[0].send([b"too late"])
    world.connections[0].mute_until(10_000)
    world.connections[0].close("again")
    world.turn()
    assert len(world.processor.connections) == 0


def test_client_that_closes_its_side_still_gets_the_answer_in_flight(world: NetworkWorld) -> None:
    """Half-closed: it says nothing more, and listens."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"last words"))
    world.until(lambda: world.requests)
    client.shutdown(socket.SHUT_WR)
    world.turn()
    world.connections[0].send([frame(b"heard")])

    assert world.receive(client, 9) == frame(b"heard")
    assert world.is_closed(client)


@pytest.mark.parametrize("answer", ["poll", "hold"])
def test_client_that_closes_while_its_request_waits_is_forgotten_at_once(
    world: NetworkWorld, answer: str
) -> None:
    """200 waiting requests without clients kept 200 descriptors, until their time was up."""
    world.answer = getattr(world, answer)
    clients = [world.connect() for _ in range(20)]
    for client in clients[:10]:
        world.send(client, frame(b"join"))
    for client in clients[10:]:
        world.send(client, frame(b"join") + frame(b"sent ahead"))
    world.until(lambda: len(world.requests) == 20)
    for client in clients:
        client.close()
    world.until(lambda: len(world.processor.connections) == 0)

    assert all(poll.is_completed for poll in world.polls)


def test_client_that_closes_its_side_gets_its_answers_whole_and_in_time(
    world: NetworkWorld,
) -> None:
    """It may be reading still: a byte of each answer is sent ahead, and the rest when it is due."""
    client = world.connect()
    world.answer = world.poll
    world.send(client, frame(b"first") + frame(b"second"))
    world.until(lambda: world.requests)
    world.send(client, frame(b"third"))
    client.shutdown(socket.SHUT_WR)

    for count in (1, 2, 3):
        assert world.receive(client, 1) == frame(b"heard")[:1]
        assert world.is_open(client)
        assert len(world.polls) == count
        world.polls[-1].force_complete()
        assert world.receive(client, 8) == frame(b"heard")[1:]
    assert world.is_closed(client)
    assert world.requests == [b"first", b"second", b"third"]


def test_half_closed_client_whose_answer_needs_no_wait_gets_it_in_one(world: NetworkWorld) -> None:
    """Requests and the end of the stream come together; nothing is sent ahead."""
    client = world.connect()
    client.send(frame(b"1") + frame(b"2"))
    client.shutdown(socket.SHUT_WR)

    assert world.receive(client, 10) == frame(b"1") + frame(b"2")
    assert world.is_closed(client)


def test_nothing_is_sent_ahead_of_a_request_that_has_no_answer(world: NetworkWorld) -> None:
    """A produce with acks=0 waits for its check; the byte would stand before the next answer."""

    def hold_without_answer(connection: Connection, request: memoryview) -> None:
        connection.is_answer_due = False

    client = world.connect()
    world.answer = hold_without_answer
    world.send(client, frame(b"acks=0") + frame(b"next"))
    world.until(lambda: world.requests)
    client.shutdown(socket.SHUT_WR)
    world.until(lambda: world.connections[0].is_half_closed)
    world.turn(10)
    client.pull()
    assert not client.inbox
    assert not client.closed_by_peer
    world.answer = world.hold
    world.connections[0].no_response()

    assert world.receive(client, 1) == b"\0"
    world.connections[0].send([frame(b"heard")])
    assert world.receive(client, 8) == frame(b"heard")[1:]


@pytest.mark.parametrize("client_count", [1, 2 * TURN_LARGE_SENDS + 1])
def test_half_closed_clients_get_answers_of_many_turns(new_world: object, client_count) -> None:
    """The end of a client is not taken for its going away while parts of its answer wait."""
    world = new_world(turn_max_send_bytes_per_connection=32 * 1024)
    answer = frame(bytes(200_000))
    file = MemoryDisk().open("/segment", create=True)
    file.pwrite(answer, 0)
    world.respond_with([FileRegion(file, 0, len(answer))])
    clients = [world.connect() for _ in range(client_count)]
    for client in clients:
        client.send(frame(b"one"))
        client.shutdown(socket.SHUT_WR)

    for client in clients:
        assert world.receive(client, len(answer)) == answer
    world.until(lambda: not world.processor.connections)


def test_half_closed_client_of_an_answer_that_begins_otherwise_is_closed(
    world: NetworkWorld,
) -> None:
    """Its first byte is sent: an answer of 16 MiB or more cannot follow."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"fetch"))
    world.until(lambda: world.requests)
    client.shutdown(socket.SHUT_WR)
    world.until(lambda: world.connections[0].is_half_closed)
    world.connections[0].send([struct.pack(">i", 1 << 24), bytes(1 << 24)])

    assert world.is_closed(client)
    assert "16 MiB" in world.connections[0].close_reason


def test_reset_releases_what_the_client_waited_for(world: NetworkWorld) -> None:
    """Nothing is read for an answer that goes nowhere."""
    client = world.connect()
    world.answer = world.poll
    world.send(client, frame(b"fetch"))
    world.until(lambda: world.polls)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # with linger 0: a reset
    world.until(lambda: len(world.processor.connections) == 0)

    assert world.polls[0].is_completed
    assert not world.connections[0].outgoing


def test_half_closed_client_that_still_reads_is_probed(world: NetworkWorld) -> None:
    """It may leave later without a word: the kernel asks every few seconds."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"join"))
    world.until(lambda: world.requests)
    client.shutdown(socket.SHUT_WR)
    world.until(lambda: world.connections[0].is_half_closed)

    served = socket.socket(fileno=socket.dup(world.connections[0].transport.fileno()))
    with served:
        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == PROBE_SECONDS
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == PROBE_SECONDS


def test_numbers_of_closed_descriptors_are_used_again(world: NetworkWorld) -> None:
    """Nothing that happened to the old connection happens to the new one of the same number."""
    numbers: list[int] = []
    for _ in range(6):
        old, new = world.connect(), world.new_client()
        world.answer = world.hold
        count = len(world.requests)
        world.send(old, frame(b"old"))
        world.until(lambda: len(world.requests) == count + 1)  # noqa: B023
        old.send(frame(b"unread"))
        old_connection = world.connections[-1]
        numbers.append(old_connection.transport.fileno())
        old_connection.close("for the test")
        world.turn()
        new.connect(("127.0.0.1", world.port))
        new.setblocking(False)
        world.answer = world.echo
        world.send(new, frame(b"new"))
        world.until(lambda: len(world.requests) == count + 2)  # noqa: B023
        numbers.append(world.connections[-1].transport.fileno())
        old_connection.send([b"late answer"])
        world.send(new, frame(b"again"))

        assert world.receive(new, 16) == frame(b"new") + frame(b"again")
        assert world.is_closed(old)
        for client in (old, new):
            client.close()
        world.until(lambda: len(world.processor.connections) == 0)
    assert len(set(numbers)) < len(numbers)


def test_client_is_accepted_in_the_turn_in_which_another_one_is_closed(
    world: NetworkWorld,
) -> None:
    """Closing comes last, so that the new connection has a number of its own in that turn."""
    old = world.connect()
    world.answer = lambda connection, request: connection.close("for the test")
    old.send(frame(b"close me"))
    world.await_bytes()
    new = world.connect()
    world.until(lambda: world.requests)
    world.answer = world.echo
    world.send(new, frame(b"new"))

    assert world.receive(new, 7) == frame(b"new")
    assert world.is_closed(old)


def test_bytes_that_are_no_request_close_the_connection(world: NetworkWorld) -> None:
    """What the decoder says about them is the reason."""

    def refuse(connection: Connection, request: memoryview) -> None:
        raise RemoteProtocolError("no such thing")

    world.answer = refuse
    client = world.connect()
    world.send(client, frame(b"nonsense") + frame(b"more"))

    assert world.is_closed(client)
    assert world.requests == [b"nonsense"]
    assert "no such thing" in world.connections[0].close_reason


def test_handler_that_fails_closes_only_its_connection(
    world: NetworkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, the other requests of the turn are answered."""

    def fail_on_demand(connection: Connection, request: memoryview) -> None:
        if request == b"fail":
            raise ValueError("out of order")
        world.echo(connection, request)

    world.answer = fail_on_demand
    bad, good = world.connect(), world.connect()
    with caplog.at_level(logging.ERROR):
        bad.send(frame(b"fail"))
        good.send(frame(b"good"))
        assert world.receive(good, 8) == frame(b"good")
        assert world.is_closed(bad)

    assert "out of order" in caplog.text


def test_failing_completion_of_delayed_work_stops_nothing(
    world: NetworkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers of that turn are sent all the same."""
    world.complete_delayed = lambda: 1 // 0
    client = world.connect()
    with caplog.at_level(logging.ERROR):
        world.send(client, frame(b"hello"))
        assert world.receive(client, 9) == frame(b"hello")

    assert "ZeroDivisionError" in caplog.text


def test_turn_is_bounded_in_requests(new_world: object) -> None:
    """A burst of 100 tiny requests takes several turns, in which others are heard."""
    world = new_world(turn_max_requests=10)
    greedy, modest = world.connect(), world.connect()
    world.until(lambda: len(world.processor.connections) == 2)
    greedy.send(b"".join(frame(b"%d" % number) for number in range(100)))
    modest.send(frame(b"modest"))
    world.await_bytes()
    assert world.receive(modest, 10) == frame(b"modest")

    assert world.requests.index(b"modest") <= 20
    world.until(lambda: len(world.requests) == 101)


def test_clients_with_many_requests_take_turns(new_world: object) -> None:
    """Each has as many handled in a turn as there is room for all of them, and one at least."""
    world = new_world(turn_max_requests=12)
    clients = [world.connect() for _ in range(4)]
    world.until(lambda: len(world.processor.connections) == 4)
    for number, client in enumerate(clients):
        client.send(b"".join(frame(b"%d" % number) for _ in range(30)))
    world.until(lambda: len(world.requests) == 120)

    firsts = [world.requests.index(b"%d" % number) for number in range(4)]
    assert max(firsts) <= 12


@pytest.mark.parametrize("client_count", [1, 5])
def test_client_that_is_reported_while_some_are_left_is_heard_behind_them(
    world: NetworkWorld, client_count: int
) -> None:
    """A poller reports so many at most: it may be others whenever none is left."""
    busy = [world.connect() for _ in range(2 * TURN_RECEIVE_BYTES // RECEIVE_BYTES)]
    late = [world.connect() for _ in range(client_count)]
    world.until(lambda: len(world.processor.connections) == len(busy + late))
    fds = {each.client_port: each.transport.fileno() for each in world.processor.connections}
    for client in busy:
        client.send(frame(b"b" * (RECEIVE_BYTES - 4)))
    for client in late:
        client.send(frame(b"late"))
    world.await_bytes(*(each.transport for each in world.processor.connections))

    for clients in (busy, late, late):
        ready = [(fds[each.getsockname()[1]], READABLE) for each in clients]
        world.processor.drain(ready)
    for _ in range(4):
        world.processor.drain()

    assert world.requests[len(busy) :] == [b"late"] * client_count


def test_turn_is_bounded_in_time(new_world: object) -> None:
    """Slow requests of one client or of many leave the rest to later turns."""
    world = new_world()
    answer, taken = world.answer, []

    def slowly(connection: Connection, request: memoryview) -> object:
        world.clock.advance(TURN_NS // 2_000_000)
        taken.append(world.processor.turn_began_ns)
        return answer(connection, request)

    world.answer = slowly
    clients = [world.connect() for _ in range(3)]
    world.until(lambda: len(world.processor.connections) == 3)
    for client in clients:
        client.send(b"".join(frame(b"x") for _ in range(10)))
    world.until(lambda: len(world.requests) == 30)

    assert max(Counter(taken).values()) <= 2


def test_stop_sends_what_is_owed_and_then_closes(world: NetworkWorld) -> None:
    """A request in flight is answered; one behind it is not begun; new clients are refused."""
    client, idle = world.connect(), world.connect()
    world.answer = world.hold
    world.send(client, frame(b"in flight") + frame(b"behind"))
    world.until(lambda: world.requests)
    stopping = world.loop.create_task(world.processor.stop(timeout_ms=1000))
    world.turn()
    assert world.is_closed(idle)
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    assert not stopping.done()

    world.connections[0].send([frame(b"answer")])
    world.until(stopping.done)
    assert world.receive(client, 10) == frame(b"answer")
    assert world.requests == [b"in flight"]


def test_stop_closes_everything_at_its_deadline(world: NetworkWorld) -> None:
    """A request that nobody answers does not keep the broker."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"for ever"))
    world.until(lambda: world.requests)
    stopping = world.loop.create_task(world.processor.stop(timeout_ms=1000))
    world.turn()
    world.advance(999)
    assert not stopping.done()
    world.advance(1)

    assert stopping.done()
    assert world.is_closed(client)


def test_stop_can_be_called_again_with_an_earlier_deadline(world: NetworkWorld) -> None:
    """Both calls return when the earlier deadline is over, whoever asked for it."""
    client = world.connect()
    world.answer = world.hold
    world.send(client, frame(b"for ever"))
    world.until(lambda: world.requests)
    stops = [world.loop.create_task(world.processor.stop(limit_ms)) for limit_ms in (9_000, 1_000)]
    world.turn()
    world.advance(1_000)

    assert all(stop.done() for stop in stops)
    assert world.is_closed(client)


def test_processor_that_was_never_started_can_be_stopped() -> None:
    """A broker may fail between opening its listeners and serving them."""
    world = NetworkWorld()
    world.close()

    assert len(world.processor.connections) == 0


def test_sizes_of_socket_buffers_are_set(new_world: object) -> None:
    """socket.send.buffer.bytes and socket.receive.buffer.bytes reach the kernel."""
    world = new_world(socket_send_buffer_bytes=20_000, socket_receive_buffer_bytes=30_000)
    client = world.connect()
    world.send(client, frame(b"hello"))
    world.receive(client, 9)
    served = socket.socket(fileno=socket.dup(world.connections[0].transport.fileno()))
    with served:
        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 40_000
        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60_000
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def throttle(world: NetworkWorld, delay_ms: int) -> None:
    """From now on, answer requests and then hold their connections."""

    def answer(connection: Connection, request: memoryview) -> None:
        world.echo(connection, request)
        connection.mute_until(world.clock.monotonic_ms() + delay_ms)

    world.answer = answer


def test_throttled_connection_is_answered_and_then_held(world: NetworkWorld) -> None:
    """Its next requests wait, sent together or later, until the time is over."""
    throttle(world, 500)
    client, other = world.connect(), world.connect()
    world.send(client, frame(b"one") + frame(b"two"))
    assert world.receive(client, 7) == frame(b"one")
    world.send(client, frame(b"three"))
    world.turn(5)
    assert world.requests == [b"one"]
    world.send(other, frame(b"another client"))
    assert world.receive(other, 18)

    world.scheduler.advance(499)
    world.turn(5)
    assert world.requests == [b"one", b"another client"]
    world.scheduler.advance(1)
    assert world.receive(client, 7) == frame(b"two")
    world.scheduler.advance(500)
    assert world.receive(client, 9) == frame(b"three")


def test_longer_delay_replaces_a_shorter_one(world: NetworkWorld) -> None:
    """A longer delay replaces a shorter one, and a shorter one changes nothing."""
    throttle(world, 500)
    client = world.connect()
    world.send(client, frame(b"one"))
    world.receive(client, 7)
    (connection,) = world.connections
    connection.mute_until(world.clock.monotonic_ms() + 800)
    connection.mute_until(world.clock.monotonic_ms() + 100)
    world.send(client, frame(b"two"))
    world.scheduler.advance(799)
    world.turn(5)
    assert world.requests == [b"one"]
    world.scheduler.advance(1)
    assert world.receive(client, 7) == frame(b"two")


def test_throttled_connection_that_is_closed_leaves_no_timer(world: NetworkWorld) -> None:
    """A delay may be hours long; the client may come and go meanwhile."""
    throttle(world, 10**9)
    client = world.connect()
    world.send(client, frame(b"one"))
    world.receive(client, 7)
    (connection,) = world.connections
    assert connection.throttle_timer is not None
    client.close()
    world.until(lambda: not world.processor.connections)
    assert connection.throttle_timer is None


def test_throttled_client_that_closes_its_side_gets_every_answer(world: NetworkWorld) -> None:
    """What it has sent before waits in the socket until its time is over, and then the end."""
    throttle(world, 500)
    client = world.connect()
    world.send(client, frame(b"one"))
    assert world.receive(client, 7) == frame(b"one")
    world.send(client, frame(b"two"))
    client.shutdown(socket.SHUT_WR)
    world.until(lambda: world.connections[0].is_half_closed)
    world.turn(5)
    assert not world.connections[0].is_closing
    world.scheduler.advance(500)
    assert world.receive(client, 7) == frame(b"two")
    assert world.is_closed(client)


def test_throttled_connection_is_closed_at_once_when_the_broker_stops(world: NetworkWorld) -> None:
    """Its answer has been sent: there is nothing to wait for."""
    throttle(world, 10**9)
    client = world.connect()
    world.send(client, frame(b"one"))
    world.receive(client, 7)
    world.loop.run_until_complete(world.processor.stop(60_000))
    assert world.is_closed(client)
