"""Client quotas: how much clients may use of this broker, and how long they wait after more.

A limit belongs to a user, a client id, a client id of a user, or the default of these; the most
specific entity that has the key counts (KIP-55):

    users/U/clients/C, users/U/clients/<default>, users/U, users/<default>/clients/C,
    users/<default>/clients/<default>, users/<default>, clients/C, clients/<default>

Connections with the same entity share one budget on a broker. Rates are measured over
quota.window.num samples of quota.window.size.seconds. A client that is over its limit gets its
answer at once, with throttle_time_ms in it; the broker then reads no request from the connection
until that time is over, so that clients that ignore it are held as well (KIP-219).

Wing: attaches to `apis` and `handlers`, for limits on clients; the core works without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla.config.config_type import DOUBLE, INT, LONG, ConfigType
from ottla.config.network_config import NetworkConfig
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.connection import (
    MAX_ANSWER_BYTES,
    Connection,
    LastOf,
    RequestContext,
    RequestQuota,
)
from ottla.network.rate import Rate
from ottla.network.transport import Transport
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import RequestHeader
from ottla.protocol.message import Response
from ottla.runtime import Buffer, Clock, File
from ottla.structs import ClientEntity

logger = logging.getLogger(__name__)

T = TypeVar("T")

Client = tuple[str, str]
"""A user and its client id, which may be empty."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

QUOTA_TYPES: Final[Mapping[str, ConfigType]] = {
    PRODUCER_BYTE_RATE: LONG,
    CONSUMER_BYTE_RATE: LONG,
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
"""The keys of quotas of users and client ids, and the types of their values."""

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
IP_QUOTA_TYPES: Final[Mapping[str, ConfigType]] = {CONNECTION_CREATION_RATE: INT}
"""The keys of quotas of IP addresses (KIP-612)."""

MAX_IDLE_CLIENTS: Final = 1024
MEASURED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
    }
)
"""What is measured beside the time of handlers."""

LOG_EVERY_MS: Final = 60_000
RECENT_MS: Final = 30_000
PERCENT_PER_NS: Final = 100 / 1e9


def parse_limit(key: str, value: object, types: Mapping[str, ConfigType] = QUOTA_TYPES) -> float:
    """The limit that a key is set to; ConfigError for an unknown key or a value below 0."""
    kind = types.get(key)
    if kind is None:
        raise ConfigError(f"{key}: must be one of {', '.join(types)}")
    if isinstance(value, float) and kind is not DOUBLE and value.is_integer():
        value = int(value)
    limit = float(kind.parse(key, value))
    if not 0 < limit < float("inf"):
        raise ConfigError(f"{key}={value}: must be greater than 0")
    return limit


def format_limit(key: str, limit: float) -> str:
    """The limit as it is stored: 1024, or 200.0 for what may be a fraction."""
    kind = {**QUOTA_TYPES, **IP_QUOTA_TYPES}[key]
    return str(kind.format(limit if kind is DOUBLE else int(limit)))


def limit_in(entity: ClientEntity, overrides: Mapping[str, str], key: str) -> float | None:
    """The limit in what is stored for an entity; a bad value is logged, and limits nothing."""
    if key not in overrides:
        return None
    try:
        return parse_limit(key, overrides[key], {**QUOTA_TYPES, **IP_QUOTA_TYPES})
    except ConfigError as error:
        logger.error("%s: a quota has no effect: %s", entity, error.message)
        return None


# What is measured: pure arithmetic on a time in milliseconds that the caller gives.


