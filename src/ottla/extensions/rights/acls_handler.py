"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), v0-3: the rights of principals.

Behaviour: any broker serves them, with an authorizer; the answer comes when the registry has the
change, which holds on this broker at once and on others as soon as they read its notification.
Without `authorizer.class.name` the answer is SECURITY_DISABLED, which tools such as MirrorMaker 2
take for "there are no ACLs to copy". The host of an ACL may also be a network, as 10.0.0.0/8.

Version notes: v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user (KIP-373).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.rights.authorizer import Authorizer
from ottla.network.request_context import RequestContext
from ottla.protocol.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    AclFilter,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.api_keys import ApiKey
from ottla.runtime import Slices
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    check_binding,
)
from ottla.server.api import Handler, error_code, error_message

SLICE_BINDINGS = 1000
REASON = "no authorizer is configured on this broker"


class AclsHandler:
    """Reads and writes the ACLs of the authorizer; without one there are none."""

    def __init__(self, authorizer: Authorizer | None, slices: Slices) -> None:
        self.authorizer = authorizer
        self._slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.handle_describe_acls,
            ApiKey.CREATE_ACLS: self.handle_create_acls,
            ApiKey.DELETE_ACLS: self.handle_delete_acls,
        }

    async def handle_describe_acls(
        self, context: RequestContext, body: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        try:
            authorizer, wanted = self._authorizer(), acl_filter(body)
        except KafkaError as error:
            return DescribeAclsResponse(
                error_code=error_code(error), error_message=error_message(error)
            )
        resources: dict[ResourcePattern, DescribeAclsResource] = {}
        async for binding in self._slices.over(authorizer.table, SLICE_BINDINGS):
            if not wanted.matches(binding):
                continue
            type_, name, pattern_type = pattern = binding.pattern
            resource = resources.setdefault(
                pattern,
                DescribeAclsResource(
                    resource_type=int(type_), resource_name=name, pattern_type=int(pattern_type)
                ),
            )
            resource.acls.append(_described(binding.entry))
        return DescribeAclsResponse(error_message=None, resources=list(resources.values()))

    async def handle_create_acls(
        self, context: RequestContext, body: CreateAclsRequest
    ) -> CreateAclsResponse:
        outcomes: list[AclBinding | KafkaError] = []
        for creation in body.creations:
            try:
                self._authorizer()
                outcomes.append(acl_binding(creation))
            except KafkaError as error:
                outcomes.append(error)
        bindings = [each for each in outcomes if isinstance(each, AclBinding)]
        added = await self._authorizer().store.add(bindings) if bindings else {}
        errors = [added[each] if isinstance(each, AclBinding) else each for each in outcomes]
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=error_code(each), error_message=error_message(each))
                for each in errors
            ]
        )

    async def handle_delete_acls(
        self, context: RequestContext, body: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        wanted: list[AclBindingFilter | KafkaError] = []
        for each in body.filters:
            try:
                self._authorizer()
                wanted.append(acl_filter(each))
            except KafkaError as error:
                wanted.append(error)
        filters = [each for each in wanted if isinstance(each, AclBindingFilter)]
        removed = iter(await self._authorizer().store.remove(filters) if filters else ())
        results = []
        for one in wanted:
            result = DeleteAclsFilterResult(
                error_code=error_code(one), error_message=error_message(one)
            )
            if isinstance(one, AclBindingFilter):
                outcomes = next(removed).items()
                result.matching_acls = [
                    _matching(*outcome)
                    async for outcome in self._slices.over(outcomes, SLICE_BINDINGS)
                ]
            results.append(result)
        return DeleteAclsResponse(filter_results=results)

    def _authorizer(self) -> Authorizer:
        if self.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, REASON)
        return self.authorizer


def acl_binding(creation: AclCreation) -> AclBinding:
    """The ACL that a request describes; KafkaError for one that guards nothing."""
    binding = AclBinding(
        ResourcePattern(
            ResourceType.of(creation.resource_type),
            creation.resource_name,
            PatternType.of(creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            AclOperation.of(creation.operation),
            AclPermissionType.of(creation.permission_type),
        ),
    )
    try:
        check_binding(binding)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return binding


def acl_filter(body: AclFilter) -> AclBindingFilter:
    """The filter of a request; KafkaError for one with unknown names."""
    found = AclBindingFilter(
        ResourceType.of(body.resource_type_filter),
        body.resource_name_filter,
        PatternType.of(body.pattern_type_filter),
        body.principal_filter,
        body.host_filter,
        AclOperation.of(body.operation),
        AclPermissionType.of(body.permission_type),
    )
    for number, value in (
        (body.resource_type_filter, found.type),
        (body.pattern_type_filter, found.pattern_type),
        (body.operation, found.operation),
        (body.permission_type, found.permission),
    ):
        if not value:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{number} is no {type(value).__name__} of a filter"
            )
    return found


def _described(entry: AccessControlEntry) -> AclDescription:
    return AclDescription(
        principal=entry.principal,
        host=entry.host,
        operation=int(entry.operation),
        permission_type=int(entry.permission),
    )


def _matching(binding: AclBinding, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    (type_, name, pattern_type), entry = binding
    return DeleteAclsMatchingAcl(
        error_code=error_code(error),
        error_message=error_message(error),
        resource_type=int(type_),
        resource_name=name,
        pattern_type=int(pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=int(entry.operation),
        permission_type=int(entry.permission),
    )
