"""Connections between brokers: one for each broker and purpose, closed when it is of no use."""

from __future__ import annotations

import pytest
from cluster_world import PORT, SELF, ClusterWorld, Peer

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.controller_requests import AlterPartitionRequest, AlterPartitionResponse
from ottla.server.broker_connections import Purpose
from ottla.structs import BROKER_CLIENT_ID, Node

HERE = Node(2, "host-2", PORT)
THERE = Node(2, "host-3", PORT)


class World(ClusterWorld):
    """It counts the connections to each host, and keeps the peers that serve them."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[str, list[Peer]] = {"host-2": [], "host-3": []}
        for host in self.peers:
            self.runtime.network.serve(host, PORT, lambda host=host: self.peer(host))
        self.answers[AlterPartitionRequest] = lambda broker_id, body: AlterPartitionResponse()

    def peer(self, host):
        peer = Peer(self, 2)
        self.peers[host].append(peer)
        return peer

    @property
    def counts(self):
        return {host: len(peers) for host, peers in self.peers.items()}

    def ask(self, node=HERE, purpose=Purpose.CONTROLLER):
        """A request under way."""
        asked = self.connections.ask(node, purpose, AlterPartitionRequest())
        task = self.runtime.scheduler.loop.create_task(asked)
        self.advance(10)
        return task

    def open_to(self, host):
        return [not peer.transport.is_closing() for peer in self.peers[host]]


@pytest.fixture
def world() -> World:
    """Broker 2 can be reached at two addresses."""
    return World()


def test_connection_is_kept_for_a_broker_and_a_purpose(world):
    """Requests of another purpose would have to wait for the answers of the first."""
    for purpose in (Purpose.CONTROLLER, Purpose.CONTROLLER, Purpose.MARKERS):
        assert world.ask(purpose=purpose).result() == AlterPartitionResponse()

    assert world.counts == {"host-2": 2, "host-3": 0}


def test_broker_that_has_moved_is_asked_at_its_new_address(world):
    """The connection to the old one is closed."""
    world.ask()
    assert world.ask(THERE).done()
    world.advance(10)

    assert world.counts == {"host-2": 1, "host-3": 1}
    assert (world.open_to("host-2"), world.open_to("host-3")) == ([False], [True])


def test_only_connections_of_a_purpose_are_dropped(world):
    """Their callers get an error and the next request connects again; the others stay."""
    world.ask(purpose=Purpose.AUDIT)
    world.delays_ms[2] = 1_000
    waiting = world.ask()
    world.connections.drop(Purpose.CONTROLLER, "the controller has moved")
    world.advance(10)

    assert "the controller has moved" in str(waiting.exception())
    assert world.open_to("host-2") == [True, False]
    world.delays_ms.clear()
    assert world.ask().done()
    assert world.open_to("host-2") == [True, False, True]


def test_all_kept_connections_are_closed_at_the_end(world):
    """Those that a caller has made for itself are its own."""
    own = world.connections.connect(THERE)
    world.runtime.scheduler.run(own.ready())
    world.ask()
    world.connections.close()
    world.advance(10)

    assert (world.open_to("host-2"), own.is_ready) == ([False], True)


def test_request_without_an_answer_fails_after_the_request_timeout(world):
    """Its caller must not wait for ever."""
    world.delays_ms[2] = 10 * world.config.request_timeout_ms
    asked = world.ask()
    world.advance(world.config.request_timeout_ms - 20)
    assert not asked.done()
    world.advance(20)

    assert isinstance(asked.exception(), KafkaError)


def test_broker_that_does_not_live_has_no_address(world):
    """A listener that it does not have is no address either."""
    world.cache.update([], [world.broker(2)])
    assert world.connections.node(2) == HERE
    world.connections.listener_name = "INTERNAL"
    for broker_id in (2, 3):
        with pytest.raises(KafkaError, match=f"broker {broker_id} .*INTERNAL") as caught:
            world.connections.node(broker_id)
        assert caught.value.error is ErrorCode.BROKER_NOT_AVAILABLE


def test_broker_names_itself_in_its_requests(world, monkeypatch):
    """The log of the other broker can say who has asked."""
    frames, handle = [], Peer.handle

    def note(peer, frame):
        frames.append(bytes(frame))
        handle(peer, frame)

    monkeypatch.setattr(Peer, "handle", note)
    world.ask()

    assert [f"{BROKER_CLIENT_ID}{SELF}".encode() in frame for frame in frames] == [True, True]
    assert world.connections.broker_id == SELF
