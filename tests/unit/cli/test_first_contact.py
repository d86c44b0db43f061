"""A person who has forgotten a login or TLS is told at once, for each kind of listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.cli import first_contact
from ottla.cli.command_error import CommandError
from ottla.cli.first_contact import check_listener
from ottla.cli.terminal import Clients
from ottla.testing import InProcessBroker

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
VERSIONS = b"\0\0\0\x0a\0\0\0\1\0\0\0\0\0\0"
"""An answer to ApiVersions v0 that names none."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="module")
def broker(certificates) -> Iterator[InProcessBroker]:
    """One with a listener of each kind."""
    settings = {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in PROTOCOLS),
        "advertised.host.name": "localhost",
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": "PLAIN",
        **{
            f"listener.name.{each.lower()}.plain.sasl.jaas.config": f'{PLAIN} user_ann="secret";'
            for each in PROTOCOLS[2:]
        },
    }
    with InProcessBroker(**settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pause before the second look, and none who answers is late on a busy machine."""
    monkeypatch.setattr(first_contact, "PAUSE_S", 0)
    monkeypatch.setattr(first_contact, "LIMIT_S", 60)


def settings_of(certificates, protocol: str, ca: str = "") -> dict[str, str]:
    found = {"security.protocol": protocol, "client.id": "somebody"}
    if "SSL" in protocol:
        found["ssl.truststore.location"] = ca or certificates.ca
    if "SASL" in protocol:
        found |= {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "secret"}
    return found


def expected(client: str, listener: str) -> str:
    """In words of the line; empty where the client itself finds out, or all is well."""
    if ("SSL" in client) != ("SSL" in listener):
        return "has TLS" if "SSL" in listener else "has no TLS"
    return "wants a login" if "SASL" in listener and "SASL" not in client else ""


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("client", PROTOCOLS)
def test_listener_of_another_kind_is_told(broker, certificates, client, listener):
    """Nobody waits a minute for it; the line has the setting as it is."""
    port = next(each.port for each in broker.broker.end_points if each.listener_name == listener)
    settings = settings_of(certificates, client)
    words = expected(client, listener)
    if not words:
        check_listener("localhost", port, settings)
        return
    line = f"localhost:{port} closes .*={client}: its listener {words}, it seems"
    with pytest.raises(CommandError, match=line):
        check_listener("localhost", port, settings)


def test_tool_without_its_file_is_told(broker):
    """Its settings are empty then: the clients of all commands are opened in this way."""
    port = broker.broker.end_points[2].port
    for opening in (Clients().admin, Clients().producer, Clients().consumer):
        with pytest.raises(CommandError, match=r"security.protocol=PLAINTEXT: .* wants a login"):
            opening(f"localhost:{port}", {})


def test_certificate_that_is_not_trusted_is_left_to_the_client(broker, certificates):
    """It says why it does not trust the broker."""
    port = broker.broker.end_points[1].port
    check_listener("localhost", port, settings_of(certificates, "SSL", certificates.other_ca))


@contextmanager
def server(*answers: bytes | None) -> Iterator[int]:
    """Answers each connection in its way, and closes it; None says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(60)
                    connection.recv(1000)
                    if answer is None:
                        connection.recv(1000)  # until the client has had enough
                    else:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(60)


ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
SHORT = b"\x00\x00\x00\x20abc"
HELLO_FAILS = b"\x15\x03\x03\x00\x02\x02\x28"


@pytest.mark.parametrize("answer", [b"", ALERT, SHORT])
@pytest.mark.parametrize(("in_tls", "words"), [(HELLO_FAILS, "has TLS"), (b"", "no broker serves")])
def test_server_that_ends_a_connection_without_tls(answer, in_tls, words):
    """It has TLS only if it answers to that; the port of a container that is not up does not."""
    with server(*[answer, in_tls] * 2) as port, pytest.raises(CommandError, match=words):
        check_listener("127.0.0.1", port, {})


@pytest.mark.parametrize(("plain", "words"), [(VERSIONS, "has no TLS"), (b"", "no broker serves")])
def test_server_that_ends_a_connection_with_tls(certificates, plain, words):
    """It is a broker without TLS only if it answers to a client without."""
    settings = settings_of(certificates, "SSL")
    with server(*[b"", plain] * 2) as port, pytest.raises(CommandError, match=words):
        check_listener("127.0.0.1", port, settings)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x08abcdefgh",
        b"\x00\x00\x00\x02ab",
    ],
)
def test_other_protocols_are_left_to_the_client(answer):
    """It has words for what is no answer of Kafka's."""
    with server(answer) as port:
        check_listener("127.0.0.1", port, {})


def test_silent_server_is_left_to_the_client(monkeypatch):
    """A broker may still read its logs: the client waits for it."""
    monkeypatch.setattr(first_contact, "LIMIT_S", 0.05)
    with server(None) as port:
        check_listener("127.0.0.1", port, {})


@pytest.mark.parametrize("head", [b"", b"\0\x0f\xff\xff"])
def test_server_that_sends_a_byte_now_and_then_is_left_to_the_client(monkeypatch, head):
    """Each byte is in time, and the answer never whole."""
    monkeypatch.setattr(first_contact, "LIMIT_S", 0.2)

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(head)
            while not is_over.wait(0.02):
                connection.sendall(b"\0")

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            check_listener("127.0.0.1", listener.getsockname()[1], {})
        finally:
            is_over.set()
            thread.join(60)


@pytest.mark.parametrize("second", ["", ConnectionRefusedError()])
def test_broker_that_leaves_is_left_to_the_client(monkeypatch, second):
    """It closes its connections; at the second look it is up again, or away."""
    looks = ["wants a login", second]

    def look(*_: object) -> str:
        found = looks.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(first_contact, "difference", look)
    check_listener("localhost", 1, {})

    assert looks == []
