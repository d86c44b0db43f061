"""Client quotas: rates, delays and budgets by Kafka's formulas, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.client_quotas import (
    MAX_IDLE_CLIENTS,
    ClientQuota,
    ClientQuotas,
    TokenBucket,
    parse_limit,
)
from ottla.network.connection import NO_QUOTA
from ottla.network.rate import Rate
from ottla.protocol.header import RequestHeader
from ottla.protocol.metadata import MetadataResponse
from ottla.protocol.produce import ProduceResponse
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.structs import ClientEntity
from ottla.testing.virtual_loop import MockClock

APP = ClientEntity(client_id="app")


def new_rate() -> Rate:
    """Kafka's windows: 11 samples of one second."""
    return Rate(11, 1000)


def test_token_bucket_begins_full_and_may_go_below_zero():
    """11 windows x 2.5/s are 27.5 tokens; 40 taken leave -12.5, which take 5 s (KIP-599)."""
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2.5, 100) == 27.5
    bucket.record(40, 2.5, 100)
    assert bucket.delay_ms(2.5, 100) == 5000
    assert bucket.delay_ms(2.5, 2100) == 3000
    assert bucket.delay_ms(2.5, 5100) == 0
    assert bucket.tokens(2.5, 60_000) == 27.5


def quota(default: float | None = None, **options: int) -> ClientQuota:
    return ClientQuota("producer_byte_rate", new_rate, default, **options)


LEVELS = [
    ClientEntity("alice", "app"),
    ClientEntity("alice", ""),
    ClientEntity("alice"),
    ClientEntity("", "app"),
    ClientEntity("", ""),
    ClientEntity(""),
    ClientEntity(client_id="app"),
    ClientEntity(client_id=""),
]


def test_most_specific_of_eight_levels_counts():
    """Each level stands behind those before it, whatever its value is."""
    limits = quota()
    for rank, entity in reversed(list(enumerate(LEVELS, 1))):
        limits.update(entity, rank)
        assert limits.budget(("alice", "app")).limit == rank
    for rank, entity in enumerate(LEVELS, 1):
        assert limits.budget(("alice", "app")).limit == rank
        limits.update(entity, None)
    assert limits.budget(("alice", "app")) is None
    assert not limits.is_active


@pytest.mark.parametrize(
    ("level", "owner"),
    [
        (LEVELS[0], ClientEntity("alice", "app")),
        (LEVELS[1], ClientEntity("alice", "app")),
        (LEVELS[2], ClientEntity("alice")),
        (LEVELS[3], ClientEntity("alice", "app")),
        (LEVELS[4], ClientEntity("alice", "app")),
        (LEVELS[5], ClientEntity("alice")),
        (LEVELS[6], ClientEntity(client_id="app")),
        (LEVELS[7], ClientEntity(client_id="app")),
    ],
)
def test_budget_is_shared_by_the_tags_of_the_level(level, owner):
    """A default gives each user, client or pair a budget of its own."""
    limits = quota()
    limits.update(level, 5)
    assert limits.budget(("alice", "app")).entity == owner
    others = {("alice", "app2"), ("bob", "app"), ("bob", "app2")}
    shared = {each for each in others if limits.budget(each) is limits.budget(("alice", "app"))}
    if owner.client_id is None:
        assert shared == {("alice", "app2")}
    elif owner.user is None:
        assert shared == {("bob", "app")}
    else:
        assert not shared


def test_client_without_an_id_is_held_to_the_default():
    """Leaving the id out is no way round a limit."""
    limits = quota()
    limits.update(ClientEntity(client_id=""), 5)
    assert limits.budget(("alice", "")).limit == 5


def test_static_default_stands_behind_all_others():
    """quota.producer.default of Kafka 2.3 is for client ids without a limit of their own."""
    limits = quota(default=100)
    assert limits.is_active
    assert limits.budget(("alice", "app")).limit == 100
    assert limits.budget(("bob", "app")) is limits.budget(("alice", "app"))
    limits.update(ClientEntity(client_id=""), 7)
    assert limits.budget(("alice", "app")).limit == 7


def test_changed_limit_is_in_force_at_once_and_keeps_what_was_used():
    """The same bytes are too many for the new limit."""
    limits = quota()
    limits.update(ClientEntity("alice"), 1000)
    assert limits.charge(limits.budget(("alice", "app")), 5000, 0) == 0
    limits.update(ClientEntity("alice"), 250)
    assert limits.charge(limits.budget(("alice", "app")), 0, 0) == 10_000


def test_delay_can_have_an_end():
    """Request quotas hold a client for one window at most, as in Kafka."""
    limits = quota(max_delay_ms=1000)
    limits.update(ClientEntity("alice"), 1)
    assert limits.charge(limits.budget(("alice", "app")), 5000, 0) == 1000


def test_throttled_client_is_logged_once_a_minute(caplog):
    """Otherwise nobody would see why it is slow."""
    limits = quota()
    limits.update(ClientEntity("alice", "app"), 1)
    budget = limits.budget(("alice", "app"))
    with caplog.at_level(logging.INFO):
        for now_ms in (0, 1000, 60_000):
            limits.charge(budget, 50, now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "user alice client app is over producer_byte_rate=1, and waits for 40000 ms",
        "user alice client app is over producer_byte_rate=1, and waits for 40000 ms",
    ]


@pytest.mark.parametrize("value", [0, -1, "0", "x", 1.5, float("inf"), float("nan"), "1.5"])
def test_limit_that_nobody_could_keep_is_refused(value):
    """Kafka takes 0, and the client waits for ever (KAFKA-14943)."""
    with pytest.raises(ConfigError, match="producer_byte_rate="):
        parse_limit("producer_byte_rate", value)


