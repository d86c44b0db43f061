"""The APIs of metrics that clients push (KIP-714): subscriptions to them, and the metrics."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Bytes, Int8, Int16, Int32, String, Uuid, field


class GetTelemetrySubscriptionsRequest(Request, api_key=71, flexible="0+"):
    """Ask which metrics are wanted; without an id of its own a client gets one."""

    client_instance_id: UUID = field(Uuid)


class GetTelemetrySubscriptionsResponse(Response, api_key=71, flexible="0+"):
    """The metrics to push, the interval, the largest size, and the codecs.

    `requested_metrics` are the beginnings of names: one empty text is all, an empty list is none.
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    client_instance_id: UUID = field(Uuid)
    subscription_id: int = field(Int32)
    accepted_compression_types: list[int] = field(Array(Int8))
    push_interval_ms: int = field(Int32)
    telemetry_max_bytes: int = field(Int32)
    delta_temporality: bool = field(Boolean)
    requested_metrics: list[str] = field(Array(String))


class PushTelemetryRequest(Request, api_key=72, flexible="0+"):
    """Metrics of a client as MetricsData of OpenTelemetry; the last has `terminating`."""

    client_instance_id: UUID = field(Uuid)
    subscription_id: int = field(Int32)
    terminating: bool = field(Boolean)
    compression_type: int = field(Int8)
    metrics: bytes = field(Bytes)


class PushTelemetryResponse(Response, api_key=72, flexible="0+"):
    """Whether they were taken."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)


class ListConfigResourcesRequest(Request, api_key=74, flexible="0+"):
    """Ask which subscriptions there are: ListClientMetricsResources, as Kafka 3.9 calls it."""


class ListedConfigResource(Struct):
    """One of them."""

    resource_name: str = field(String)


class ListConfigResourcesResponse(Response, api_key=74, flexible="0+"):
    """The names of the resources; DescribeConfigs returns their settings."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    config_resources: list[ListedConfigResource] = field(Array(ListedConfigResource))