class TokenBucket:
    """Tokens that come in at the limit, up to what all windows together allow (KIP-599).

    A use may take the bucket below zero; until it is filled up again there is a delay.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._seconds = window_count * window_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """How many there are now; a bucket begins full."""
        most = self._seconds * limit
        if self._tokens is None:
            self._tokens = most
        else:
            came = (now_ms - self._updated_ms) * limit / 1000
            self._tokens = min(most, self._tokens + came)
        self._updated_ms = now_ms
        return self._tokens

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self._seconds * limit, self.tokens(limit, now_ms) - amount)

    def delay_ms(self, limit: float, now_ms: int) -> int:
        tokens = self.tokens(limit, now_ms)
        return int(-tokens / limit * 1000 + 0.5) if tokens < 0 else 0

    def is_idle(self, limit: float, now_ms: int) -> bool:
        return self.tokens(limit, now_ms) >= self._seconds * limit


UsageMeter = Rate | TokenBucket
"""How much was used, held against a limit per second."""


# Whose limit it is.


class Budget:
    """What the connections of one entity share on this broker."""

    __slots__ = ("_logged_ms", "_throttled_ms", "entity", "limit", "meter", "throttle_time_ms")

    def __init__(self, entity: ClientEntity, meter: UsageMeter) -> None:
        self.entity = entity
        self.limit = 0.0
        self.meter = meter
        self.throttle_time_ms = 0
        """The last delay."""
        self._throttled_ms = self._logged_ms = -LOG_EVERY_MS

    def note_delay(self, delay_ms: int, key: str, now_ms: int) -> None:
        """Remember a delay; once a minute it is logged, or nobody would see why clients wait."""
        self.throttle_time_ms, self._throttled_ms = delay_ms, now_ms
        if now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = now_ms
            user, client_id, _ = self.entity
            logger.info(
                "%s%s over %s=%.15g, and waits for %d ms",
                "" if user is None else f"user {user} ",
                "is" if client_id is None else f"client {client_id} is",
                key,
                self.limit,
                delay_ms,
            )

    def recent_delay_ms(self, now_ms: int) -> int:
        """The last delay, until half a minute has passed without another; then 0."""
        return self.throttle_time_ms if now_ms - self._throttled_ms < RECENT_MS else 0


class ClientQuota:
    """The limits of one key, and the budgets of the clients that have used some of them."""

    def __init__(
        self,
        key: str,
        new_meter: Callable[[], UsageMeter],
        default: float | None = None,
        max_delay_ms: int | None = None,
    ) -> None:
        self.key = key
        self._new_meter = new_meter
        self._max_delay_ms = max_delay_ms
        self._default = default
        """Of the client ids, where the registry has none for them."""
        self._limits: dict[ClientEntity, float] = {}
        self._budgets: dict[ClientEntity, Budget] = {}
        self.is_active = default is not None

    def __iter__(self) -> Iterator[Budget]:
        return iter(self._budgets.values())

    def update(self, entity: ClientEntity, limit: float | None) -> None:
        """Change a limit, or remove it; what was used still counts."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self.is_active = bool(self._limits) or self._default is not None

    def budget(self, client: Client) -> Budget | None:
        """The budget that a user's client id is charged to; None: it has no limit."""
        found = self.limit_of(*client)
        if found is None:
            return None
        owner, limit = found
        budget = self._budgets.get(owner)
        if budget is None:
            budget = self._budgets[owner] = Budget(owner, self._new_meter())
        budget.limit = limit
        return budget

    def charge(self, budget: Budget, amount: float, now_ms: int) -> int:
        """Note a use; returns for how many milliseconds the client must wait."""
        meter, limit = budget.meter, budget.limit
        meter.record(amount, limit, now_ms)
        delay_ms = meter.delay_ms(limit, now_ms)
        if delay_ms > 0:
            if self._max_delay_ms is not None:
                delay_ms = min(delay_ms, self._max_delay_ms)
            budget.note_delay(delay_ms, self.key, now_ms)
        return delay_ms

    def limit_of(self, user: str, client_id: str) -> tuple[ClientEntity, float] | None:
        """Whose budget a client uses, and its limit; a client without an id has the defaults."""
        pair, of_user = ClientEntity(user, client_id), ClientEntity(user)
        of_client = ClientEntity(client_id=client_id)
        limits = self._limits
        for entity, owner in (
            (pair, pair),
            (ClientEntity(user, ""), pair),
            (of_user, of_user),
            (ClientEntity("", client_id), pair),
            (ClientEntity("", ""), pair),
            (ClientEntity(""), of_user),
            (of_client, of_client),
            (ClientEntity(client_id=""), of_client),
        ):
            limit = limits.get(entity)
            if limit is not None:
                return owner, limit
        return None if self._default is None else (of_client, self._default)

    def forget_idle(self, now_ms: int) -> None:
        """Forget what a new budget would say as well."""
        self._budgets = {
            entity: budget
            for entity, budget in self._budgets.items()
            if not budget.meter.is_idle(budget.limit, now_ms)
        }