def test_limits_are_read_as_kafka_writes_them():
    """Longs for bytes, doubles for the others."""
    assert parse_limit("producer_byte_rate", "1024") == 1024
    assert parse_limit("producer_byte_rate", 1024.0) == 1024
    assert parse_limit("request_percentage", "200.0") == 200
    assert parse_limit("controller_mutation_rate", 2.5) == 2.5
    with pytest.raises(ConfigError, match="must be one of"):
        parse_limit("bogus", 1)


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


class FakeConnection:
    """Takes answers, and notes until when it is muted."""

    def __init__(self, clock: NsClock, principal: KafkaPrincipal = ANONYMOUS) -> None:
        self.principal = principal
        self.transport = SlowTransport(clock)
        self.sent = 0
        self.muted_until_ms = 0

    def send(self, parts):
        self.sent += 1

    def no_response(self):
        self.sent += 1

    def mute_until(self, deadline_ms):
        assert self.sent, "the answer goes first"
        self.muted_until_ms = deadline_ms


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
        self.connection = FakeConnection(self.clock)

    def limit(self, entity: ClientEntity = APP, **overrides: object):
        self.quotas.update(entity, {key: str(value) for key, value in overrides.items()})

    def context(self, api_key: int, version: int = 9, size: int = 100, client_id="app"):
        header = RequestHeader(api_key, version, 1, client_id)
        return self.quotas.context(self.connection, header, 0, size, self.clock.monotonic_ns())


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
    assert world.connection.sent == 2
    assert world.connection.muted_until_ms == 40_000 == world.clock.monotonic_ms() + 40_000


def test_version_without_throttle_time_is_held_as_well(world):
    """Produce v0 has no field for it."""
    world.limit(producer_byte_rate=100)
    world.context(0, 0, size=5000).respond(ProduceResponse())
    assert world.connection.muted_until_ms == 40_000


def test_produce_without_an_answer_is_held_as_well(world):
    """acks=0; the time of its handler is free, as in Kafka."""
    world.limit(producer_byte_rate=100, request_percentage=1)
    context = world.context(0, size=5000)
    world.clock.ns += 10**9
    context.no_response()
    assert world.connection.muted_until_ms == 40_000


def test_other_clients_are_not_held(world):
    """The limit is of one client id."""
    world.limit(producer_byte_rate=100)
    response = ProduceResponse()
    world.context(0, size=5000, client_id="other").respond(response)
    assert response.throttle_time_ms == 0
    assert world.connection.muted_until_ms == 0


def test_limits_follow_the_user_of_the_connection(world):
    """The principal that its listener has found out."""
    world.limit(ClientEntity("alice"), producer_byte_rate=100)
    world.context(0, size=5000).respond(ProduceResponse())
    assert world.connection.muted_until_ms == 0
    world.connection.principal = KafkaPrincipal.user("alice")
    world.context(0, size=5000).respond(ProduceResponse())
    assert world.connection.muted_until_ms == 40_000


def test_time_of_the_handler_counts_as_a_percentage_of_a_thread(world):
    """2.1 s of work are 210 % in 10 s: 21 %, over 20 % by a twentieth of 10 s."""
    world.limit(request_percentage=20)
    context = world.context(3)
    world.clock.ns += 2_100_000_000
    response = MetadataResponse()
    context.respond(response)
    assert response.throttle_time_ms == 500
    assert world.connection.muted_until_ms == 500


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
    assert world.connection.muted_until_ms == 0

    world.context(3).respond(MetadataResponse())
    assert world.connection.muted_until_ms == 500


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
    assert world.connection.muted_until_ms == 0

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
    assert world.connection.muted_until_ms == 0

    context = world.context(3)
    world.clock.ns += 10**12
    context.respond(MetadataResponse())
    assert world.connection.muted_until_ms == 1000


def test_request_between_brokers_is_exempt(world):
    """A follower's fetch takes the time that it takes."""
    world.limit(request_percentage=1)
    context = world.context(1)
    context.quota.exempt()
    world.clock.ns += 10**12
    context.respond(MetadataResponse())
    assert world.connection.muted_until_ms == 0


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
    assert world.connection.muted_until_ms == 500


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
    """And they do not count, as they were not sent."""
    world.limit(consumer_byte_rate=100)
    assert world.context(1).quota.admits_fetch(900)
    context = world.context(1)
    assert not context.quota.admits_fetch(600)
    context.respond(MetadataResponse())
    assert world.connection.muted_until_ms == 5000
    assert world.context(1).quota.admits_fetch(100)
    assert world.context(1).quota.admits_fetch(0)


def test_batch_that_is_larger_than_the_windows_is_sent_alone(world):
    """It could never be sent else (KAFKA-9677); its client is held for as long as it is due."""
    world.limit(consumer_byte_rate=100)
    context = world.context(1)
    assert context.quota.max_fetch_bytes == 1000
    assert context.quota.admits_fetch(5000)
    context.respond(MetadataResponse())
    assert world.connection.muted_until_ms == 40_000
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
    assert world.connection.muted_until_ms == 4000

    old = world.context(19, 5)
    old.quota.admit_mutations(2, is_strict=False)
    old.respond(MetadataResponse())
    assert world.connection.muted_until_ms == 5000


def test_windows_are_set_by_the_broker():
    """quota.window.num and quota.window.size.seconds."""
    world = World(quota_window_num="3", quota_window_size_seconds="5")
    world.limit(producer_byte_rate=100, consumer_byte_rate=100)
    assert world.context(1).quota.max_fetch_bytes == 1000
    world.context(0, size=2000).respond(ProduceResponse())
    assert world.connection.muted_until_ms == 10_000


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
    """Also if one of them was quiet."""
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
