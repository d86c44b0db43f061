"""Listening sockets: all addresses of a host on one port."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from typing import Any

import pytest

from ottla.runtime import SocketNetwork
from ottla.runtime.network import StreamOptions


@pytest.fixture
def network() -> SocketNetwork:
    return SocketNetwork(asyncio.new_event_loop())


@pytest.fixture(autouse=True)
def _close_loop(network: SocketNetwork) -> object:
    yield
    network._loop.close()


def test_port_0_is_one_free_port_on_every_address(network: SocketNetwork) -> None:
    """Clients are told one port, whichever address of localhost they try first."""
    listeners = network.listen("localhost", 0, backlog=5)
    ports = {listener.getsockname()[1] for listener in listeners}

    assert len(ports) == 1
    for listener in listeners:
        with socket.create_connection(listener.getsockname()[:2]):
            listener.close()


def test_empty_host_listens_on_ipv4_too(network: SocketNetwork) -> None:
    """A dual-stack socket where the machine has IPv6, else an IPv4 one."""
    (listener,) = network.listen("", 0, backlog=5)
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        assert listener.getsockname()[1] > 0


def test_port_in_use_is_refused_by_name(network: SocketNetwork) -> None:
    """The error says which address it was about."""
    (first,) = network.listen("127.0.0.1", 0, backlog=5)
    port = first.getsockname()[1]
    with first, pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}") as refused:
        network.listen("127.0.0.1", port, backlog=5)

    assert refused.value.errno == errno.EADDRINUSE


def test_address_of_another_machine_is_refused(network: SocketNetwork) -> None:
    """192.0.2.0/24 belongs to nobody."""
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
        network.listen("192.0.2.1", 0, backlog=5)


def test_receive_buffer_is_set_before_listening(network: SocketNetwork) -> None:
    """Accepted sockets inherit it; the kernel doubles it for its own bookkeeping."""
    (listener,) = network.listen("127.0.0.1", 0, backlog=5, receive_buffer_bytes=50_000)
    with listener:
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 70000),
        ("127.0.0.1", -1),
        ("127.0.0.1", 2**31 - 1),
        ("127.0.0.1", 2**63),
        ("a\0b", 9092),
        ("a" * 70 + ".b", 9092),
        ("a..b", 9092),
        ("\ud800", 9092),
    ],
)
@pytest.mark.parametrize("is_secure", [False, True])
def test_address_that_no_socket_takes_is_an_error_of_the_system(
    network: SocketNetwork, host: str, port: int, is_secure: bool
) -> None:
    """A peer has named it: callers treat it as they treat an address where nobody is."""
    tls = ssl.create_default_context() if is_secure else None
    connecting = network.connect(asyncio.Protocol, host, port, StreamOptions(tls=tls))

    with pytest.raises(OSError, match="not an address to connect to"):
        network._loop.run_until_complete(connecting)


def test_empty_host_with_tls_is_an_error_of_the_system(network: SocketNetwork) -> None:
    """It has no name that a certificate could have."""
    options = StreamOptions(tls=ssl.create_default_context())
    (listener,) = network.listen("127.0.0.1", 0, backlog=5)
    connecting = network.connect(asyncio.Protocol, "", listener.getsockname()[1], options)
    with listener, pytest.raises(OSError, match="not an address to connect to"):
        network._loop.run_until_complete(connecting)


@pytest.mark.parametrize("host", ["\xe4..b", "\xe4" * 70, "\udcff"])
def test_name_that_no_host_has_is_refused_as_an_address(network: SocketNetwork, host) -> None:
    """A listener that is added while the broker runs may have any."""
    with pytest.raises(OSError, match="is no name of a host") as refused:
        network.listen(host, 0, backlog=5)

    assert refused.value.strerror


def test_name_is_asked_of_the_system_and_each_of_its_addresses_is_tried(
    network: SocketNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one that takes the connection is enough."""
    with network.listen("127.0.0.1", 0, backlog=5)[0] as listener:
        port = listener.getsockname()[1]
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))
            for host in ("127.0.0.2", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found)
        transport, _ = network._loop.run_until_complete(
            network.connect(asyncio.Protocol, "some.name", port)
        )
        assert transport.get_extra_info("peername") == ("127.0.0.1", port)
        transport.abort()
        found.pop()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            network._loop.run_until_complete(network.connect(asyncio.Protocol, "some.name", port))


def test_address_of_a_family_that_the_system_does_not_have_is_passed_over(
    network: SocketNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ::1 of localhost on a machine without IPv6; an error of the other addresses counts."""
    unknown = (socket.AddressFamily.AF_IPX, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    known = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    found = [unknown, known]
    with network.listen("127.0.0.1", 0, backlog=5)[0] as listener:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: found)
        port = listener.getsockname()[1]
        connecting = network.connect(asyncio.Protocol, "some.name", port)
        transport, _ = network._loop.run_until_complete(connecting)
        transport.abort()
    for _ in range(2):
        found.reverse()
        with pytest.raises(ConnectionRefusedError):
            network._loop.run_until_complete(network.connect(asyncio.Protocol, "some.name", port))
    found.remove(known)
    with pytest.raises(OSError, match="not supported"):
        network._loop.run_until_complete(network.connect(asyncio.Protocol, "some.name", port))


def test_name_that_no_thread_can_ask_for_is_an_error_of_the_system(
    network: SocketNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker tries again then; other errors end its copying."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BlockingIOError, match="can't start new thread"):
        network._loop.run_until_complete(network.connect(asyncio.Protocol, "some.name", 1))


@pytest.mark.parametrize("host", ["1.2.3.4.5", "123456789012", "a:b"])
def test_name_that_looks_like_an_address_is_not_asked_for_on_the_loop(
    network: SocketNetwork, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The system may wait for seconds for an answer, and the loop serves others."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def watched(name: str, *given: Any, flags: int = 0, **named: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return look_up(name, *given, flags=flags, **named)
        asked.append(threading.current_thread().name)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    with pytest.raises(OSError, match="no such name"):
        network._loop.run_until_complete(network.connect(asyncio.Protocol, host, 1))
    assert asked == ["ottla-names"]