class Budgets(NamedTuple):
    """What one client is charged to, kind by kind; None where it has no limit."""

    produce: Budget | None
    fetch: Budget | None
    request: Budget | None
    mutation: Budget | None


UNLIMITED: Final = Budgets(None, None, None, None)


class ClientQuotas:
    """All quotas of users and client ids on one broker."""

    def __init__(self, clock: Clock, config: NetworkConfig) -> None:
        self.clock = clock
        count, window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000

        def rate() -> Rate:
            return Rate(count, window_ms)

        def token_bucket() -> TokenBucket:
            return TokenBucket(
                config.controller_quota_window_num,
                config.controller_quota_window_size_seconds * 1000,
            )

        def static(name: str, limit: int) -> float | None:
            return float(limit) if config.is_given(name) else None

        self.produce = ClientQuota(
            PRODUCER_BYTE_RATE,
            rate,
            static("quota.producer.default", config.quota_producer_default),
        )
        self.fetch = ClientQuota(
            CONSUMER_BYTE_RATE,
            rate,
            static("quota.consumer.default", config.quota_consumer_default),
        )
        self.request = ClientQuota(REQUEST_PERCENTAGE, rate, max_delay_ms=window_ms)
        self.mutation = ClientQuota(CONTROLLER_MUTATION_RATE, token_bucket)
        self.by_key: Final = {
            each.key: each for each in (self.produce, self.fetch, self.request, self.mutation)
        }
        self.burst_seconds = max(1, count - 1) * window_ms / 1000
        """A client that was quiet may use the limit of so long at once."""
        self.is_active = any(quota.is_active for quota in self.by_key.values())
        self._budgets: dict[Client, Budgets] = {}
        """Of the clients that were seen since a limit has changed."""
        self._sweep_at = MAX_IDLE_CLIENTS

    def update(self, entity: ClientEntity, overrides: Mapping[str, str]) -> None:
        """Take over the quotas of a user or client id; bad values have no effect."""
        for key, quota in self.by_key.items():
            quota.update(entity, limit_in(entity, overrides, key))
        self.is_active = any(quota.is_active for quota in self.by_key.values())
        self._budgets.clear()

    def context(
        self,
        connection: Connection,
        header: RequestHeader,
        received_ms: int,
        size: int,
        start_ns: int,
    ) -> RequestContext:
        """The context of a request of `size` bytes, whose handling began at `start_ns`."""
        client = (connection.principal.name, header.client_id or "")
        budgets = self._budgets.get(client) or self._find(client)
        network = time_network(connection, budgets.request, self.clock)
        if budgets is UNLIMITED or (budgets.request is None and header.api_key not in MEASURED):
            return RequestContext(connection, header, received_ms)
        if header.api_key != ApiKey.PRODUCE:
            size = 0
        charges = RequestCharges(self, budgets, size, start_ns, network)
        return MeteredContext(connection, header, received_ms, charges)

    def _find(self, client: Client) -> Budgets:
        if len(self._budgets) >= self._sweep_at:
            self._forget_idle()
        found = Budgets(*(quota.budget(client) for quota in self.by_key.values()))
        budgets = self._budgets[client] = found if any(found) else UNLIMITED
        return budgets

    def _forget_idle(self) -> None:
        """Forget clients that have gone: they choose their names, so there may be any number."""
        self._budgets.clear()
        now_ms, left = self.clock.monotonic_ms(), 0
        for quota in self.by_key.values():
            quota.forget_idle(now_ms)
            left = max(left, len(list(quota)))
        self._sweep_at = max(MAX_IDLE_CLIENTS, 2 * left)


