"""The processor over real sockets with TLS on them."""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from network_world import PATIENCE_S, NetworkWorld, frame
from tls_world import TlsClient, listening, trusting

from ottla.network.acceptor import TURN_NS
from ottla.network.handshakes import TURN_STEPS
from ottla.network.tls_transport import MAX_HELLO_BYTES, TlsTransport
from ottla.runtime import FileRegion, LocalDisk


class TlsWorld:
    """A processor with a listener of each kind."""

    def __init__(self, world: NetworkWorld, certificates) -> None:
        self.world = world
        self.port = world.processor.listen("SSL", "127.0.0.1", 0).port
        self.certificates = certificates
        self.context = trusting(certificates)

    def client(self, **settings: str) -> TlsClient:
        """One who has not said anything yet, with ssl.* settings of its own."""
        return TlsClient(self.world, self.port, trusting(self.certificates, **settings))

    def connect(self, **settings: str) -> TlsClient:
        return self.client(**settings).shake_hands()


@pytest.fixture
def new_tls(new_world: Callable[..., NetworkWorld], certificates) -> Callable[..., TlsWorld]:
    """Makes one with settings of its own."""

    def make(ssl_settings: dict[str, str] | None = None, **config: object) -> TlsWorld:
        listener = listening(certificates, **ssl_settings or {})
        return TlsWorld(new_world(tls={"SSL": listener}, **config), certificates)

    return make


@pytest.fixture
def tls(new_tls: Callable[..., TlsWorld]) -> TlsWorld:
    """One with Kafka's settings."""
    return new_tls()


def test_requests_are_answered_in_order(tls: TlsWorld) -> None:
    """Sent one by one, many in a record, and a byte of ciphertext at a time."""
    client = tls.connect()
    client.send(frame(b"one"))
    assert client.receive(7) == frame(b"one")
    burst = b"".join(frame(b"%d" % number) for number in range(1000))
    client.send(burst)
    assert client.receive(len(burst)) == burst
    for byte in client.end.write(frame(b"slow")):
        tls.world.send(client.socket, bytes([byte]))

    assert client.receive(8) == frame(b"slow")


def test_large_requests_are_received_whole(tls: TlsWorld) -> None:
    """Larger than any buffer, and followed by another one in the same record."""
    client, body = tls.connect(), os.urandom(3_000_001)
    client.send(frame(body) + frame(b"next"))
    answer = client.receive(len(body) + 12)

    assert answer == frame(body) + frame(b"next")


def test_request_that_tls_holds_is_handled_when_its_turn_comes(tls: TlsWorld) -> None:
    """A large request fills its buffer exactly; what came with it is seen without any new byte."""
    client = tls.connect()
    tls.world.answer = tls.world.hold
    client.send(frame(bytes(100_000)) + frame(b"behind"))
    tls.world.until(lambda: len(tls.world.requests) == 1)
    tls.world.turn(5)
    assert len(tls.world.requests) == 1

    tls.world.connections[0].send([frame(b"answer")])
    tls.world.until(lambda: len(tls.world.requests) == 2)
    assert tls.world.requests[1] == b"behind"


def test_request_behind_throttling_is_handled_in_time(tls: TlsWorld) -> None:
    """Unmuting by the clock finds it as well."""
    client = tls.connect()

    def throttled(connection, request) -> None:
        if len(tls.world.requests) == 1:
            connection.mute_until(tls.world.clock.monotonic_ms() + 1000)
        connection.send([frame(b"ok")])

    tls.world.answer = throttled
    client.send(frame(bytes(100_000)) + frame(b"behind"))
    tls.world.until(lambda: len(tls.world.requests) == 1)
    tls.world.turn(10)
    assert len(tls.world.requests) == 1
    tls.world.advance(1001)
    tls.world.until(lambda: len(tls.world.requests) == 2)


