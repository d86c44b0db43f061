"""Settings of topics and brokers, quotas of clients, features, log directories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from ottla.clients.admin.descriptions import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
)
from ottla.clients.network_client import check_code, response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigOperation,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.protocol.telemetry import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.structs import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.protocol.message import Request
    from ottla.runtime.timing import Deadline

Entries = dict[str, ConfigEntry]
PER_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ConfigAdmin:
    """Requests about settings; those of one broker go to that broker, all others to any."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        include_synonyms: bool,
        include_documentation: bool,
    ) -> dict[ConfigResource, Entries | KafkaError]:
        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, Entries | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=r.type, resource_name=r.name)
                    for r in some
                ]
            )
            if include_synonyms:
                request.include_synonyms = True
            if include_documentation:
                request.include_documentation = True
            response = cast("DescribeConfigsResponse", await self._send(some, request, deadline))
            results: dict[ConfigResource, Entries | KafkaError] = {}
            for result in response.results:
                key = resource_of(result)
                error = response_error(result.error_code, str(key), result.error_message)
                results[key] = error or {c.name: entry_of(c) for c in result.configs}
            return results

        return await self._for_each(resources, ask)

    async def list_client_metrics(self) -> list[str]:
        async def attempt(deadline: Deadline) -> list[str]:
            answer = await self._admin.any_broker(ListConfigResourcesRequest(), deadline)
            response = cast("ListConfigResourcesResponse", answer)
            check_code(response.error_code, "subscriptions to clients' metrics")
            return [each.resource_name for each in response.config_resources]

        return await self._admin.until_done(attempt)

    async def alter_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str | None]], validate_only: bool
    ) -> dict[ConfigResource, KafkaError | None]:
        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, KafkaError | None]:
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            AlterableConfig(name=name, value=value)
                            for name, value in settings[r].items()
                        ],
                    )
                    for r in some
                ],
                validate_only=validate_only,
            )
            return outcomes(await self._send(some, request, deadline))

        return await self._for_each(settings, ask)

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfigOp]], validate_only: bool
    ) -> dict[ConfigResource, KafkaError | None]:
        wanted = {resource: list(operations) for resource, operations in changes.items()}

        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[alterable(operation) for operation in wanted[r]],
                    )
                    for r in some
                ],
                validate_only=validate_only,
            )
            return outcomes(await self._send(some, request, deadline))

        return await self._for_each(changes, ask)

    async def _for_each(
        self,
        resources: Iterable[ConfigResource],
        ask: Callable[[list[ConfigResource], Deadline], Awaitable[dict[ConfigResource, Any]]],
    ) -> dict[ConfigResource, Any]:
        """Send one request to each broker that must answer itself, and one for all others."""

        async def attempt(
            pending: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, Any]:
            shares: dict[str, list[ConfigResource]] = {}
            for resource in pending:
                shares.setdefault(broker_of(resource), []).append(resource)
            answers = await asyncio.gather(
                *(ask(share, deadline) for share in shares.values()), return_exceptions=True
            )
            results: dict[ConfigResource, Any] = {}
            for share, answer in zip(shares.values(), answers, strict=True):
                if isinstance(answer, KafkaError):
                    results.update(dict.fromkeys(share, answer))
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    results.update(answer)
            return results

        return await self._admin.for_each(resources, attempt)

    async def _send(
        self, resources: Sequence[ConfigResource], request: Request, deadline: Deadline
    ) -> Any:
        broker = broker_of(resources[0])
        if not broker:
            return await self._admin.any_broker(request, deadline)
        if not broker.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker!r}: must be a broker id")
        if int(broker) not in self._admin.client.node_ids:
            await self._admin.metadata.update(deadline)
        return await self._admin.client.send(int(broker), request)


def broker_of(resource: ConfigResource) -> str:
    """The id of the only broker that can answer, "" if any can."""
    return resource.name if resource.type in PER_BROKER else ""


def alterable(operation: AlterConfigOp) -> IncrementalAlterableConfig:
    op = operation.op
    number = ConfigOperation[op.upper()] if isinstance(op, str) else ConfigOperation(op)
    return IncrementalAlterableConfig(
        name=operation.name, config_operation=number, value=operation.value
    )


def resource_of(result: Any) -> ConfigResource:
    """The resource that a part of an answer is about."""
    kinds = ConfigResourceType
    known = result.resource_type in kinds.__members__.values()
    kind = kinds(result.resource_type) if known else kinds.UNKNOWN
    return ConfigResource(kind, result.resource_name)


def outcomes(response: Any) -> dict[ConfigResource, KafkaError | None]:
    """The error, or None, of each resource in the response to a change."""
    results = {}
    for result in response.responses:
        key = resource_of(result)
        results[key] = response_error(result.error_code, str(key), result.error_message)
    return results


def entry_of(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = source_of(config.config_source)
    return ConfigEntry(
        config.name,
        config.value,
        config.is_default or source is ConfigSource.DEFAULT_CONFIG,
        config.is_sensitive,
        config.read_only,
        source,
        [ConfigSynonym(s.name, s.value, source_of(s.source)) for s in config.synonyms],
        config.documentation,
    )


def source_of(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
