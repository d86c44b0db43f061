"""ACL calls where there is no authorizer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.message import encode
from ottla.server.handlers.acls import AclsHandler


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_acl_calls_say_that_security_is_disabled(version: int) -> None:
    """MirrorMaker 2 logged an error with a traceback at each sync: the calls were unknown."""
    handler, context = AclsHandler(), SimpleNamespace(api_version=version)
    described = handler.handle_describe_acls(context, DescribeAclsRequest())
    created = handler.handle_create_acls(
        context, CreateAclsRequest(creations=[AclCreation(), AclCreation()])
    )
    deleted = handler.handle_delete_acls(
        context, DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()])
    )

    assert all(encode(answer, version) for answer in (described, created, deleted))
    results = [described, *created.results, *deleted.filter_results]
    assert len(results) == 5
    for result in results:
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert result.error_message == "no authorizer is configured on this broker"