def test_those_whose_answers_are_due_are_not_looked_at_in_each_turn(tls: TlsWorld) -> None:
    """However many have sent ahead; each is read on once it has its answer, or has gone."""
    clients = [tls.connect() for _ in range(3)]
    tls.world.answer = tls.world.hold
    for client in clients:
        client.send(frame(bytes(100_000)) + frame(b"behind"))
    tls.world.until(lambda: len(tls.world.requests) == 3)
    tls.world.turn(5)
    side = tls.world.processor._handshakes.side
    assert (len(side.ahead), len(side.parked)) == (0, 3)

    first, second, third = tls.world.connections
    first.send([frame(b"answer")])
    second.mute_until(tls.world.clock.monotonic_ms() + 1_000)
    second.send([frame(b"answer")])
    third.close("it has gone")
    tls.world.until(lambda: len(tls.world.requests) == 4)
    tls.world.turn(5)
    assert len(side.parked) == 1
    tls.world.advance(1_001)
    tls.world.until(lambda: len(tls.world.requests) == 5)
    assert tls.world.requests[3:] == [b"behind"] * 2
    assert not side.parked


def test_files_are_read_and_encrypted(tls: TlsWorld, tmp_path: Path) -> None:
    """Twelve megabytes and what stands around them, byte for byte."""
    content = os.urandom(12_000_000)
    file = LocalDisk().open(str(tmp_path / "segment"), create=True)
    file.pwrite(content, 0)
    tls.world.respond_with([b"head", FileRegion(file, 7, 11_000_000), b"tail"])
    client = tls.connect()
    client.send(frame(b"fetch"))

    assert client.receive(11_000_008) == b"head" + content[7:11_000_007] + b"tail"
    file.close()


def test_slow_reader_does_not_hold_others(tls: TlsWorld) -> None:
    """Its answers wait, bounded, as they do without TLS."""
    file = tls.world.runtime.disk.open("/segment", create=True)
    file.pwrite(bytes(range(256)) * 40_000, 0)
    tls.world.respond_with([FileRegion(file, 0, 10_000_000)])
    slow, quick = tls.connect(), tls.connect()
    slow.send(frame(b"fetch"))
    tls.world.until(lambda: any(each.outgoing for each in tls.world.connections))
    tls.world.turn(50)
    (blocked,) = {each for each in tls.world.connections if each.outgoing}
    assert blocked.transport.wants_to_send

    quick.send(frame(b"fetch"))
    assert len(quick.receive(10_000_000)) == 10_000_000
    assert slow.receive(10_000_000) == bytes(range(256)) * 39_062 + bytes(range(128))


def test_both_kinds_of_listeners_serve_at_once(tls: TlsWorld) -> None:
    """What is plain stays plain."""
    plain, secure = tls.world.connect(), tls.connect()
    tls.world.send(plain, frame(b"plain"))
    secure.send(frame(b"secure"))

    assert tls.world.receive(plain, 9) == frame(b"plain")
    assert secure.receive(10) == frame(b"secure")
    assert [each.listener_name for each in tls.world.connections] == ["PLAINTEXT", "SSL"]


