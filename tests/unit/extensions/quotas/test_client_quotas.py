"""Client quotas: rates, delays and budgets by Kafka's formulas, on a clock that a test moves."""

from __future__ import annotations

import asyncio

import pytest
from apis_world import Client

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.quotas.client_quotas import MAX_IDLE_CLIENTS, ClientQuotas
from ottla.extensions.quotas.request_charges import charged_context
from ottla.network.connection import IN_FLIGHT
from ottla.network.request_context import NO_QUOTA
from ottla.protocol.header import RequestHeader
from ottla.protocol.metadata import MetadataResponse
from ottla.protocol.produce import ProduceResponse
from ottla.security.principal import KafkaPrincipal
from ottla.structs import ClientEntity
from ottla.testing.virtual_loop import MockClock

APP = ClientEntity(client_id="app")


class SlowTransport:
    """Takes a time for each call, as encryption and the kernel do."""

    def __init__(self, clock: NsClock, ns: int = 0) -> None:
        self.clock, self.ns = clock, ns
        self.is_closed = False

    def recv_into(self, target):
        self.clock.ns += self.ns
        target[:1] = b"x"
        return 1

    def send(self, data):
        self.clock.ns += self.ns
        raise BlockingIOError

    def send_all_of(self, buffers, more_follows):
        self.clock.ns += self.ns
        return sum(map(len, buffers)) if more_follows else 0

    def send_file(self, file, position, count):
        self.clock.ns += self.ns
        return count - position

    def fileno(self):
        return 7

    def has_ended(self):
        return True

    def probe_peer(self):
        raise ConnectionError

    def close(self):
        self.is_closed = True


class PatientClient(Client):
    """Notes until when it is muted, which it is only once it has its answer."""

    def throttle(self, connection, deadline_ms):
        assert self.sent or self.ended, "the answer goes first"
        super().throttle(connection, deadline_ms)


class NsClock(MockClock):
    """A clock whose nanoseconds a test moves by themselves: handlers take no virtual time."""

    ns = 1

    def monotonic_ns(self):
        return self.ns


class World:
    """All quotas of a broker."""

    def __init__(self, **settings: str) -> None:
        self.clock = NsClock()
        config = BrokerConfig.parse({key.replace("_", "."): settings[key] for key in settings})
        self.quotas = ClientQuotas(self.clock, config)
        self.client = PatientClient()
        self.connection = self.client.connection
        self.connection.transport = SlowTransport(self.clock)

    def limit(self, entity: ClientEntity = APP, **overrides: object):
        self.quotas.update(entity, {key: str(value) for key, value in overrides.items()})

    def context(self, api_key: int, version: int = 9, size: int = 100, client_id="app"):
        header = RequestHeader(api_key, version, 1, client_id)
        now_ns = self.clock.monotonic_ns()
        self.connection.muted |= IN_FLIGHT
        return charged_context(self.quotas, self.connection, header, 0, size, now_ns)


@pytest.fixture
def world() -> World:
    """Nothing is limited yet."""
    return World()


def test_quotas_are_active_while_there_is_one(world):
    """Without one, no request is measured."""
    assert not world.quotas.is_active
    world.limit(producer_byte_rate=5)
    assert world.quotas.is_active
    world.limit(**{"SCRAM-SHA-256": "salt=", "consumer_byte_rate": "-1"})
    assert not world.quotas.is_active
    assert World(quota_consumer_default="5").quotas.is_active
    assert NO_QUOTA.admits_fetch(10**12)


def test_produce_over_its_quota_is_answered_and_then_held(world):
    """The answer says for how long; the size of the whole request counts."""
    world.limit(producer_byte_rate=100)
    for version in (3, 9):
        response = ProduceResponse()
        world.context(0, version, size=2500).respond(response)

    assert response.throttle_time_ms == 40_000
    assert len(world.client.sent) == 2
    assert world.client.muted_until_ms == 40_000 == world.clock.monotonic_ms() + 40_000


def test_produce_counts_where_its_client_leaves_before_the_answer(world):
    """What it has sent is appended: the next one of its client id is held for both."""
    world.limit(producer_byte_rate=100)
    world.context(0, size=4900)
    response = ProduceResponse()
    world.context(0).respond(response)

    assert response.throttle_time_ms == 40_000


def test_version_without_throttle_time_is_held_as_well(world):
    """Produce v0 has no field for it."""
    world.limit(producer_byte_rate=100)
    world.context(0, 0, size=5000).respond(ProduceResponse())
    assert world.client.muted_until_ms == 40_000


