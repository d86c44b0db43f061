"""DescribeConfigs (32), AlterConfigs (33) and IncrementalAlterConfigs (44).

Behaviour: settings of topics, of consumer groups and of this broker; each resource succeeds or
fails alone. A broker's name is its id; the empty name stands for all brokers. The settings that can
change while a broker runs are in `dynamic_config`; a bad setting of a broker is answered with
INVALID_REQUEST, of a topic with INVALID_CONFIG, as in Kafka. AlterConfigs replaces all overrides,
which is why IncrementalAlterConfigs came (KIP-339).

Version notes: DescribeConfigs v1 source and synonyms (KIP-226) · v3 type and documentation
(KIP-569).

Loggers of a broker are a resource of their own (KIP-412), which only IncrementalAlterConfigs
changes: `broker_loggers`.

Gaps: no client metrics as resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigTableType
from ottla.config.config_type import ConfigType
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.config.metrics_config import ClientMetricsConfig
from ottla.config.topic_config import TopicConfig
from ottla.controller.entity_configs import BROKERS, CLIENT_METRICS, GROUPS, TOPICS, EntityConfigs
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigOperation,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.telemetry import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)
from ottla.protocol.topic_name import validate_topic_name
from ottla.protocol.types import MAX_STRING_BYTES
from ottla.registry import paths
from ottla.server import broker_loggers
from ottla.server.api import Handler, error_code, error_message
from ottla.server.config_entries import (
    DescribedConfig,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from ottla.server.dynamic_config import DynamicConfig
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import ConfigSource, NamedTuple

TABLES: Final[Mapping[str, ConfigTableType]] = {
    TOPICS: TopicConfig,
    BROKERS: BrokerConfig,
    GROUPS: ConsumerGroupConfig,
    CLIENT_METRICS: ClientMetricsConfig,
}


class ConfigEntity(NamedTuple):
    """The owner of settings: a node below /config."""

    type: str
    name: str


Resource = DescribeConfigsResource | AlterConfigsResource | IncrementalAlterConfigsResource
R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)


class ConfigsHandler:
    """Shows and changes settings; the registry keeps the changes, DynamicConfig follows them."""

    def __init__(self, dynamic_config: DynamicConfig, cache: MetadataCache) -> None:
        self.dynamic_config = dynamic_config
        self.cache = cache
        self.entities: EntityConfigs = dynamic_config.entities

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.handle_describe_configs,
            ApiKey.ALTER_CONFIGS: self.handle_alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.handle_incremental_alter_configs,
            ApiKey.LIST_CLIENT_METRICS_RESOURCES: self.handle_list_client_metrics_resources,
        }

    async def handle_list_client_metrics_resources(
        self, context: RequestContext, body: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """The subscriptions to clients' metrics that have settings, whether pushes are taken."""
        names = [
            name
            for name in sorted(await self.entities.subscriptions())
            if await self.entities.read(CLIENT_METRICS, name)
        ]
        return ListConfigResourcesResponse(
            config_resources=[ListedConfigResource(resource_name=name) for name in names]
        )

    async def handle_describe_configs(
        self, context: RequestContext, body: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        results = [await self._describe(resource, body) for resource in body.resources]
        return DescribeConfigsResponse(results=results)

    async def _describe(
        self, resource: DescribeConfigsResource, body: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message="",
        )
        try:
            result.configs = await self._configs(resource, body)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.error), error_message(error)
        return result

    async def _configs(
        self, resource: DescribeConfigsResource, body: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        keys = resource.configuration_keys
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            self._check_own_loggers(resource)
            return broker_loggers.describe(keys)
        return [
            described(entry, body.include_synonyms, body.include_documentation)
            for entry in await self._entries(self._entity(resource))
            if not keys or entry.name in keys
        ]

    async def _entries(self, entity: ConfigEntity) -> list[DescribedConfig]:
        if entity.type == TOPICS:
            overrides = await self.entities.read(TOPICS, entity.name)
            return topic_entries(self.dynamic_config, overrides)
        if entity.type == GROUPS:
            overrides = await self.entities.read(GROUPS, entity.name)
            return group_entries(self.dynamic_config, overrides)
        if entity.type == CLIENT_METRICS:
            return client_metrics_entries(await self.entities.read(CLIENT_METRICS, entity.name))
        if entity.name == paths.DEFAULT_ENTITY:
            return default_broker_entries(self.dynamic_config)
        return broker_entries(self.dynamic_config)

    async def handle_alter_configs(
        self, context: RequestContext, body: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        async def alter(resource: AlterConfigsResource) -> None:
            entity = self._entity(resource)
            config = replacement(resource)
            await self._write(entity, config, body.validate_only)

        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=error_code(error),
                    error_message=error_message(error),
                )
                for resource, error in await self._each(body.resources, alter)
            ]
        )

    async def handle_incremental_alter_configs(
        self, context: RequestContext, body: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        async def alter(resource: IncrementalAlterConfigsResource) -> None:
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                self._check_own_loggers(resource)
                _refuse_duplicates(each.name for each in resource.configs)
                broker_loggers.alter(resource.configs, validate_only=body.validate_only)
                return
            entity = self._entity(resource)
            current = await self.entities.read(*entity)
            if entity.type == BROKERS:
                current = self.dynamic_config.decoded(current)
            config = changed(current, resource.configs, TABLES[entity.type])
            await self._write(entity, config, body.validate_only)

        return IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResourceResponse(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=error_code(error),
                    error_message=error_message(error),
                )
                for resource, error in await self._each(body.resources, alter)
            ]
        )

    async def _each(
        self, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
    ) -> list[tuple[R, KafkaError | None]]:
        """Alter one resource after the other; one that is there twice is not touched."""
        counts = Counter((each.resource_type, each.resource_name) for each in resources)
        outcomes: list[tuple[R, KafkaError | None]] = []
        text = "a resource must be there once in a request"
        repeated = KafkaError(ErrorCode.INVALID_REQUEST, text)
        for resource in resources:
            if counts[resource.resource_type, resource.resource_name] > 1:
                outcomes.append((resource, repeated))
                continue
            try:
                await alter(resource)
            except KafkaError as error:
                outcomes.append((resource, error))
            else:
                outcomes.append((resource, None))
        return outcomes

    def _entity(self, resource: Resource) -> ConfigEntity:
        """The owner of the settings; KafkaError where this broker does not serve it."""
        name = resource.resource_name
        if resource.resource_type == ConfigResourceType.TOPIC:
            validate_topic_name(name)
            if self.cache.topic(name) is None:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
                )
            return ConfigEntity(TOPICS, name)
        if resource.resource_type == ConfigResourceType.BROKER:
            if name not in ("", self.dynamic_config.broker_name):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"broker {name!r}: this is broker {self.dynamic_config.broker_name}; ask the "
                    "broker itself, or use the empty name for all brokers",
                )
            return ConfigEntity(BROKERS, name or paths.DEFAULT_ENTITY)
        if resource.resource_type == ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a group must be named")
            return ConfigEntity(GROUPS, name)
        if resource.resource_type == ConfigResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a subscription must be named")
            return ConfigEntity(CLIENT_METRICS, name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type}: only topics "
            f"({ConfigResourceType.TOPIC:d}), brokers ({ConfigResourceType.BROKER:d}), groups "
            f"({ConfigResourceType.GROUP:d}) and client-metrics "
            f"({ConfigResourceType.CLIENT_METRICS:d}) have settings here",
        )

    def _check_own_loggers(self, resource: Resource) -> None:
        """KafkaError where loggers of another broker are meant: each has its own."""
        if resource.resource_name != self.dynamic_config.broker_name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"broker {resource.resource_name!r}: this is broker "
                f"{self.dynamic_config.broker_name}; ask the broker itself for its loggers",
            )

    async def _write(
        self, entity: ConfigEntity, config: dict[str, str], validate_only: bool
    ) -> None:
        if entity.type == TOPICS:
            TopicConfig.validate(config)
        elif entity.type == GROUPS:
            ConsumerGroupConfig.validate(self.dynamic_config.broker_config, config)
        elif entity.type == CLIENT_METRICS:
            ClientMetricsConfig.of(config)
        else:
            self.dynamic_config.validate_broker(entity.name, config)
            config = self.dynamic_config.encoded(config)
        if not validate_only:
            await self.entities.write(*entity, config)