@pytest.mark.parametrize(
    "data",
    [
        frame(b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        bytes(1000),
        b"\xff" * 1000,
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    ],
    ids=["a Kafka request", "HTTP", "SSH", "zeros", "ones", "a record too large"],
)
def test_bytes_that_are_no_tls_are_closed(tls: TlsWorld, data: bytes, caplog) -> None:
    """With one line in the log that says who it was; the next one is served."""
    caplog.set_level(logging.INFO, logger="ottla.network")
    client = tls.world.connect(tls.port)
    try:
        tls.world.send(client, data)
    except (ConnectionResetError, BrokenPipeError):
        pass  # it was closed before it was through

    assert tls.world.is_closed(client)
    (line,) = [each.message for each in caplog.records]
    assert line.startswith(f"TLS handshake of 127.0.0.1:{client_port(client)} on listener SSL fail")
    tls.connect()


def client_port(client) -> int:
    return client.getsockname()[1]


def test_tls_on_a_plain_port_is_closed(tls: TlsWorld) -> None:
    """Its first bytes are no size that a request has."""
    client = TlsClient(tls.world, tls.world.port, tls.context)
    tls.world.send(client.socket, client.end.outbox)

    assert tls.world.is_closed(client.socket)


def test_handshake_that_takes_too_long_is_closed(new_tls: Callable[..., TlsWorld], caplog) -> None:
    """However slowly it goes on sending (slow loris); connections that are open stay open."""
    caplog.set_level(logging.INFO, logger="ottla.network")
    tls = new_tls(tls_handshake_timeout_ms=5000)
    silent, slow, done = tls.world.connect(tls.port), tls.client(), tls.connect()
    for byte in slow.end.outbox[:49]:
        tls.world.send(slow.socket, bytes([byte]))
        tls.world.advance(100)
    assert tls.world.is_open(slow.socket)
    tls.world.advance(101)

    assert tls.world.is_closed(slow.socket)
    assert tls.world.is_closed(silent)
    reasons = [each.message.partition(": ")[2] for each in caplog.records]
    assert reasons == ["not done within 5000 ms"]  # those of one host have one line
    done.send(frame(b"still here"))
    assert done.receive(14) == frame(b"still here")


def test_failed_handshakes_give_their_places_back(new_tls: Callable[..., TlsWorld]) -> None:
    """Of max.connections."""
    tls = new_tls(max_connections=1)
    for _ in range(3):
        client = tls.world.connect(tls.port)
        tls.world.send(client, b"no TLS at all\r\n")
        assert tls.world.is_closed(client)
    tls.connect()

    assert len(tls.world.processor.connections) == 1


def test_handshakes_of_a_turn_are_bounded(tls: TlsWorld) -> None:
    """A signature costs as much as hundreds of requests; those left over have the next turn."""
    clients = [tls.client() for _ in range(TURN_STEPS + 4)]
    for client in clients:
        client.socket.send(client.end.outbox)
    handshakes = tls.world.processor._handshakes._by_fd.values()
    tls.world.await_bytes(*(each.transport for each in handshakes))
    tls.world.look()
    answered = set()
    while len(answered) < TURN_STEPS:  # the kernel may take a while to bring them
        waiting = [client.socket for client in set(clients) - answered]
        select.select(waiting, [], [], PATIENCE_S)
        answered |= {client for client in clients if client.socket.take()}
    assert len(answered) == TURN_STEPS

    for client in set(clients) - answered:
        tls.world.until(client.socket.take)


def test_handshakes_of_a_turn_have_a_limit_of_time(tls: TlsWorld, monkeypatch) -> None:
    """Sixteen signatures with a long key take longer than a broker may be held."""
    handshake = TlsTransport.handshake

    def slow(transport: TlsTransport) -> bool:
        tls.world.clock.advance(TURN_NS // 2_000_000)
        return handshake(transport)

    monkeypatch.setattr(TlsTransport, "handshake", slow)
    clients = [tls.client() for _ in range(TURN_STEPS)]
    for client in clients:
        client.socket.send(client.end.outbox)
    handshakes = tls.world.processor._handshakes
    tls.world.await_bytes(*(each.transport for each in handshakes._by_fd.values()))
    tls.world.look()
    assert TURN_STEPS - handshakes._steps_left == 2

    for client in clients:
        tls.world.until(client.socket.take)


def test_receiving_of_a_turn_has_a_limit_of_time(tls: TlsWorld, monkeypatch) -> None:
    """Records that carry little take long to decrypt; those that are left are read before long."""
    clients = [tls.connect() for _ in range(8)]
    receive, read = TlsTransport.recv_into, []

    def slow(transport: TlsTransport, target: memoryview) -> int:
        read.append(transport)
        tls.world.clock.advance(TURN_NS // 2_000_000)
        return receive(transport, target)

    monkeypatch.setattr(TlsTransport, "recv_into", slow)
    for client in clients:
        client.socket.send(client.end.write(frame(b"ping")))
    tls.world.await_bytes()
    tls.world.look()
    assert len(read) == 2

    for client in clients:
        assert client.receive(8) == frame(b"ping")
    assert len(set(read)) == 8


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01"])
def test_handshake_makes_room_for_a_broker(new_tls: Callable[..., TlsWorld], hello: bytes) -> None:
    """As clients do that are connected; those go on, and so does the broker that has come."""
    tls = new_tls(max_connections=3, inter_broker_listener_name="INTERNAL")
    internal = tls.world.processor.listen("INTERNAL", "127.0.0.1", 0)
    served, first, second = tls.connect(), *(tls.world.connect(tls.port) for _ in range(2))
    tls.world.send(first, hello)
    broker = tls.world.connect(internal.port)
    broker.send(frame(b"broker"))

    assert tls.world.receive(broker, 10) == frame(b"broker")
    assert tls.world.is_closed(first)
    assert tls.world.is_open(second)
    served.send(frame(b"client"))
    assert served.receive(10) == frame(b"client")


def test_handshake_of_very_many_bytes_is_closed(
    new_tls: Callable[..., TlsWorld], certificates, tmp_path: Path, caplog
) -> None:
    """Each certificate is read before one is verified; a chain is taken up to the bound."""
    caplog.set_level(logging.INFO, logger="ottla.network")
    tls = new_tls(ASKS | {"ssl_truststore_location": certificates.ca})
    key, ca = (Path(each).read_text() for each in (certificates.alice, certificates.ca))
    long, longer = tmp_path / "long.pem", tmp_path / "longer.pem"
    fitting = (MAX_HELLO_BYTES - 4 * 1024) // len(ssl.PEM_cert_to_DER_cert(ca))
    long.write_text(key + ca * fitting)
    longer.write_text(key + ca * 2 * fitting)
    assert principal_of(tls, ssl_keystore_location=str(long)).startswith("User:CN=alice")
    client = tls.client(ssl_keystore_location=str(longer))

    def is_closed() -> bool:
        if not client.socket.closed_by_peer:
            client.pump()
        return client.socket.closed_by_peer

    tls.world.until(is_closed)
    (line,) = [each.message for each in caplog.records]
    assert line.endswith(f"it has sent {MAX_HELLO_BYTES} bytes, and no end")


def test_stop_closes_handshakes_too(tls: TlsWorld) -> None:
    """Nobody is left hanging."""
    client = tls.client()
    tls.world.loop.run_until_complete(tls.world.processor.stop(0))

    assert tls.world.is_closed(client.socket)


def test_hang_up_is_noticed(tls: TlsWorld) -> None:
    """With goodbye or without."""
    polite, rude = tls.connect(), tls.connect()
    with pytest.raises(Exception, match="read"):
        polite.end.tls.unwrap()
    tls.world.send(polite.socket, polite.end.outbox)
    rude.socket.close()

    tls.world.until(lambda: len(tls.world.processor.connections) == 0)


@pytest.mark.parametrize("answer", ["poll", "hold"])
def test_hang_up_while_a_request_waits_is_noticed(tls: TlsWorld, answer: str) -> None:
    """With goodbye or without; it kept its descriptor until the request had waited its time."""
    polite, rude = tls.connect(), tls.connect()
    tls.world.answer = getattr(tls.world, answer)
    for client in (polite, rude):
        client.send(frame(b"join"))
    tls.world.until(lambda: len(tls.world.requests) == 2)
    with pytest.raises(Exception, match="read"):
        polite.end.tls.unwrap()
    tls.world.send(polite.socket, polite.end.outbox)
    polite.socket.close()
    rude.socket.close()

    tls.world.until(lambda: len(tls.world.processor.connections) == 0)


def test_half_closed_client_gets_its_answer(tls: TlsWorld) -> None:
    """It has said goodbye and closed its side of TCP, and still reads."""
    client = tls.connect()
    tls.world.answer = tls.world.poll
    client.send(frame(b"fetch"))
    tls.world.until(lambda: tls.world.polls)
    with pytest.raises(Exception, match="read"):
        client.end.tls.unwrap()
    tls.world.send(client.socket, client.end.outbox)
    client.socket.shutdown(socket.SHUT_WR)

    assert client.receive(1) == frame(b"heard")[:1]
    tls.world.polls[0].force_complete()
    assert client.receive(8) == frame(b"heard")[1:]


@pytest.mark.parametrize("rest", [b"", b"\0\0\1\0", b"\0\0\1\0half"])
@pytest.mark.parametrize("with_goodbye", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_client_that_ends_its_side_gets_its_answers_and_the_end(
    tls: TlsWorld, rest: bytes, with_goodbye: bool, at_once: bool
) -> None:
    """By TLS alone or by TCP alone, with the last request or later, also in the middle of one."""
    client = tls.connect()
    tls.world.answer = tls.world.hold
    last = client.end.write(frame(b"wanted") + rest)
    if with_goodbye:
        with pytest.raises(ssl.SSLWantReadError):
            client.end.tls.unwrap()
    goodbye = client.end.outbox
    if at_once:
        tls.world.send(client.socket, last + goodbye)
    else:
        tls.world.send(client.socket, last)
        tls.world.turn(5)
        tls.world.send(client.socket, goodbye)
    if not with_goodbye:
        client.socket.shutdown(socket.SHUT_WR)
    tls.world.until(lambda: tls.world.requests)
    tls.world.turn(5)
    (connection,) = tls.world.processor.connections
    connection.send([frame(b"answer")])

    assert client.receive(10) == frame(b"answer")
    assert tls.world.is_closed(client.socket)


def test_random_bytes_after_the_handshake_are_closed(tls: TlsWorld) -> None:
    """Nothing of them reaches a handler."""
    client = tls.connect()
    tls.world.send(client.socket, b"\x17\x03\x03\x01\x00" + os.urandom(256))

    assert tls.world.is_closed(client.socket)
    assert not tls.world.requests


ASKS = {"ssl_client_auth": "requested"}


def principal_of(tls: TlsWorld, **settings: str) -> str:
    """The name under which a client that has sent a request is known."""
    client = tls.connect(**settings)
    client.send(frame(b"who am I"))
    client.receive(12)
    return str(tls.world.connections[-1].principal)


def test_client_has_the_name_of_its_certificate(
    new_tls: Callable[..., TlsWorld], certificates
) -> None:
    """As Java writes it; without a certificate, or where none is asked for, it is anonymous."""
    shown = {"ssl_keystore_location": certificates.alice}
    asking = new_tls(ASKS | {"ssl_truststore_location": certificates.ca})

    assert principal_of(asking, **shown) == "User:CN=alice,OU=Clients,O=Example\\, Inc."
    assert principal_of(asking) == "User:ANONYMOUS"
    assert principal_of(new_tls(), **shown) == "User:ANONYMOUS"


def test_mapping_rules_shorten_the_name(new_tls: Callable[..., TlsWorld], certificates) -> None:
    """By ssl.principal.mapping.rules of the listener."""
    rules = "RULE:^CN=(.*?),OU=Clients,.*$/$1/U,DEFAULT"
    trusted = {"ssl_truststore_location": certificates.ca}
    tls = new_tls(ASKS | trusted | {"ssl_principal_mapping_rules": rules})

    assert principal_of(tls, ssl_keystore_location=certificates.alice) == "User:ALICE"


def test_client_without_a_name_is_closed(
    new_tls: Callable[..., TlsWorld], certificates, caplog
) -> None:
    """Its certificate is good, but no rule has a name for it; nothing that it sends is handled."""
    caplog.set_level(logging.INFO, logger="ottla.network")
    trusted = {"ssl_truststore_location": certificates.ca}
    tls = new_tls(ASKS | trusted | {"ssl_principal_mapping_rules": "RULE:CN=bob.*/bob/"})
    client = tls.client(ssl_keystore_location=certificates.alice)

    def is_closed() -> bool:
        if not client.socket.closed_by_peer:
            client.pump()
        return client.socket.closed_by_peer

    tls.world.until(is_closed)
    (line,) = [each.message for each in caplog.records]
    assert line.endswith(
        "on listener SSL failed: no rule of ssl.principal.mapping.rules matches the certificate of "
        "CN=alice,OU=Clients,O=Example\\, Inc."
    )
    assert not tls.world.requests
    assert principal_of(tls) == "User:ANONYMOUS"
