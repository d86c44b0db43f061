"""Connections: version negotiation, bootstrap, backoff, time limits."""

from __future__ import annotations

import ssl

import pytest
from mock_kafka import HANG_UP, Later, MockCluster

from ottla.clients.network_client import (
    NetworkClient,
    RequestKind,
    bootstrap_nodes,
    connection_id,
    response_error,
)
from ottla.config.client_config import AdminConfig
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError, TlsError
from ottla.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.metadata import MetadataRequest
from ottla.runtime.timing import Deadline
from ottla.structs import Node


@pytest.fixture
def client(runtime, cluster) -> NetworkClient:
    """A client that knows the mock cluster's addresses."""
    return client_of(runtime, cluster)


def client_of(runtime, cluster, **settings) -> NetworkClient:
    config = AdminConfig.parse({"bootstrap.servers": cluster.bootstrap_servers}, **settings)
    return NetworkClient(runtime, config)


def know_nodes(runtime, client) -> None:
    """Have the client learn the brokers' ids."""
    from ottla.clients.metadata import Metadata

    metadata = Metadata(client)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
    metadata.close()


def test_connection_agrees_on_the_highest_common_version(runtime, cluster, client):
    """Both sides' ranges are intersected per API."""
    cluster[0].versions[MetadataRequest.api_key] = (2, 7)
    connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    assert connection.version_of(MetadataRequest) == 7
    assert connection.version_of(MetadataRequest, high=5) == 5


def test_connection_without_a_common_version_says_which_ones_there_are(runtime, cluster, client):
    """The error names the API and both ranges."""
    cluster[0].versions[MetadataRequest.api_key] = (2, 7)
    connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    with pytest.raises(KafkaError, match=r"METADATA.* 8 to 13.* 2 to 7") as caught:
        connection.version_of(MetadataRequest, low=8)
    assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION


def test_connection_falls_back_to_the_versions_that_an_old_broker_knows(runtime, cluster, client):
    """UNSUPPORTED_VERSION is answered in version 0, with the range to ask again in."""
    old = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
    )
    default = cluster[0]._api_versions
    cluster[0].on(ApiVersionsRequest, lambda r, v: old if v > 2 else default(r, v))
    runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    assert [version for _, version in cluster[0].requests] == [4, 2]


def test_any_ready_tries_the_next_address(runtime):
    """A dead bootstrap server does not matter while another one lives."""
    cluster = MockCluster(runtime, 3)
    client = client_of(runtime, cluster)
    cluster[0].stop()
    cluster[2].stop()
    connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    assert connection.node.port == cluster[1].port


@pytest.mark.usefixtures("core_source")
def test_addresses_that_hang_leave_time_for_the_next_one(runtime):
    """A broker that took connections and answered none had all of the time to itself."""
    cluster = MockCluster(runtime, 3)
    for hanging in (0, 2):
        cluster[hanging].on(ApiVersionsRequest, None)
    for _ in range(20):
        client = client_of(runtime, cluster)
        connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 3000)))
        client.close()

        assert connection.node.port == cluster[1].port


@pytest.mark.usefixtures("core_source")
def test_logins_that_take_longer_than_a_share_of_the_time_are_used(runtime):
    """Of a large cluster far away no broker was reached: each was left for the next one."""
    cluster = MockCluster(runtime, 20)

    def slowly(request, version):
        return Later(1000, cluster[0]._api_versions(request, version))

    for broker in cluster.brokers.values():
        broker.on(ApiVersionsRequest, slowly)
    client = client_of(runtime, cluster)
    deadline = Deadline(runtime.clock, 5000)
    runtime.scheduler.run(client.any_ready(deadline))

    assert deadline.left_ms >= 3000


def test_clients_are_spread_over_the_addresses(runtime):
    """They do not all begin with the first one."""
    cluster = MockCluster(runtime, 3)
    for _ in range(30):
        runtime.scheduler.run(client_of(runtime, cluster).any_ready(Deadline(runtime.clock, 1000)))

    assert all(broker.connections for broker in cluster.brokers.values())


