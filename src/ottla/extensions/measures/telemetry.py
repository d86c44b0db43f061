"""GetTelemetrySubscriptions (71) and PushTelemetry (72), v0: metrics that clients push (KIP-714).

Behaviour: served only where the broker has somewhere to show them: with `metrics.listener` or
`metric.reporters`. Pushed values are cumulative, not the difference to the last time. Subscriptions
are resources of the type client-metrics. The values that clients push are metrics of the broker
that gets them, as `kafka_client_...` with the client's names as labels, until the client is gone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from ottla.config.metrics_config import ClientMetricsConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.metrics_registry import (
    NOT_IN_NAMES,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
    Tags,
    label,
)
from ottla.metrics.otlp import MAX_TEXT_BYTES, OtlpError, Point, points
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ottla.record.compression import CompressionType, decompress
from ottla.runtime import Runtime
from ottla.server.api import Handler
from ottla.structs import NO_UUID, NamedTuple

ALL: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
MAX_INSTANCES: Final = 16_384
MAX_POINTS_KEPT: Final = 20_000
"""The points of all instances together; those that pushed longest ago lose theirs."""
MIN_EXPIRY_MS: Final = 60_000
SWEEP_MS: Final = 10_000
MAX_FAMILIES: Final = 500
"""The most names of metrics: clients make them up."""
PREFIX: Final = "org.apache.kafka."
CODECS: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)


class TelemetrySubscription(NamedTuple):
    """The subscription of one client; the beginnings of names, "" for all."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Push(NamedTuple):
    """One request with metrics."""

    subscription_id: int
    is_last: bool
    compression_type: int
    metrics: bytes


class PushingClient:
    """One client, as it is known by its instance id."""

    __slots__ = (
        "asked_ms",
        "client",
        "connection_id",
        "interval_ms",
        "is_over",
        "may_ask_again",
        "point_count",
        "pushed_ms",
        "values",
    )

    def __init__(self, client: UUID, connection_id: str) -> None:
        self.client = client
        self.connection_id = connection_id
        """The connection by which it was first heard of."""
        self.asked_ms: int | None = None
        self.pushed_ms: int | None = None
        self.interval_ms = DEFAULT_INTERVAL_MS
        self.may_ask_again = True
        self.is_over = False
        self.values: dict[str, dict[Tags, float]] = {}
        """The points of each metric, by its name; together they are `point_count`."""
        self.point_count = 0

    def last_ms(self) -> int:
        """When it was last heard of."""
        return max(self.asked_ms or 0, self.pushed_ms or 0)


