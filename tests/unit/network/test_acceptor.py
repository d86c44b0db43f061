"""Who is let in: limits of all listeners, limits by address, and running out of descriptors."""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections.abc import Callable

import pytest
from network_world import PATIENCE_S, Client, NetworkWorld, frame

from ottla.network import processor
from ottla.network.acceptor import EXHAUSTED_PAUSE_MS, TURN_NS, Listener
from ottla.network.processor import RECEIVE_BYTES
from ottla.network.refusal_log import TOLD_EVERY_MS
from ottla.network.socket_config import SocketConfig
from ottla.runtime import serving_loop

NewWorld = Callable[..., NetworkWorld]


def is_served(world: NetworkWorld, client: Client) -> bool:
    """Whether a request of the client is answered."""
    client.send(frame(b"hello"))
    return world.receive(client, 9) == frame(b"hello")


def waits(world: NetworkWorld, client: Client) -> bool:
    """Whether a request of the client is not answered within a few turns."""
    client.send(frame(b"hello"))
    world.turn(5)
    return client.take() == b""


def test_listeners_have_names_and_real_ports(world: NetworkWorld) -> None:
    """Port 0 was asked for twice; each client knows which listener it came through."""
    internal = world.processor.listen("INTERNAL", "localhost", 0)
    assert [each.name for each in world.processor.listeners] == ["PLAINTEXT", "INTERNAL"]
    assert internal.port not in (0, world.port)

    client = world.connect(internal.port)
    assert is_served(world, client)
    assert world.connections[0].listener_name == "INTERNAL"
    assert world.connections[0].client_host == "127.0.0.1"
    assert world.connections[0].client_port == client.getsockname()[1]


def test_client_over_ipv4_on_a_dual_stack_socket_has_its_ipv4_address(world: NetworkWorld) -> None:
    """Limits and ACLs by host are written without ::ffff: in front."""
    listener = world.processor.listen("ANY", "", 0)
    assert is_served(world, world.connect(listener.port))

    assert world.connections[0].client_host == "127.0.0.1"


def test_backlog_holds_what_the_system_allows(world: NetworkWorld) -> None:
    """A hundred clients come before one is accepted; with Kafka's 50 half of them would wait."""
    clients = [world.new_client() for _ in range(100)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", world.port))
    waiting = set(clients)
    while waiting:
        _, connected, _ = select.select([], waiting, [], PATIENCE_S)
        assert connected, f"{len(waiting)} clients do not fit into the backlog"
        waiting.difference_update(connected)


@pytest.mark.parametrize(
    "bound", [("TURN_RECEIVE_BYTES", RECEIVE_BYTES), ("MAX_EVENTS", 1)], ids=["bytes", "events"]
)
def test_new_clients_do_not_wait_for_requests_of_others(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, int]
) -> None:
    """More of them are ready than a turn takes in: the backlog filled up meanwhile."""
    for module in (processor, serving_loop):
        monkeypatch.setattr(module, *bound, raising=False)
    world = new_world()
    for count in range(1, 11):
        world.connect()
        world.until(lambda: len(world.processor.connections) == count)  # noqa: B023
    for client in world.clients:
        client.send(frame(b"busy"))
    world.await_bytes()
    world.look()
    late = world.new_client()
    late.connect(("127.0.0.1", world.port))
    world.turn(1)

    assert len(world.processor.connections) == 11
    assert len(world.requests) < 10


