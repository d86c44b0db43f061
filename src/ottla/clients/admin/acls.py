"""ACLs, as `Admin` lists, creates and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ottla.clients.network_client import check_code, response_error
from ottla.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.errors import KafkaError
    from ottla.runtime.timing import Deadline


class AclAdmin:
    """Requests about ACLs; any broker answers them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_acls(self, wanted: AclBindingFilter | None) -> list[AclBinding]:
        async def attempt(deadline: Deadline) -> list[AclBinding]:
            request = DescribeAclsRequest(**_fields(wanted or AclBindingFilter()))
            response = cast("DescribeAclsResponse", await self._admin.any_broker(request, deadline))
            check_code(response.error_code, "the ACLs", response.error_message)
            return sorted(
                AclBinding(
                    _pattern(each.resource_type, each.resource_name, each.pattern_type),
                    _entry(acl),
                )
                for each in response.resources
                for acl in each.acls
            )

        return await self._admin.until_done(attempt)

    async def create_acls(
        self, bindings: Sequence[AclBinding]
    ) -> dict[AclBinding, KafkaError | None]:
        async def attempt(
            pending: list[AclBinding], deadline: Deadline
        ) -> dict[AclBinding, KafkaError | None]:
            request = CreateAclsRequest(creations=[_creation(each) for each in pending])
            response = cast("CreateAclsResponse", await self._admin.any_broker(request, deadline))
            return {
                binding: response_error(result.error_code, str(binding), result.error_message)
                for binding, result in zip(pending, response.results, strict=True)
            }

        return await self._admin.for_each(bindings, attempt)

    async def delete_acls(
        self, filters: Sequence[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        async def attempt(
            pending: list[AclBindingFilter], deadline: Deadline
        ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
            request = DeleteAclsRequest(
                filters=[DeleteAclsFilter(**_fields(each)) for each in pending]
            )
            response = cast("DeleteAclsResponse", await self._admin.any_broker(request, deadline))
            return {
                each: _deleted(result)
                for each, result in zip(pending, response.filter_results, strict=True)
            }

        return await self._admin.for_each(filters, attempt)


def _fields(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding
    return AclCreation(
        resource_type=int(pattern.type),
        resource_name=pattern.name,
        resource_pattern_type=int(pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=int(entry.operation),
        permission_type=int(entry.permission),
    )


def _pattern(type_: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(ResourceType.of(type_), name, PatternType.of(pattern_type))


def _entry(acl: Any) -> AccessControlEntry:
    return AccessControlEntry(
        acl.principal,
        acl.host,
        AclOperation.of(acl.operation),
        AclPermissionType.of(acl.permission_type),
    )


def _deleted(result: Any) -> list[AclBinding] | KafkaError:
    """The ACLs that are gone; the error of the filter, or of the first that is not."""
    error = response_error(result.error_code, "the filter", result.error_message)
    if error is not None:
        return error
    found = []
    for acl in result.matching_acls:
        pattern = _pattern(acl.resource_type, acl.resource_name, acl.pattern_type)
        error = response_error(acl.error_code, str(pattern), acl.error_message)
        if error is not None:
            return error
        found.append(AclBinding(pattern, _entry(acl)))
    return sorted(found)
