"""Settings of topics and brokers: DescribeConfigs (32), AlterConfigs (33) and
IncrementalAlterConfigs (44); quotas: DescribeClientQuotas (48) and AlterClientQuotas (49).
"""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Float64, Int8, Int16, Int32, String, field


class ConfigResourceType(IntEnum):
    """The kind of resource that settings belong to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs on a value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class DescribeConfigsResource(Struct):
    """A topic or broker to describe; null keys ask for all."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configuration_keys: list[str] | None = field(Array(String), nullable="0+")


class DescribeConfigsRequest(Request, api_key=32, flexible="4+"):
    """Ask for settings (KIP-133). v1 synonyms (KIP-226) · v3 type, documentation · v4 flexible."""

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource))
    include_synonyms: bool = field(Boolean, versions="1+")
    # A broker that is too old to have documentation is asked without it.
    include_documentation: bool = field(Boolean, versions="3+", ignorable=True)


class DescribeConfigsSynonym(Struct):
    """Another place where the setting has a value; the first of them is in force."""

    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    source: int = field(Int8)


class DescribeConfigsResourceResult(Struct):
    """One setting; the value of a sensitive one is null."""

    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    read_only: bool = field(Boolean)
    # From v1 on `config_source` replaces it (KIP-226), so it is ignorable.
    is_default: bool = field(Boolean, versions="0", ignorable=True)
    config_source: int = field(Int8, versions="1+", default=-1, ignorable=True)
    is_sensitive: bool = field(Boolean)
    synonyms: list[DescribeConfigsSynonym] = field(
        Array(DescribeConfigsSynonym), versions="1+", ignorable=True
    )
    config_type: int = field(Int8, versions="3+", ignorable=True)
    documentation: str | None = field(String, versions="3+", nullable="3+", ignorable=True)


class DescribeConfigsResult(Struct):
    """The settings of one topic or broker."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Response, api_key=32, flexible="4+"):
    """One result per resource.

    v1 source in place of is_default, synonyms (KIP-226) · v3 type and documentation · v4 flexible.
    """

    throttle_time_ms: int = field(Int32)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))


class AlterableConfig(Struct):
    """A setting and its new value."""

    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class AlterConfigsResource(Struct):
    """All settings of one topic or broker; a setting that is not named loses its value."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


class AlterConfigsRequest(Request, api_key=33, flexible="2+"):
    """Replace all settings of resources (KIP-133). v2 flexible."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Boolean)


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


class AlterConfigsResponse(Response, api_key=33, flexible="2+"):
    """One result per resource. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))


class IncrementalAlterableConfig(Struct):
    """A setting, an operation on it (`ConfigOperation`), and a value for the operation."""

    name: str = field(String)
    config_operation: int = field(Int8)
    value: str | None = field(String, nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    """The changes to one topic or broker."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[IncrementalAlterableConfig] = field(Array(IncrementalAlterableConfig))


class IncrementalAlterConfigsRequest(Request, api_key=44, flexible="1+"):
    """Change some settings of resources (KIP-339). v1 flexible."""

    resources: list[IncrementalAlterConfigsResource] = field(Array(IncrementalAlterConfigsResource))
    validate_only: bool = field(Boolean)


class IncrementalAlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


class IncrementalAlterConfigsResponse(Response, api_key=44, flexible="1+"):
    """One result per resource. v1 flexible."""

    throttle_time_ms: int = field(Int32)
    responses: list[IncrementalAlterConfigsResourceResponse] = field(
        Array(IncrementalAlterConfigsResourceResponse)
    )


class QuotaMatchType(IntEnum):
    """Which names a component of a filter matches."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Every entity that has the component, its default included."""


class QuotaFilterComponent(Struct):
    """Which entities of a type are asked for; `match` is the name of an exact match."""

    entity_type: str = field(String)
    match_type: int = field(Int8)
    match: str | None = field(String, nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=48, flexible="1+"):
    """Ask for quotas (KIP-546). `strict` leaves entities out that have further components."""

    components: list[QuotaFilterComponent] = field(Array(QuotaFilterComponent))
    strict: bool = field(Boolean)


class QuotaEntity(Struct):
    """A component of an entity with a quota: `user`, `client-id` or `ip`; null is the default."""

    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


class QuotaValue(Struct):
    """A limit, as `producer_byte_rate`."""

    key: str = field(String)
    value: float = field(Float64)


class DescribedQuota(Struct):
    """The limits of one entity."""

    entity: list[QuotaEntity] = field(Array(QuotaEntity))
    values: list[QuotaValue] = field(Array(QuotaValue))


class DescribeClientQuotasResponse(Response, api_key=48, flexible="1+"):
    """The entities that match and have quotas; null with an error."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entries: list[DescribedQuota] | None = field(Array(DescribedQuota), nullable="0+")


class QuotaOperation(Struct):
    """A limit to set, or to remove."""

    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Boolean)


class QuotaAlteration(Struct):
    """The changes to the limits of one entity."""

    entity: list[QuotaEntity] = field(Array(QuotaEntity))
    ops: list[QuotaOperation] = field(Array(QuotaOperation))


class AlterClientQuotasRequest(Request, api_key=49, flexible="1+"):
    """Change quotas (KIP-546). v1 flexible."""

    entries: list[QuotaAlteration] = field(Array(QuotaAlteration))
    validate_only: bool = field(Boolean)


class AlteredQuota(Struct):
    """The outcome of the changes to one entity."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    entity: list[QuotaEntity] = field(Array(QuotaEntity))


class AlterClientQuotasResponse(Response, api_key=49, flexible="1+"):
    """One result per entity."""

    throttle_time_ms: int = field(Int32)
    entries: list[AlteredQuota] = field(Array(AlteredQuota))