def test_clients_of_a_turn_have_a_limit_of_time(world: NetworkWorld, monkeypatch) -> None:
    """TLS is made ready for each of them; those who are left come in the next turns."""
    admit = world.processor._acceptor._admit

    def slow(*client: object) -> None:
        world.clock.advance(TURN_NS // 2_000_000)
        admit(*client)

    monkeypatch.setattr(world.processor._acceptor, "_admit", slow)
    clients = [world.new_client() for _ in range(7)]
    for client in clients:
        client.connect(("127.0.0.1", world.port))
        client.setblocking(False)
    world.look()
    assert len(world.processor.connections) == 2

    for client in clients:
        client.send(frame(b"hello"))
        assert world.receive(client, 9) == frame(b"hello")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_client_over_ipv6_is_served(world: NetworkWorld) -> None:
    """The loopback address of IPv6."""
    listener = world.processor.listen("SIX", "::1", 0)
    with socket.create_connection(("::1", listener.port)) as client:
        client.send(frame(b"six"))
        world.until(lambda: world.requests)
        assert client.recv(100) == frame(b"six")

    assert world.connections[0].client_host == "::1"


def test_clients_beyond_max_connections_wait_until_somebody_leaves(new_world: NewWorld) -> None:
    """They are connected by the kernel, but not served; then the first of them is."""
    world = new_world(max_connections=2)
    first, second, third = (world.connect() for _ in range(3))
    assert is_served(world, first)
    assert is_served(world, second)
    assert waits(world, third)

    first.close()
    assert world.receive(third, 9) == frame(b"hello")


def test_broker_gets_in_when_the_quietest_client_makes_room(new_world: NewWorld) -> None:
    """On the inter-broker listener max.connections is no reason to wait (KIP-402)."""
    world = new_world(max_connections=2, inter_broker_listener_name="INTERNAL")
    internal = world.processor.listen("INTERNAL", "127.0.0.1", 0)
    busy, quiet = world.connect(), world.connect()
    assert is_served(world, quiet)
    world.advance(1000)
    assert is_served(world, busy)
    broker = world.connect(internal.port)

    assert is_served(world, broker)
    assert world.is_closed(quiet)
    assert is_served(world, busy)


def test_broker_waits_when_all_connections_are_brokers(new_world: NewWorld) -> None:
    """There is nobody to make room; when one leaves, the next one is let in."""
    world = new_world(max_connections=1, inter_broker_listener_name="INTERNAL")
    internal = world.processor.listen("INTERNAL", "127.0.0.1", 0)
    first, second = world.connect(internal.port), world.connect(internal.port)
    assert is_served(world, first)
    assert waits(world, second)

    first.close()
    assert world.receive(second, 9) == frame(b"hello")


def test_address_with_too_many_connections_is_closed_at_once(new_world: NewWorld) -> None:
    """The next one is welcome as soon as there is one less."""
    world = new_world(max_connections_per_ip=1)
    first, second = world.connect(), world.connect()
    assert is_served(world, first)
    assert world.is_closed(second)

    first.close()
    world.until(lambda: len(world.processor.connections) == 0)
    assert is_served(world, world.connect())


def test_storm_of_an_address_has_one_line(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes again at once, each time: a line for each would fill the disk."""
    world = new_world(max_connections_per_ip=1)
    assert is_served(world, world.connect())
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            assert world.is_closed(world.connect())
        assert caplog.text.count("max.connections.per.ip") == 1
        world.advance(TOLD_EVERY_MS)
        assert world.is_closed(world.connect())

    assert caplog.text.count("max.connections.per.ip") == 2
    assert "19 more refusals" in caplog.text


def test_raised_limit_lets_those_in_who_wait(new_world: NewWorld) -> None:
    """max.connections can change while the broker runs; below what is open it closes nothing."""
    world = new_world(max_connections=1)
    first, second, third = (world.connect() for _ in range(3))
    assert is_served(world, first)
    assert waits(world, second)
    world.processor.update_config(SocketConfig(max_connections=2))
    assert world.receive(second, 9) == frame(b"hello")

    world.processor.update_config(SocketConfig(max_connections=1))
    assert is_served(world, first)
    assert is_served(world, second)
    assert waits(world, third)


def test_changed_limit_of_an_address_counts_for_the_next_one(new_world: NewWorld) -> None:
    """max.connections.per.ip and its overrides."""
    world = new_world()
    first = world.connect()
    assert is_served(world, first)
    world.processor.update_config(SocketConfig(max_connections_per_ip=1))
    assert world.is_closed(world.connect())
    overrides = {"127.0.0.1": 2}
    world.processor.update_config(
        SocketConfig(max_connections_per_ip=0, max_connections_per_ip_overrides=overrides)
    )

    assert is_served(world, world.connect())
    assert is_served(world, first)


def test_override_is_the_limit_of_its_address(new_world: NewWorld) -> None:
    """max.connections.per.ip may be 0 when overrides let some in."""
    world = new_world(max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1})
    assert is_served(world, world.connect())
    assert world.is_closed(world.connect())


def test_acceptor_pauses_when_descriptors_have_run_out(
    world: NetworkWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE is logged, not at each attempt; the client waits in the backlog, and is served."""
    attempts = []

    def accept(self: socket.socket) -> object:
        attempts.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(socket.socket, "accept", accept)
        client = world.connect()
        world.until(lambda: attempts)
        world.turn(10)
    assert len(attempts) == 1
    assert "Cannot accept on listener PLAINTEXT for now: Too many open files" in caplog.text
    assert waits(world, client)

    world.advance(EXHAUSTED_PAUSE_MS)
    assert world.receive(client, 9) == frame(b"hello")


def reserve_descriptors(world: NetworkWorld, limit: int, brokers: str | None = None) -> None:
    """Have a limit of descriptors, the last quarter of which is not for clients."""
    config = SocketConfig(max_descriptors=limit, inter_broker_listener_name=brokers)
    world.processor.update_config(config)


def test_last_descriptors_are_not_for_clients(
    world: NetworkWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who come are refused once clients have as many, though files may have all below.

    The log says so once in a while, and who is in is served.
    """
    reserve_descriptors(world, 12)
    clients = [world.connect() for _ in range(3)]
    assert all(is_served(world, client) for client in clients)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert world.is_closed(world.connect())
            world.advance(EXHAUSTED_PAUSE_MS)
    assert caplog.text.count("PLAINTEXT for now: the last descriptors are for files") == 1
    assert is_served(world, clients[0])

    world.advance(TOLD_EVERY_MS)
    assert world.is_closed(world.connect())
    assert caplog.text.count("for now: the last descriptors are for files") == 2


def test_brokers_get_the_last_descriptors(world: NetworkWorld) -> None:
    """They come by a listener of their own."""
    internal = world.processor.listen("INTERNAL", "localhost", 0)
    reserve_descriptors(world, 4, brokers="INTERNAL")
    assert is_served(world, world.connect())
    assert world.is_closed(world.connect())
    assert is_served(world, world.connect(internal.port))


@pytest.mark.parametrize("began", ["accepting", "listening"])
def test_listener_that_the_poller_refuses_is_tried_again(
    world: NetworkWorld,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    began: str,
) -> None:
    """The system has no room for it at present: its clients wait, though no other one leaves."""
    real_register, refused = world.processor._sockets.register, []

    def register(fd: int, events: int) -> None:
        if len(refused) < 3 and fd in world.processor._acceptor:
            refused.append(fd)
            raise OSError(errno.ENOSPC, "No space left on device")
        real_register(fd, events)

    port = world.port
    with caplog.at_level(logging.WARNING):
        world.processor._acceptor._pause(world.processor.listeners[0], OSError(0, "full"))
        monkeypatch.setattr(world.processor._acceptor, "_served", FakeServed(register, world))
        if began == "listening":
            port = world.processor.listen("OTHER", "127.0.0.1", 0).port
        for _ in range(4):
            world.advance(EXHAUSTED_PAUSE_MS)
    assert len(refused) == 3
    assert "PLAINTEXT for now: No space left on device" in caplog.text
    client = world.connect(port)
    client.send(frame(b"hello"))
    assert world.receive(client, 9) == frame(b"hello")


class FakeServed:
    """The sockets of a processor, as far as the acceptor needs them, with another `register`."""

    def __init__(self, register: Callable[[int, int], None], world: NetworkWorld) -> None:
        self.register, self.unregister = register, world.processor._sockets.unregister


def test_client_that_has_gone_before_it_was_accepted_is_passed_over(
    world: NetworkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one behind it is served in the same turn."""
    real_accept = socket.socket.accept
    failures = [OSError(errno.ECONNABORTED, "Software caused connection abort")]

    def accept(self: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return real_accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert is_served(world, world.connect())


def test_listener_is_a_value() -> None:
    """Two descriptions of the same listener are equal."""
    assert Listener("A", "localhost", 1) == Listener("A", "localhost", 1)


def served(world: NetworkWorld, clients: list[Client]) -> list[bool]:
    """Which of the clients are answered."""
    for client in clients:
        client.send(frame(b"hello"))
    world.turn(5)
    return [client.take() == frame(b"hello") for client in clients]


def test_listener_waits_when_clients_come_too_fast(new_world: NewWorld) -> None:
    """Two a second, with ten quiet seconds to use: the 21st has another wait (KIP-612)."""
    world = new_world(max_connection_creation_rate=2)
    clients = [world.connect() for _ in range(21)]
    world.until(lambda: len(world.processor.connections) == 21)
    late = world.connect()
    assert waits(world, late)
    world.scheduler.advance(499)
    assert waits(world, late)
    world.scheduler.advance(1)
    assert served(world, clients) == [True] * 21
    world.until(lambda: len(world.processor.connections) == 22)


def test_limit_of_one_listener_does_not_hold_up_others(new_world: NewWorld) -> None:
    """A listener's limit holds up no other, and the common one not the listener of brokers."""
    world = new_world(
        connection_creation_rates={"PLAINTEXT": 1}, inter_broker_listener_name="BROKERS"
    )
    brokers = world.processor.listen("BROKERS", "127.0.0.1", 0)
    for _ in range(11):
        world.connect()
    world.until(lambda: len(world.processor.connections) == 11)
    assert waits(world, world.connect())
    assert is_served(world, world.connect(brokers.port))

    world.processor.update_config(
        SocketConfig(max_connection_creation_rate=1, inter_broker_listener_name="BROKERS")
    )
    world.scheduler.advance(1000)
    for _ in range(15):
        assert is_served(world, world.connect(brokers.port))


def test_address_above_its_rate_is_closed_after_a_while(world: NetworkWorld) -> None:
    """A closed client does not count; an address's limit wins over the default (KIP-612)."""
    world.processor.limit_ip("", 100)
    world.processor.limit_ip("127.0.0.1", 1)
    clients = [world.connect() for _ in range(10)]
    assert served(world, clients) == [True] * 10
    refused = [world.connect() for _ in range(3)]
    assert served(world, refused) == [False] * 3
    assert len(world.processor.connections) == 10
    world.scheduler.advance(999)
    world.turn(5)
    assert not refused[0].closed_by_peer
    world.scheduler.advance(1)
    assert all(world.is_closed(client) for client in refused)

    world.processor.limit_ip("127.0.0.1", None)
    assert is_served(world, world.connect())


def test_refused_addresses_do_not_stay_open_when_the_broker_stops(world: NetworkWorld) -> None:
    """They are no connections, but sockets."""
    world.processor.limit_ip("", 1)
    clients = [world.connect() for _ in range(11)]
    world.loop.run_until_complete(world.processor.stop(1000))
    assert all(world.is_closed(client) for client in clients)