# What one request is charged with.


class TimedTransport:
    """A connection's transport whose time is charged to a budget: encryption and the kernel's part.

    Nobody is held for it at once: the next request finds it there, as in Kafka.
    """

    __slots__ = ("_clock", "budget", "plain")

    def __init__(self, plain: Transport, clock: Clock) -> None:
        self.plain = plain
        self._clock = clock
        self.budget: Budget | None = None
        """Of the client's last request; None where that was exempt."""

    def recv_into(self, target: memoryview) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.recv_into(target)
        finally:
            self._charge(began_ns)

    def send(self, data: Buffer) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send(data)
        finally:
            self._charge(began_ns)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send_all_of(buffers, more_follows)
        finally:
            self._charge(began_ns)

    def send_file(self, file: File, position: int, count: int) -> int:
        began_ns = self._clock.monotonic_ns()
        try:
            return self.plain.send_file(file, position, count)
        finally:
            self._charge(began_ns)

    def _charge(self, began_ns: int) -> None:
        budget = self.budget
        if budget is not None:
            percent = (self._clock.monotonic_ns() - began_ns) * PERCENT_PER_NS
            budget.meter.record(percent, budget.limit, self._clock.monotonic_ms())

    def fileno(self) -> int:
        return self.plain.fileno()

    def has_ended(self) -> bool:
        return self.plain.has_ended()

    def probe_peer(self) -> None:
        self.plain.probe_peer()

    def close(self) -> None:
        self.plain.close()


def time_network(
    connection: Connection, budget: Budget | None, clock: Clock
) -> TimedTransport | None:
    """Charge what passes over a connection to a budget from now on; None: to nobody."""
    transport = connection.transport
    if budget is None:
        if isinstance(transport, TimedTransport):
            connection.transport = transport.plain
        return None
    if not isinstance(transport, TimedTransport):
        transport = connection.transport = TimedTransport(transport, clock)
    transport.budget = budget
    return transport