def test_produce_without_an_answer_is_held_as_well(world):
    """acks=0; the time of its handler is free, as in Kafka."""
    world.limit(producer_byte_rate=100, request_percentage=1)
    context = world.context(0, size=5000)
    world.clock.ns += 10**9
    context.no_response()
    assert world.client.muted_until_ms == 40_000


def test_other_clients_are_not_held(world):
    """The limit is of one client id."""
    world.limit(producer_byte_rate=100)
    response = ProduceResponse()
    world.context(0, size=5000, client_id="other").respond(response)
    assert response.throttle_time_ms == 0
    assert world.client.muted_until_ms == 0


def test_limits_follow_the_user_of_the_connection(world):
    """The principal that its listener has found out."""
    world.limit(ClientEntity("alice"), producer_byte_rate=100)
    world.context(0, size=5000).respond(ProduceResponse())
    assert world.client.muted_until_ms == 0
    world.connection.principal = KafkaPrincipal.user("alice")
    world.context(0, size=5000).respond(ProduceResponse())
    assert world.client.muted_until_ms == 40_000


def test_time_of_the_handler_counts_as_a_percentage_of_a_thread(world):
    """2.1 s of work are 210 % in 10 s: 21 %, over 20 % by a twentieth of 10 s."""
    world.limit(request_percentage=20)
    context = world.context(3)
    world.clock.ns += 2_100_000_000
    response = MetadataResponse()
    context.respond(response)
    assert response.throttle_time_ms == 500
    assert world.client.muted_until_ms == 500


def test_time_counts_where_the_client_leaves_before_the_answer(world):
    """Work that was done for it holds the next request of its client id."""
    world.limit(request_percentage=20)
    context = world.context(3)
    world.clock.ns += 2_100_000_000
    context.quota.end_step()
    world.context(3).respond(MetadataResponse())

    assert world.client.muted_until_ms == 500


def test_time_of_the_network_counts_at_the_next_request(world):
    """Receiving and sending are charged as they happen, and hold nobody until the next request."""
    world.limit(request_percentage=20)
    plain = world.connection.transport
    plain.ns = 525_000_000
    world.context(3).respond(MetadataResponse())
    timed = world.connection.transport
    assert timed.recv_into(memoryview(bytearray(1))) == 1
    with pytest.raises(BlockingIOError):
        timed.send(b"")
    assert timed.send_all_of([b"ab", b"c"], True) == 3
    assert timed.send_file(None, 4, 9) == 5
    assert world.client.muted_until_ms == 0

    world.context(3).respond(MetadataResponse())
    assert world.client.muted_until_ms == 500


def test_network_is_not_timed_where_nobody_is_charged(world):
    """After an exempt request, one without an answer, and when there is no limit any more."""
    world.limit(request_percentage=1, producer_byte_rate=10**9)
    plain = world.connection.transport
    plain.ns = 10**12
    for api_key in (1, 0):
        context = world.context(api_key)
        if api_key:
            context.quota.exempt()
            context.respond(MetadataResponse())
        else:
            context.no_response()
        world.connection.transport.recv_into(memoryview(bytearray(1)))
    world.context(3).respond(MetadataResponse())
    assert world.client.muted_until_ms == 0

    world.limit(producer_byte_rate=10**9)
    world.context(0)
    assert world.connection.transport is plain


def test_timed_transport_is_the_plain_one_in_all_else(world):
    """What costs no time is asked of the transport itself."""
    world.limit(request_percentage=1)
    world.context(3)
    timed = world.connection.transport
    assert timed.fileno() == 7
    assert timed.has_ended()
    with pytest.raises(ConnectionError):
        timed.probe_peer()
    timed.close()
    assert timed.plain.is_closed


def test_wait_of_a_request_is_free(world):
    """Only until its handler returns; and a delay is one window at most."""
    world.limit(request_percentage=20)
    context = world.context(3)
    world.clock.ns += 10**9
    context.quota.end_step()
    world.clock.ns += 10**12
    context.respond(MetadataResponse())
    assert world.client.muted_until_ms == 0

    context = world.context(3)
    world.clock.ns += 10**12
    context.respond(MetadataResponse())
    assert world.client.muted_until_ms == 1000


def test_request_between_brokers_is_exempt(world):
    """A follower's fetch takes the time that it takes."""
    world.limit(request_percentage=1)
    context = world.context(1)
    context.quota.exempt()
    world.clock.ns += 10**12
    context.respond(MetadataResponse())
    assert world.client.muted_until_ms == 0


