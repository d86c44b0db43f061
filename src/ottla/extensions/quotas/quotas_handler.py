"""DescribeClientQuotas (48) and AlterClientQuotas (49).

Behaviour: quotas of users, client ids, clients of a user, and IP addresses (KIP-546, KIP-612). The
registry keeps them, at /config/users, /config/clients and /config/ips; all brokers follow. Each
entity of a change succeeds or fails alone. Unlike Kafka, a limit of 0 or less is refused: nobody
could ever use the limited resource.

Version notes: v1 flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from ottla.config.config_type import ConfigType
from ottla.config.quota_config import IP_QUOTA_TYPES, QUOTA_TYPES, format_limit, parse_limit
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaMatchType,
    QuotaOperation,
    QuotaValue,
)
from ottla.runtime import Slices
from ottla.runtime.scheduler import gather_each
from ottla.server.api import Handler, error_code, error_message
from ottla.server.dynamic_config import DynamicConfig
from ottla.server.parts import Parts
from ottla.structs import ClientEntity

ATTRIBUTES: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The types of entities on the wire, and the attributes of `ClientEntity`."""

SLICE_ENTITIES: Final = 1000

NamePattern = Callable[[str | None], bool]


class ClientQuotasHandler:
    """Shows and changes quotas where the registry has them."""

    def __init__(self, dynamic_config: DynamicConfig, slices: Slices) -> None:
        self.entities = dynamic_config.entities
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.handle_describe_client_quotas,
            ApiKey.ALTER_CLIENT_QUOTAS: self.handle_alter_client_quotas,
        }

    async def handle_describe_client_quotas(
        self, context: RequestContext, body: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        matches = entity_filter(body.components, body.strict)
        entities = await self.entities.client_entities()
        wanted = [
            each async for each in self.slices.over(entities, SLICE_ENTITIES) if matches(each)
        ]
        found = await gather_each(self.entities.read_client, wanted)
        described = [
            DescribedQuota(entity=on_wire(entity), values=values)
            async for entity, overrides in self.slices.over(
                zip(wanted, found, strict=True), SLICE_ENTITIES
            )
            if (values := quota_values(entity, overrides))
        ]
        return DescribeClientQuotasResponse(error_message=None, entries=described)

    async def handle_alter_client_quotas(
        self, context: RequestContext, body: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        results = []
        for alteration in body.entries:
            outcome: KafkaError | None = None
            try:
                await self._alter(alteration, body.validate_only)
            except KafkaError as error:
                outcome = error
            results.append(
                AlteredQuota(
                    error_code=error_code(outcome),
                    error_message=error_message(outcome),
                    entity=alteration.entity,
                )
            )
        return AlterClientQuotasResponse(entries=results)

    async def _alter(self, alteration: QuotaAlteration, validate_only: bool) -> None:
        entity = altered_entity(alteration.entity)
        changes = quota_changes(entity, alteration.ops)

        def change(before: dict[str, str]) -> dict[str, str]:
            after = before | changes
            return {key: text for key, text in after.items() if text is not None}

        if not validate_only:
            await self.entities.change_client(entity, change)


def new_quotas_handler(broker: Parts) -> ClientQuotasHandler:
    """The handlers of requests for quotas, which the registry keeps."""
    return ClientQuotasHandler(broker.dynamic_config, broker.apis.slices)


def entity_filter(
    components: Sequence[QuotaFilterComponent], strict: bool
) -> Callable[[ClientEntity], bool]:
    """Whether an entity is asked for.

    Raises:
        KafkaError: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type of entities.
    """
    patterns: dict[str, NamePattern] = {}
    for component in components:
        attribute = _attribute(component.entity_type, patterns)
        patterns[attribute] = _pattern(component)
    _refuse_mixture(patterns)

    def matches(entity: ClientEntity) -> bool:
        for attribute, name in entity._asdict().items():
            pattern = patterns.get(attribute)
            if pattern is not None and not pattern(name):
                return False
            if pattern is None and name is not None and strict:
                return False
        return True

    return matches


def _pattern(component: QuotaFilterComponent) -> NamePattern:
    """The names that a component must have; None is the name of one that is not there."""
    if component.match_type == QuotaMatchType.EXACT:
        if not component.match:
            raise _invalid(f"{component.entity_type}: an exact match needs a name")
        return lambda name: name == component.match
    if component.match_type == QuotaMatchType.DEFAULT:
        return lambda name: name == ""
    if component.match_type == QuotaMatchType.ANY:
        return lambda name: name is not None
    raise _invalid(f"{component.entity_type}: there is no match type {component.match_type}")


def altered_entity(components: Iterable[QuotaEntity]) -> ClientEntity:
    """The entity that a change is for; the default has null for a name (KAFKA-16222)."""
    names: dict[str, str] = {}
    for component in components:
        attribute = _attribute(component.entity_type, names)
        if component.entity_name == "":
            raise _invalid(f"the name of a {component.entity_type} must not be empty")
        names[attribute] = component.entity_name or ""
    if not names:
        raise _invalid("an entity needs a user, a client-id or an ip")
    _refuse_mixture(names)
    ip = names.get("ip")
    if ip and not _is_address(ip):
        raise _invalid(f"ip {ip}: must be an IP address, or null for the default")
    return ClientEntity(**names)


def quota_changes(
    entity: ClientEntity, operations: Iterable[QuotaOperation]
) -> dict[str, str | None]:
    """The new texts of the keys; None for those that are removed."""
    types = quota_types(entity)
    changes: dict[str, str | None] = {}
    for operation in operations:
        key = operation.key
        if key in changes:
            raise _invalid(f"{key}: is there more than once")
        try:
            if not operation.remove:
                changes[key] = format_limit(key, parse_limit(key, operation.value, types))
            elif key in types:
                changes[key] = None
            else:
                raise ConfigError(f"{key}: must be one of {', '.join(types)}")
        except ConfigError as error:
            raise _invalid(error.message) from None
    return changes


def quota_types(entity: ClientEntity) -> Mapping[str, ConfigType]:
    """The keys of quotas that the entity may have, and the types of their values."""
    return QUOTA_TYPES if entity.ip is None else IP_QUOTA_TYPES


def quota_values(entity: ClientEntity, overrides: Mapping[str, str]) -> list[QuotaValue]:
    """The quotas among the stored settings of an entity; credentials are left out."""
    values = []
    for key, kind in quota_types(entity).items():
        if key in overrides:
            try:
                values.append(QuotaValue(key=key, value=float(kind.parse(key, overrides[key]))))
            except ConfigError:
                continue  # another program wrote it; it has no effect, and the log says so
    return values


def on_wire(entity: ClientEntity) -> list[QuotaEntity]:
    """The components of an entity."""
    return [
        QuotaEntity(entity_type=entity_type, entity_name=name or None)
        for (entity_type, _), name in zip(ATTRIBUTES.items(), entity, strict=True)
        if name is not None
    ]


def _attribute(entity_type: str, known: Iterable[str]) -> str:
    if not entity_type:
        raise _invalid("an entity type must not be empty")
    attribute = ATTRIBUTES.get(entity_type)
    if attribute is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"entity type {entity_type}: must be user, client-id or ip",
        )
    if attribute in known:
        raise _invalid(f"entity type {entity_type}: is there more than once")
    return attribute


def _refuse_mixture(attributes: Mapping[str, object]) -> None:
    if "ip" in attributes and len(attributes) > 1:
        raise _invalid("an ip cannot stand together with a user or a client-id")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