class ClientTelemetry:
    """The clients that push their metrics to one broker."""

    def __init__(
        self,
        runtime: Runtime,
        registry: MetricsRegistry,
        subscriptions: Callable[[], Mapping[str, ClientMetricsConfig]],
        max_bytes: int,
    ) -> None:
        self.max_bytes = max_bytes
        self._runtime, self._registry = runtime, registry
        self._subscriptions = subscriptions
        self._instances: dict[UUID, PushingClient] = {}
        self._of_connections: dict[str, UUID] = {}
        self._families: dict[str, dict[UUID, PushingClient]] = {}
        """The instances that have pushed a metric, by its name."""
        self._point_count = 0
        self._swept_ms = 0

    def subscribe(self, context: RequestContext, asked: UUID) -> tuple[UUID, TelemetrySubscription]:
        """The subscription of a client, and the id that it has from now on.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED where it asks again before it may.
        """
        client = asked
        if asked == NO_UUID:
            client = UUID(bytes=self._runtime.random.randbytes(16), version=4)
        now_ms = self._runtime.clock.monotonic_ms()
        instance = self._instances.get(client) or self._add(context, client, now_ms)
        is_early = instance.asked_ms is not None and now_ms - instance.last_ms() < (
            instance.interval_ms
        )
        if is_early and not instance.may_ask_again:
            raise KafkaError.of(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the subscription was asked for a moment ago"
            )
        subscription = self._subscription_of(context, client)
        instance.asked_ms, instance.may_ask_again = now_ms, False
        instance.interval_ms = subscription.interval_ms
        return client, subscription

    async def push(self, context: RequestContext, client: UUID, push: Push) -> None:
        """Take a client's measures; KafkaError with the code that KIP-714 has for it."""
        now_ms = self._runtime.clock.monotonic_ms()
        instance = self._instances.get(client) or self._add(context, client, now_ms)
        wanted = self._check(context, client, instance, push, now_ms)
        instance.pushed_ms, instance.is_over = now_ms, push.is_last
        try:
            codec = CompressionType(push.compression_type)
            # On another thread: so many numbers take longer than a client may hold the broker.
            found = await self._runtime.background.run(
                lambda: points(decompress(codec, push.metrics, self.max_bytes), wanted)
            )
        except (OtlpError, KafkaError) as error:
            why = f"no metrics: {error}"
            raise KafkaError(ErrorCode.INVALID_RECORD, why) from None
        if self._instances.get(client) is instance:
            self._keep(context, client, instance, found)

    def _keep(
        self, context: RequestContext, client: UUID, instance: PushingClient, found: list[Point]
    ) -> None:
        """Show these numbers in place of those of before, under the names of the client."""
        self._forget_values(instance)
        own = {
            "client_id": context.client_id[:MAX_TEXT_BYTES],
            "client_instance_id": str(client),
        }
        for point in found:
            name = self._name(point.name, point.description)
            if name is not None:
                labels = dict(own)
                for key, value in point.attributes:
                    labels.setdefault(label(key), value)
                labels.pop("", None)
                instance.values.setdefault(name, {})[tuple(labels.items())] = point.value
        instance.point_count = sum(map(len, instance.values.values()))
        self._point_count += instance.point_count
        self._instances[client] = self._instances.pop(client)
        for name in instance.values:
            self._families[name][client] = instance
        for other in list(self._instances.values()):
            if self._point_count <= MAX_POINTS_KEPT:
                break
            self._forget_values(other)

    def _forget_values(self, instance: PushingClient) -> None:
        self._point_count -= instance.point_count
        instance.point_count = 0
        for name in instance.values:
            del self._families[name][instance.client]
        instance.values = {}

    def _check(
        self,
        context: RequestContext,
        client: UUID,
        instance: PushingClient,
        push: Push,
        now_ms: int,
    ) -> tuple[str, ...]:
        """The beginnings of the names that are wanted."""
        if client == NO_UUID or instance.is_over:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "the client has no id, or has ended")
        asked_ms, pushed_ms = instance.asked_ms or 0, instance.pushed_ms
        has_asked_since = pushed_ms is None or asked_ms >= pushed_ms
        is_due = pushed_ms is None or now_ms - pushed_ms >= instance.interval_ms
        if not (has_asked_since or is_due or push.is_last):
            raise KafkaError.of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it has pushed a moment ago")
        subscription = self._subscription_of(context, client)
        if push.subscription_id != subscription.id:
            instance.may_ask_again = True
            raise KafkaError.of(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription has changed")
        if push.compression_type not in (CompressionType.NONE, *CODECS):
            raise KafkaError.of(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "an unknown compression")
        if len(push.metrics) > self.max_bytes:
            raise KafkaError.of(
                ErrorCode.TELEMETRY_TOO_LARGE, f"more than telemetry.max.bytes={self.max_bytes}"
            )
        if not subscription.metrics:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "no subscription wants its metrics")
        return subscription.metrics

    def _add(self, context: RequestContext, client: UUID, now_ms: int) -> PushingClient:
        """A new instance; a connection has one, so that ids are not made up without end."""
        if now_ms - self._swept_ms >= SWEEP_MS or len(self._instances) >= MAX_INSTANCES:
            self._swept_ms = now_ms
            for known, instance in list(self._instances.items()):
                expiry_ms = max(MIN_EXPIRY_MS, 3 * instance.interval_ms)
                if now_ms - instance.last_ms() >= expiry_ms:
                    self._remove(known)
        while len(self._instances) >= MAX_INSTANCES:
            self._remove(next(iter(self._instances)))
        connection_id = context.connection.id
        self._remove(self._of_connections.get(connection_id, NO_UUID))
        self._of_connections[connection_id] = client
        instance = self._instances[client] = PushingClient(client, connection_id)
        return instance

    def _remove(self, client: UUID) -> None:
        instance = self._instances.pop(client, None)
        if instance is not None:
            self._forget_values(instance)
            self._of_connections.pop(instance.connection_id, None)

    def _subscription_of(self, context: RequestContext, client: UUID) -> TelemetrySubscription:
        """All that match, together: every metric of any, at the shortest interval."""
        name, version = context.connection.software
        facts = {
            "client_instance_id": str(client),
            "client_id": context.client_id,
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": context.client_host,
            "client_source_port": str(context.connection.client_port),
        }
        metrics: set[str] = set()
        intervals = []
        for config in self._subscriptions().values():
            patterns = config.patterns().items()
            if config.metrics and all(
                len(facts[key]) <= MAX_TEXT_BYTES and each.fullmatch(facts[key])
                for key, each in patterns  # which take the square of a text, or longer
            ):
                metrics.update(config.metrics)
                intervals.append(config.interval_ms)
        interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
        wanted = ("",) if ALL in metrics else tuple(sorted(metrics))
        seen = f"{wanted} {interval_ms} {client}".encode()
        return TelemetrySubscription(zlib.crc32(seen) - 2**31, wanted, interval_ms)

    def _name(self, name: str, description: str) -> str | None:
        """The name under which a metric is shown; it is registered when it first comes.

        It is None where clients have made up too many.
        """
        shown = NOT_IN_NAMES.sub("_", name.removeprefix(PREFIX)).strip("_").lower()
        if shown not in self._families:
            if len(self._families) >= MAX_FAMILIES:
                return None
            self._families[shown] = {}
            doc = " ".join(description.split()) or "Pushed by clients."
            family = FamilyName("kafka", "client", shown)
            read = partial(self._series, shown)
            self._registry.register(Family(family, Kind.GAUGE, doc, read, unbounded=True))
        return shown

    def _series(self, name: str) -> Series:
        now_ms = self._runtime.clock.monotonic_ms()
        for instance in list(self._families[name].values()):
            is_gone = now_ms - instance.last_ms() >= max(MIN_EXPIRY_MS, 3 * instance.interval_ms)
            if not instance.is_over and not is_gone:
                yield from list(instance.values.get(name, {}).items())