def described(
    entry: DescribedConfig, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    """One setting as the response's struct."""
    synonyms = entry.synonyms if with_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source is ConfigSource.DEFAULT_CONFIG,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=int(synonym.source)
            )
            for synonym in synonyms
        ],
        config_type=0 if entry.type is None else int(entry.type),
        documentation=entry.documentation if with_documentation else None,
    )


def replacement(resource: AlterConfigsResource) -> dict[str, str]:
    """All overrides that the resource will have."""
    _refuse_duplicates(config.name for config in resource.configs)
    config = {}
    for setting in resource.configs:
        if setting.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{setting.name}: null is not a value")
        config[setting.name] = setting.value
    return config


def changed(
    current: Mapping[str, str],
    changes: Iterable[IncrementalAlterableConfig],
    table: ConfigTableType,
) -> dict[str, str]:
    """The overrides after the changes."""
    changes = list(changes)
    _refuse_duplicates(change.name for change in changes)
    config = dict(current)
    for change in changes:
        if change.config_operation == ConfigOperation.DELETE:
            config.pop(change.name, None)
        else:
            config[change.name] = _changed_value(config.get(change.name), change, table)
    return config


def _changed_value(
    value: str | None, change: IncrementalAlterableConfig, table: ConfigTableType
) -> str:
    operation, name = change.config_operation, change.name
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: null is not a value")
    if operation == ConfigOperation.SET:
        return change.value
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        return _changed_list(value, change, table)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"{name}: {operation} is not a way to change a value"
    )


def _changed_list(
    current: str | None, change: IncrementalAlterableConfig, table: ConfigTableType
) -> str:
    """A list with its missing items appended, or without those to be removed."""
    row = table.keys.get(change.name)
    if row is None or row.type is not ConfigType.LIST:
        raise ConfigError(f"{change.name}: must be a list to be appended to or subtracted from")
    items = list(row.type.parse(row.name, current) if current is not None else row.default or ())
    known, named = set(items), dict.fromkeys(row.type.parse(row.name, change.value))
    if change.config_operation == ConfigOperation.APPEND:
        items += [item for item in named if item not in known]
    else:
        items = [item for item in items if item not in named]
    text = row.format(items) or ""
    if len(text.encode()) > MAX_STRING_BYTES:
        raise ConfigError(
            f"{change.name}: would have {len(text.encode())} bytes, more than the "
            f"{MAX_STRING_BYTES} of a text that clients can be told"
        )
    return text


def _refuse_duplicates(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: is there {count} times")