def test_coroutine_is_charged_for_its_steps(world):
    """Its waits, for a disk or another broker, are free; results and errors come through."""
    world.limit(request_percentage=20)

    async def handle(event):
        world.clock.ns += 10**9
        await event.wait()
        world.clock.ns += 11 * 10**8
        with pytest.raises(KafkaError):
            await failing()
        return "done"

    async def failing():
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def run():
        event = asyncio.Event()
        context = world.context(3)
        task = asyncio.create_task(context.quota.timed(handle(event)))
        context.quota.end_step()
        await asyncio.sleep(0)
        world.clock.ns += 10**12
        event.set()
        assert await task == "done"
        context.respond(MetadataResponse())

    asyncio.run(run())
    assert world.client.muted_until_ms == 500


def test_cancelled_coroutine_ends_at_its_wait(world):
    """As when the broker stops."""
    world.limit(request_percentage=20)
    ended = []

    async def handle():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def run():
        task = asyncio.create_task(world.context(3).quota.timed(handle()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended


def test_fetch_over_its_quota_gets_no_records(world):
    """A fetch over its quota gets no records, which do not count, as they were not sent."""
    world.limit(consumer_byte_rate=100)
    assert world.context(1).quota.admits_fetch(900)
    context = world.context(1)
    assert not context.quota.admits_fetch(600)
    context.respond(MetadataResponse())
    assert world.client.muted_until_ms == 5000
    assert world.context(1).quota.admits_fetch(100)
    assert world.context(1).quota.admits_fetch(0)


def test_batch_that_is_larger_than_the_windows_is_sent_alone(world):
    """It could never be sent else (KAFKA-9677); its client is held for as long as it is due."""
    world.limit(consumer_byte_rate=100)
    context = world.context(1)
    assert context.quota.max_fetch_bytes == 1000
    assert context.quota.admits_fetch(5000)
    context.respond(MetadataResponse())
    assert world.client.muted_until_ms == 40_000
    assert not world.context(1).quota.admits_fetch(1)


def test_mutations_beyond_the_quota_are_refused_or_held(world):
    """Strict versions are refused while the bucket is below zero, older ones held (KIP-599)."""
    world.limit(controller_mutation_rate=2)
    strict = world.context(19, 7)
    strict.quota.admit_mutations(30, is_strict=True)  # 22 tokens suffice for any number
    with pytest.raises(KafkaError, match="try again in 4000 ms") as error:
        strict.quota.admit_mutations(1, is_strict=True)
    assert error.value.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert error.value.retriable
    strict.respond(MetadataResponse())
    assert world.client.muted_until_ms == 4000

    old = world.context(19, 5)
    old.quota.admit_mutations(2, is_strict=False)
    old.respond(MetadataResponse())
    assert world.client.muted_until_ms == 5000


def test_windows_are_set_by_the_broker():
    """quota.window.num and quota.window.size.seconds."""
    world = World(quota_window_num="3", quota_window_size_seconds="5")
    world.limit(producer_byte_rate=100, consumer_byte_rate=100)
    assert world.context(1).quota.max_fetch_bytes == 1000
    world.context(0, size=2000).respond(ProduceResponse())
    assert world.client.muted_until_ms == 10_000


def test_clients_that_have_gone_are_forgotten(world):
    """A client may call itself differently each time."""
    world.limit(ClientEntity(client_id=""), producer_byte_rate=5)
    for number in range(MAX_IDLE_CLIENTS):
        world.context(0, client_id=f"app{number}").respond(ProduceResponse())
    assert len(list(world.quotas.produce)) == MAX_IDLE_CLIENTS
    world.clock.advance(20_000)
    world.context(0, client_id="one more").respond(ProduceResponse())
    assert [budget.entity.client_id for budget in world.quotas.produce] == ["one more"]


def test_clients_that_share_a_budget_still_do_when_others_are_forgotten(world):
    """Clients share a budget when others are forgotten, also if one of them was quiet."""
    world.limit(ClientEntity("ANONYMOUS"), producer_byte_rate=100)
    world.limit(ClientEntity("", ""), producer_byte_rate=100)
    world.limit(ClientEntity("ANONYMOUS", ""), consumer_byte_rate=100)
    world.context(0, size=900, client_id="quiet").respond(ProduceResponse())
    world.clock.advance(20_000)
    for number in range(MAX_IDLE_CLIENTS):
        world.context(1, client_id=f"app{number}").respond(MetadataResponse())
    world.context(0, size=900, client_id="busy").respond(ProduceResponse())
    response = ProduceResponse()
    world.context(0, size=200, client_id="quiet").respond(response)
    assert response.throttle_time_ms == 1000