class TelemetryHandler:
    """Sends clients their subscriptions, and takes their measures."""

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self.telemetry = telemetry

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.handle_get_telemetry_subscriptions,
            ApiKey.PUSH_TELEMETRY: self.handle_push_telemetry,
        }

    def handle_get_telemetry_subscriptions(
        self, context: RequestContext, body: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        try:
            client, found = self.telemetry.subscribe(context, body.client_instance_id)
        except KafkaError as error:
            return GetTelemetrySubscriptionsResponse(error_code=int(error.error))
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client,
            subscription_id=found.id,
            accepted_compression_types=[int(codec) for codec in CODECS],
            push_interval_ms=found.interval_ms,
            telemetry_max_bytes=self.telemetry.max_bytes,
            delta_temporality=False,
            requested_metrics=list(found.metrics),
        )

    async def handle_push_telemetry(
        self, context: RequestContext, body: PushTelemetryRequest
    ) -> PushTelemetryResponse:
        push = Push(
            body.subscription_id, body.terminating, body.compression_type, bytes(body.metrics)
        )
        try:
            await self.telemetry.push(context, body.client_instance_id, push)
        except KafkaError as error:
            return PushTelemetryResponse(error_code=int(error.error))
        return PushTelemetryResponse(error_code=int(ErrorCode.NONE))