def test_least_busy_broker_is_asked_what_any_can_answer(runtime):
    """It is the one with the fewest requests that wait for an answer."""
    cluster = MockCluster(runtime, 3)
    client = client_of(runtime, cluster)
    know_nodes(runtime, client)
    for node_id, count in ((0, 2), (1, 0), (2, 1)):
        cluster[node_id].on(HeartbeatRequest, None)
        connection = runtime.scheduler.run(client.ready(node_id))
        for _ in range(count):
            client.send_on(connection, HeartbeatRequest(), 4)

    assert runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000))).node.id == 1


def test_broker_is_tried_again_when_its_pause_is_over(runtime, cluster, client):
    """Not later, and not before; whoever asks for it by its id waits for the same moment."""
    runtime.advance(10_000)
    for call in (lambda: client.any_ready(Deadline(runtime.clock, 5000)), lambda: client.ready(-2)):
        cluster[0].stop()
        client.disconnect()
        with pytest.raises(KafkaError):
            runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1)))
        cluster[0].start()
        due_ms = client.connection(-2).retry_at_ms
        assert due_ms > runtime.clock.monotonic_ms()
        runtime.scheduler.run(call())
        assert runtime.clock.monotonic_ms() == due_ms


def test_any_ready_gives_up_at_its_deadline_and_says_why(runtime, cluster, client):
    """The error names the address and the cause."""
    cluster[0].stop()

    with pytest.raises(KafkaTimeoutError, match="nobody listens on mock:9000"):
        runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 5000)))
    assert 5000 <= runtime.clock.monotonic_ms() < 6100


def distrust(runtime, monkeypatch, broker) -> None:
    """From now on, the certificate of the broker is one that nobody has signed."""
    network_connect = runtime.network.connect

    async def connect(factory, host, port, options):
        if port == broker.port:
            error = ssl.SSLCertVerificationError()
            error.verify_message = "self-signed certificate"
            raise error
        return await network_connect(factory, host, port, options)

    monkeypatch.setattr(runtime.network, "connect", connect)


def test_broker_that_is_not_trusted_does_not_matter_beside_one_that_is(runtime, monkeypatch):
    """Its certificate may have run out; the cluster is there."""
    cluster = MockCluster(runtime, 2)
    distrust(runtime, monkeypatch, cluster[0])
    client = client_of(runtime, cluster)
    connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    assert connection.node.port == cluster[1].port


def test_nobody_to_be_trusted_is_an_error_at_once(runtime, cluster, monkeypatch):
    """Waiting for metadata ends as well: a certificate does not become better with time."""
    distrust(runtime, monkeypatch, cluster[0])
    with pytest.raises(TlsError, match="mock:9000: the certificate was not accepted"):
        know_nodes(runtime, client_of(runtime, cluster))

    assert runtime.clock.monotonic_ms() == 0


def test_connection_is_left_alone_longer_after_each_failure(runtime, cluster, client):
    """Reconnecting backs off, so the broker sees only some attempts in five seconds."""
    cluster[0].on(ApiVersionsRequest, HANG_UP)
    with pytest.raises(KafkaTimeoutError):
        runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 5000)))

    assert 7 <= len(cluster[0].requests) <= 12


def test_request_without_an_answer_ends_the_connection(runtime, cluster, client):
    """After request.timeout.ms what comes next could not be told apart any more."""
    cluster[0].on(HeartbeatRequest, None)
    know_nodes(runtime, client)

    with pytest.raises(KafkaError, match="no answer to HeartbeatRequest within 200 ms") as caught:
        runtime.scheduler.run(client.send(0, HeartbeatRequest(), timeout_ms=200))
    assert caught.value.error is ErrorCode.NETWORK_EXCEPTION
    assert not client.connection(0).is_ready


def test_client_connects_again_after_a_loss(runtime, cluster, client):
    """The next request opens a new connection."""
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, HANG_UP, HeartbeatResponse(error_code=27))
    with pytest.raises(KafkaError):
        runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    response = runtime.scheduler.run(client.send(0, HeartbeatRequest()))

    assert response.error_code == 27


def test_purposes_have_connections_of_their_own(runtime, cluster, client):
    """A fetch that waits does not hold up what is sent for another purpose."""
    know_nodes(runtime, client)
    runtime.scheduler.run(client.ready(connection_id(0, RequestKind.FETCH)))
    runtime.scheduler.run(client.ready(0))

    assert client.connection(0) is not client.connection(connection_id(0, RequestKind.FETCH))
    assert client.connection(connection_id(0, RequestKind.FETCH)).node.id == 0


