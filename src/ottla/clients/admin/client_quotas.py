"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.clients.network_client import check_code, response_error
from ottla.protocol.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaMatchType,
    QuotaOperation,
)
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.errors import KafkaError
    from ottla.runtime.timing import Deadline


ENTITY_TYPES = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The types of client entities in the protocol, and the attributes of `ClientEntity`."""


class ClientQuotaAdmin:
    """Requests about quotas; any broker answers them (KIP-546)."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_client_quotas(
        self, components: Mapping[str, str | None], strict: bool
    ) -> dict[ClientEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(
            components=[quota_filter(*each) for each in components.items()], strict=strict
        )

        async def attempt(deadline: Deadline) -> dict[ClientEntity, dict[str, float]]:
            answer = await self._admin.any_broker(request, deadline)
            response = cast("DescribeClientQuotasResponse", answer)
            check_code(response.error_code, "client quotas", response.error_message)
            return {
                client_entity(entry.entity): {each.key: each.value for each in entry.values}
                for entry in response.entries or ()
            }

        return await self._admin.until_done(attempt)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientEntity, Mapping[str, float | None]],
        validate_only: bool,
    ) -> dict[ClientEntity, KafkaError | None]:
        async def attempt(
            pending: list[ClientEntity], deadline: Deadline
        ) -> dict[ClientEntity, KafkaError | None]:
            request = AlterClientQuotasRequest(
                entries=[quota_alteration(entity, changes[entity]) for entity in pending],
                validate_only=validate_only,
            )
            answer = await self._admin.any_broker(request, deadline)
            response = cast("AlterClientQuotasResponse", answer)
            return {
                client_entity(entry.entity): response_error(
                    entry.error_code, "client quotas", entry.error_message
                )
                for entry in response.entries
            }

        return await self._admin.for_each(changes, attempt)


def quota_filter(entity_type: str, name: str | None) -> QuotaFilterComponent:
    """All entities with a name of this type (None), its default (""), or the one of the name."""
    if name is None:
        return QuotaFilterComponent(entity_type=entity_type, match_type=QuotaMatchType.ANY)
    if not name:
        return QuotaFilterComponent(entity_type=entity_type, match_type=QuotaMatchType.DEFAULT)
    return QuotaFilterComponent(
        entity_type=entity_type, match_type=QuotaMatchType.EXACT, match=name
    )


def quota_alteration(entity: ClientEntity, limits: Mapping[str, float | None]) -> QuotaAlteration:
    """The changes to one entity; None removes a limit."""
    return QuotaAlteration(
        entity=[
            QuotaEntity(entity_type=entity_type, entity_name=name or None)
            for entity_type, name in zip(ENTITY_TYPES, entity, strict=True)
            if name is not None
        ],
        ops=[
            QuotaOperation(key=key, value=float(limit or 0), remove=limit is None)
            for key, limit in limits.items()
        ],
    )


def client_entity(components: Iterable[QuotaEntity]) -> ClientEntity:
    """The entity that a broker names; components of newer types are left out."""
    return ClientEntity(
        **{
            ENTITY_TYPES[each.entity_type]: each.entity_name or ""
            for each in components
            if each.entity_type in ENTITY_TYPES
        }
    )
