"""GetTelemetrySubscriptions (71) and PushTelemetry (72), v0: metrics that clients push (KIP-714).

Behaviour: served only where the broker has somewhere to show them: with `metrics.listener` or
`metric.reporters`. What is pushed is to be cumulative, not the difference to the last time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ottla.server.apis import Handler
from ottla.server.client_telemetry import CODECS, ClientTelemetry, Push


class TelemetryHandler:
    """Tells clients what to push, and takes it."""

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

    def handle_push_telemetry(
        self, context: RequestContext, body: PushTelemetryRequest
    ) -> PushTelemetryResponse:
        push = Push(
            body.subscription_id, body.terminating, body.compression_type, bytes(body.metrics)
        )
        try:
            self.telemetry.push(context, body.client_instance_id, push)
        except KafkaError as error:
            return PushTelemetryResponse(error_code=int(error.error))
        return PushTelemetryResponse(error_code=int(ErrorCode.NONE))