def test_idle_connections_are_closed(runtime, cluster, client):
    """connections.max.idle.ms without use ends a connection."""
    know_nodes(runtime, client)
    runtime.scheduler.run(client.ready(0))
    runtime.advance(540_001)
    client.close_idle()

    assert not client.connection(0).is_ready


def test_connection_in_use_is_not_idle(runtime, cluster, client):
    """An answer that is waited for, or has just come, is use; so is a broker left alone for now."""
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, "hold")
    connection = runtime.scheduler.run(client.ready(0))
    runtime.advance(300_000)
    client.send_on(connection, HeartbeatRequest(), 4, 900_000)
    runtime.advance(540_001)
    client.close_idle()
    client.disconnect()
    assert client.connection(0) is connection
    cluster[0].held.pop().answer(HeartbeatResponse())
    runtime.advance(539_999)
    client.close_idle()
    assert client.connection(0) is connection
    runtime.advance(1)
    client.close_idle()
    assert client.connection(0) is not connection

    cluster[0].stop()
    with pytest.raises(KafkaError):
        runtime.scheduler.run(client.ready(0))
    left_alone = client.connection(0)
    client.close_idle()
    client.disconnect()
    assert client.connection(0) is left_alone


def test_idle_connections_stay_without_a_limit(runtime, cluster):
    """A negative connections.max.idle.ms is none."""
    client = client_of(runtime, cluster, connections_max_idle_ms=-1)
    know_nodes(runtime, client)
    connection = runtime.scheduler.run(client.ready(0))
    runtime.advance(3_600_000)
    client.close_idle()

    assert connection.is_ready


def test_open_connection_is_given_up_for_a_new_one(runtime, cluster, client):
    """The next request comes by the new one."""
    know_nodes(runtime, client)
    connection = runtime.scheduler.run(client.ready(0))
    client.disconnect()

    assert not connection.is_ready
    assert runtime.scheduler.run(client.ready(0)) is not connection


def test_bootstrap_connections_are_closed_a_while_after_the_brokers_are_known(runtime, cluster):
    """Each time anew, unless they are in use; those to the brokers stay."""
    client = client_of(runtime, cluster)
    cluster[0].on(HeartbeatRequest, "hold")
    brokers = {0: Node(0, "mock", cluster[0].port)}
    client.update_nodes({})
    bootstrap = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))
    broker = None
    for _ in range(2):
        bootstrap = runtime.scheduler.run(client.ready(-2))
        runtime.advance(5000)
        assert bootstrap.is_ready
        client.update_nodes(brokers)
        broker = broker or runtime.scheduler.run(client.ready(0))
        runtime.advance(999)
        assert bootstrap.is_ready
        runtime.advance(1)
        assert not bootstrap.is_ready
        assert broker.is_ready

    bootstrap = runtime.scheduler.run(client.ready(-2))
    client.send_on(bootstrap, HeartbeatRequest(), 4)
    client.update_nodes(brokers)
    runtime.advance(1000)
    assert bootstrap.is_ready


def test_closed_client_leaves_nothing_to_do(runtime, cluster, client):
    """No timer and no connection, however often it heard of the brokers."""
    know_nodes(runtime, client)
    know_nodes(runtime, client)
    runtime.scheduler.run(client.ready(0))
    client.close()
    runtime.advance(0)

    assert runtime.scheduler.loop.next_due_ms() is None
    assert cluster[0].connections == []


def test_unknown_node_is_an_error_that_asks_for_fresh_metadata(runtime, cluster, client):
    """A broker that left may still be somebody's leader in old metadata."""
    with pytest.raises(KafkaError, match="no broker with the id 7") as caught:
        client.connection(7)
    assert caught.value.error.refresh_metadata


def test_closed_client_refuses(runtime, cluster, client):
    """After close nothing is opened again."""
    client.close()

    with pytest.raises(RuntimeError, match="closed"):
        client.connection(-2)


