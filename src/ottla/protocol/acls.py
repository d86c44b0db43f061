"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31): the rights of principals on resources."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Int8, Int16, Int32, String, field

LITERAL: Final = 3
"""The pattern type of versions that have none: the resource of exactly this name."""


class AclFilter(Struct):
    """Which ACLs are meant; null matches every name, principal or host."""

    resource_type_filter: int = field(Int8)
    resource_name_filter: str | None = field(String, nullable="0+")
    pattern_type_filter: int = field(Int8, versions="1+", default=LITERAL)
    principal_filter: str | None = field(String, nullable="0+")
    host_filter: str | None = field(String, nullable="0+")
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DescribeAclsRequest(AclFilter, Request, api_key=29, flexible="2+"):
    """Ask for the ACLs that match one filter.

    v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user (KIP-373).
    """


class AclDescription(Struct):
    """One ACL of a resource."""

    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DescribeAclsResource(Struct):
    """A resource pattern and its ACLs."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    acls: list[AclDescription] = field(Array(AclDescription))


class DescribeAclsResponse(Response, api_key=29, flexible="2+"):
    """The ACLs that match, by resource."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))


class AclCreation(Struct):
    """One ACL to add."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    resource_pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class CreateAclsRequest(Request, api_key=30, flexible="2+"):
    """Add ACLs. v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user (KIP-373)."""

    creations: list[AclCreation] = field(Array(AclCreation))


class AclCreationResult(Struct):
    """Whether one ACL was added."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class CreateAclsResponse(Response, api_key=30, flexible="2+"):
    """A result for each ACL, in the order of the request."""

    throttle_time_ms: int = field(Int32)
    results: list[AclCreationResult] = field(Array(AclCreationResult))


class DeleteAclsFilter(AclFilter):
    """The ACLs to remove."""


class DeleteAclsRequest(Request, api_key=31, flexible="2+"):
    """Remove ACLs. v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user."""

    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    """One ACL that a filter matched, and whether it was removed."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    pattern_type: int = field(Int8, versions="1+", default=LITERAL)
    principal: str = field(String)
    host: str = field(String)
    operation: int = field(Int8)
    permission_type: int = field(Int8)


class DeleteAclsFilterResult(Struct):
    """The ACLs that one filter matched."""

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Response, api_key=31, flexible="2+"):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: int = field(Int32)
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult))