class RequestCharges(RequestQuota):
    """The charges of one request: its bytes, its mutations, and the time of its handler."""

    __slots__ = (
        "_budgets",
        "_delay_ms",
        "_handled_ns",
        "_is_exempt",
        "_network",
        "_size",
        "_start_ns",
        "quotas",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        budgets: Budgets,
        size: int,
        start_ns: int,
        network: TimedTransport | None = None,
    ) -> None:
        self.quotas = quotas
        self._budgets = budgets
        self._network = network
        self._size = size
        self._start_ns = start_ns
        self._handled_ns = 0
        self._is_exempt = False
        self._delay_ms = 0

    @property
    def max_fetch_bytes(self) -> int:
        budget = self._budgets.fetch
        if budget is None:
            return MAX_ANSWER_BYTES
        return max(1, min(MAX_ANSWER_BYTES, int(budget.limit * self.quotas.burst_seconds)))

    def admits_fetch(self, size: int) -> bool:
        budget = self._budgets.fetch
        if budget is None or not size:
            return True
        fetch, now_ms = self.quotas.fetch, self.quotas.clock.monotonic_ms()
        # A batch that is larger than all that the windows allow would never be sent.
        is_first = budget.meter.is_idle(budget.limit, now_ms)
        delay_ms = fetch.charge(budget, size, now_ms)
        if delay_ms <= 0:
            return True
        self._delay_ms = max(self._delay_ms, delay_ms)
        if is_first:
            return True
        budget.meter.record(-size, budget.limit, now_ms)
        return False

    def admit_mutations(self, count: int, *, is_strict: bool) -> None:
        budget = self._budgets.mutation
        if budget is None:
            return
        mutation, now_ms = self.quotas.mutation, self.quotas.clock.monotonic_ms()
        if not is_strict:
            self._delay_ms = max(self._delay_ms, mutation.charge(budget, count, now_ms))
            return
        delay_ms = mutation.charge(budget, 0, now_ms)
        if delay_ms > 0:
            self._delay_ms = max(self._delay_ms, delay_ms)
            raise KafkaError.of(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{mutation.key}={budget.limit:.15g} is exceeded; try again in {delay_ms} ms",
            )
        budget.meter.record(count, budget.limit, now_ms)

    def exempt(self) -> None:
        self._is_exempt = True
        if self._network is not None:
            self._network.budget = None

    def begin_step(self) -> None:
        """The handler begins, or continues after a wait."""
        self._start_ns = self.quotas.clock.monotonic_ns()

    def end_step(self) -> None:
        """The handler has returned, or waits: from here on its time is free."""
        if self._start_ns:
            self._handled_ns += self.quotas.clock.monotonic_ns() - self._start_ns
            self._start_ns = 0

    def timed(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same coroutine, charged for its steps."""
        return coroutine if self._budgets.request is None else _timed(coroutine, self)

    def settle(self, *, is_answered: bool) -> int:
        """Charge what was used; returns for how many milliseconds the client must wait."""
        if not is_answered:
            self.exempt()
        quotas, budgets = self.quotas, self._budgets
        produce = budgets.produce if self._size else None
        request = None if self._is_exempt else budgets.request
        if produce is None and request is None:
            return self._delay_ms
        now_ms = quotas.clock.monotonic_ms()
        if produce is not None:
            delay_ms = quotas.produce.charge(produce, self._size, now_ms)
            self._delay_ms = max(self._delay_ms, delay_ms)
        if request is not None:
            self.end_step()
            percent = self._handled_ns * PERCENT_PER_NS
            delay_ms = quotas.request.charge(request, percent, now_ms)
            self._delay_ms = max(self._delay_ms, delay_ms)
        return self._delay_ms


class _Step(NamedTuple):
    """Awaits what a coroutine waits for at one of its steps."""

    waited_for: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self.waited_for)


async def _timed(coroutine: Coroutine[Any, Any, T], charges: RequestCharges) -> T:
    """Run a coroutine, and charge for its steps but not for its waits."""
    send: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        charges.begin_step()
        try:
            waited_for = send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            charges.end_step()
        try:
            send, value = coroutine.send, await _Step(waited_for)
        except BaseException as error:
            send, value = coroutine.throw, error


class MeteredContext(RequestContext):
    """The context of a request where there are quotas: after its answer the client may be muted."""

    __slots__ = ("quota",)
    quota: RequestCharges

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        received_ms: int,
        charges: RequestCharges,
    ) -> None:
        super().__init__(connection, header, received_ms)
        self.quota = charges

    def respond(self, response: Response) -> None:
        delay_ms = self.quota.settle(is_answered=True)
        if delay_ms <= 0:
            super().respond(response)
            return
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        super().respond(response)
        self._hold(delay_ms)

    async def respond_in_slices(self, response: Response, last_of: LastOf) -> None:
        delay_ms = self.quota.settle(is_answered=True)
        if delay_ms > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        await super().respond_in_slices(response, last_of)
        if delay_ms > 0:
            self._hold(delay_ms)

    def no_response(self) -> None:
        delay_ms = self.quota.settle(is_answered=False)
        super().no_response()
        if delay_ms > 0:
            self._hold(delay_ms)

    def _hold(self, delay_ms: int) -> None:
        now_ms = self.quota.quotas.clock.monotonic_ms()
        self.connection.mute_until(now_ms + delay_ms)