def test_bootstrap_nodes_have_ids_that_no_broker_has():
    """An address may have colons of its own."""
    assert bootstrap_nodes(["a:1", "[::1]:2", "c:3"]) == {
        -2: Node(-2, "a", 1),
        -3: Node(-3, "::1", 2),
        -4: Node(-4, "c", 3),
    }


def test_bootstrap_nodes_need_an_address():
    """No address at all is a mistake in the settings."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        bootstrap_nodes([])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("topic 'orders' already exists", "topic 'orders' already exists"),
        ("No.", "topic orders: No."),
        (None, "topic orders: A topic of this name already exists."),
    ],
)
def test_name_is_told_once(message, said):
    """A broker's message that names the topic already is not prefixed with it again."""
    error = response_error(ErrorCode.TOPIC_ALREADY_EXISTS, "topic orders", message)

    assert error is not None
    assert error.message == said


def throttled(throttle_ms: int):
    """A handler that answers at once and asks for a wait."""
    return lambda request, version: HeartbeatResponse(throttle_time_ms=throttle_ms)


def test_client_sends_nothing_while_a_broker_throttles_it(runtime, cluster, client):
    """It waits by itself, for the broker would not read the request (KIP-219)."""
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, throttled(700))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    began_ms = runtime.clock.monotonic_ms()
    cluster[0].on(HeartbeatRequest, throttled(0))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    assert runtime.clock.monotonic_ms() == began_ms + 700
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    assert runtime.clock.monotonic_ms() == began_ms + 700


def test_client_counts_how_long_it_was_throttled(runtime, cluster, client):
    """By the kind of the request, as Kafka's clients report it."""
    know_nodes(runtime, client)
    for throttle_ms in (700, 300, 0):
        cluster[0].on(HeartbeatRequest, throttled(throttle_ms))
        runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    times, now_ms = client.times.throttled[HeartbeatRequest.api_key], runtime.clock.monotonic_ms()
    assert (times.count, times.total, times.maximum(now_ms)) == (3, 1000, 700)


def test_caller_is_called_back_when_the_throttling_is_over(runtime, cluster, client):
    """As the producer's sender, which must not be stopped."""
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, throttled(700))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    calls = []
    for _ in range(3):
        assert client.ready_now(0, lambda: calls.append(runtime.clock.monotonic_ms())) is None
    began_ms = runtime.clock.monotonic_ms()
    runtime.advance(699)
    assert calls == []
    runtime.advance(1)
    assert calls == [began_ms + 700]
    assert client.ready_now(0, lambda: None) is not None


def test_caller_is_called_back_for_each_connection_that_it_waits_for(runtime, cluster, client):
    """After a loss there is another one, with a call of its own; a failure is told as well."""
    know_nodes(runtime, client)
    calls = []
    for number in range(1, 4):
        assert client.ready_now(0, lambda: calls.append(client.connection(0).is_ready)) is None
        runtime.advance(2000)
        assert len(calls) == number
        (cluster[0].stop if number == 2 else lambda: None)()
        client.disconnect()

    assert calls == [True, True, False]


def test_long_throttling_is_no_longer_waited_for_than_an_answer(runtime, cluster):
    """The caller hears of it, and may try again within its own limit."""
    client = client_of(runtime, cluster, request_timeout_ms=5000)
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, throttled(12_000))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    for _ in range(2):
        with pytest.raises(KafkaTimeoutError, match="throttles this client for"):
            runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    cluster[0].on(HeartbeatRequest, throttled(0))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))


def test_request_that_waits_at_a_throttling_broker_has_longer_time(runtime, cluster):
    """It was sent before the client knew; its connection must not be given up for that."""
    client = client_of(runtime, cluster, request_timeout_ms=5000)
    know_nodes(runtime, client)
    connection = runtime.scheduler.run(client.ready(0))
    cluster[0].on(HeartbeatRequest, throttled(4000))
    first = client.send_on(connection, HeartbeatRequest(), 4)
    runtime.scheduler.run(first)
    cluster[0].on(HeartbeatRequest, lambda request, version: None)
    client.send_on(connection, HeartbeatRequest(), 4)
    runtime.advance(8900)
    assert connection.is_ready
    runtime.advance(200)
    assert not connection.is_ready


