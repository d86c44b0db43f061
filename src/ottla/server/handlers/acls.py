"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), v0-3: refused, as there is no authorizer.

Behaviour: SECURITY_DISABLED, as Kafka answers where `authorizer.class.name` is not set; tools such
as MirrorMaker 2 take that for "there are no ACLs to copy" and continue.

Version notes: v1 pattern types (KIP-290) · v2 flexible · v3 resources of type user (KIP-373).

Gaps: ACLs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode
from ottla.network.connection import RequestContext
from ottla.protocol.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.protocol.api_keys import ApiKey
from ottla.server.apis import Handler

DISABLED = int(ErrorCode.SECURITY_DISABLED)
REASON = "no authorizer is configured on this broker"


class AclsHandler:
    """Tells that nothing is guarded by ACLs here."""

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.handle_describe_acls,
            ApiKey.CREATE_ACLS: self.handle_create_acls,
            ApiKey.DELETE_ACLS: self.handle_delete_acls,
        }

    def handle_describe_acls(
        self, context: RequestContext, body: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=DISABLED, error_message=REASON)

    def handle_create_acls(
        self, context: RequestContext, body: CreateAclsRequest
    ) -> CreateAclsResponse:
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=DISABLED, error_message=REASON) for _ in body.creations
            ]
        )

    def handle_delete_acls(
        self, context: RequestContext, body: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=DISABLED, error_message=REASON)
                for _ in body.filters
            ]
        )