def test_broker_that_answers_late_is_not_waited_for_again(runtime, cluster, client):
    """Before Kafka 2.0 the throttling is over when the answer comes."""
    cluster[0].versions[0] = (0, 5)
    know_nodes(runtime, client)
    cluster[0].on(HeartbeatRequest, throttled(700))
    began_ms = runtime.clock.monotonic_ms()
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    assert runtime.clock.monotonic_ms() == began_ms


def test_another_broker_is_asked_while_one_throttles(runtime):
    """What any broker can answer need not wait."""
    cluster = MockCluster(runtime, 2)
    client = client_of(runtime, cluster)
    know_nodes(runtime, client)
    for node_id in (0, 1):
        runtime.scheduler.run(client.ready(node_id))
    cluster[0].on(HeartbeatRequest, throttled(700))
    runtime.scheduler.run(client.send(0, HeartbeatRequest()))
    connection = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))
    assert connection.node.id == 1


@pytest.mark.parametrize(("left", "moved", "stays"), [(2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_connection_to_a_broker_that_has_left_or_moved_is_closed(runtime, left, moved, stays):
    """Those to the others stay."""
    cluster = MockCluster(runtime, 3)
    client = client_of(runtime, cluster)
    nodes = {n: Node(n, "mock", cluster[n].port) for n in range(3)}

    async def connect() -> None:
        client.update_nodes(nodes)
        for node_id in nodes:
            await client.ready(node_id)

    async def change() -> None:
        client.update_nodes({stays: nodes[stays], moved: Node(moved, "mock", 9999)})

    runtime.scheduler.run(connect())
    assert [len(cluster[n].connections) for n in nodes] == [1, 1, 1]
    runtime.scheduler.run(change())
    runtime.advance(100)

    assert [len(cluster[n].connections) for n in (stays, moved, left)] == [1, 0, 0]


def test_connection_to_an_address_stays_as_long_as_the_address(runtime):
    """What any broker can answer is asked at the new addresses."""
    cluster = MockCluster(runtime, 2)
    first, second = cluster.bootstrap_servers
    client = NetworkClient(runtime, AdminConfig.parse({"bootstrap.servers": [first]}))
    runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))
    for servers, count in (([first, second], 1), ([second], 0)):
        client.update_bootstrap(servers)
        runtime.advance(100)
        assert len(cluster[0].connections) == count
    found = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))

    assert found.node.port == cluster[1].port


def test_bootstrap_addresses_may_change(runtime):
    """Connections to addresses that are gone are closed; to those that stay, and brokers, not."""
    cluster = MockCluster(runtime, 3)
    client = client_of(runtime, cluster)
    cluster[1].stop()
    cluster[2].stop()

    async def connect() -> None:
        client.update_nodes({0: Node(0, "mock", cluster[0].port)})
        await client.any_ready(Deadline(runtime.clock, 1000))
        await client.ready(0)

    async def change(*numbers: int) -> None:
        client.update_bootstrap([f"mock:{cluster[n].port}" for n in numbers])

    runtime.scheduler.run(connect())
    opened = len(cluster[0].connections)
    runtime.scheduler.run(change(0, 1, 2))
    runtime.advance(100)
    assert len(cluster[0].connections) == opened
    runtime.scheduler.run(change(1))
    runtime.advance(100)
    assert len(cluster[0].connections) == 1
    cluster[0].stop()
    cluster[1].start()
    runtime.advance(10_000)
    found = runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 5000)))

    assert found.node.port == cluster[1].port


@pytest.mark.parametrize("throttle_ms", [20_000, 2**31 - 1])
def test_request_waits_no_longer_for_a_throttling_than_for_an_answer(runtime, cluster, throttle_ms):
    """A broker may say never: who waits for the answer must hear of it."""
    client = client_of(runtime, cluster, request_timeout_ms=5000)
    know_nodes(runtime, client)
    connection = runtime.scheduler.run(client.ready(0))
    cluster[0].on(HeartbeatRequest, throttled(throttle_ms), lambda request, version: None)
    first, second = (client.send_on(connection, HeartbeatRequest(), 4) for _ in range(2))
    runtime.scheduler.run(first)
    runtime.advance(9900)
    assert not second.done()
    runtime.advance(200)

    with pytest.raises(KafkaError, match="no answer to HeartbeatRequest within 5000 ms"):
        runtime.scheduler.run(second)
