"""ACL calls, with an authorizer and without."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.extensions.rights.acls_handler import AclsHandler
from ottla.extensions.rights.authorizer import Authorizer
from ottla.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.runtime import Slices
from ottla.testing import mock_runtime


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_acl_calls_say_that_security_is_disabled(version: int) -> None:
    """MirrorMaker 2 logged an error with a traceback at each sync: the calls were unknown."""
    handler, context = AclsHandler(None, Slices()), SimpleNamespace(api_version=version)
    run = mock_runtime().scheduler.run
    described = run(handler.handle_describe_acls(context, DescribeAclsRequest()))
    created = run(
        handler.handle_create_acls(
            context, CreateAclsRequest(creations=[AclCreation(), AclCreation()])
        )
    )
    deleted = run(
        handler.handle_delete_acls(
            context, DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()])
        )
    )

    assert all(encode(answer, version) for answer in (described, created, deleted))
    results = [described, *created.results, *deleted.filter_results]
    assert len(results) == 5
    for result in results:
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert result.error_message == "no authorizer is configured on this broker"


class World:
    """The handler on a registry."""

    def __init__(self) -> None:
        runtime = mock_runtime()
        self.run = runtime.scheduler.run
        registry = EmbeddedRegistry(runtime, "/data/registry")
        self.run(registry.start())
        config = BrokerConfig(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
        self.authorizer = Authorizer(runtime, registry, config)
        self.run(self.authorizer.start())
        self.handler = AclsHandler(self.authorizer, Slices())

    def create(self, *creations: AclCreation) -> list[int]:
        body = CreateAclsRequest(creations=list(creations))
        answer = self.run(self.handler.handle_create_acls(None, body))
        return [result.error_code for result in answer.results]

    def describe(self, **filters: int | str | None) -> DescribeAclsResponse:
        return self.run(
            self.handler.handle_describe_acls(None, DescribeAclsRequest(**ANY | filters))
        )

    def delete(self, *filters: dict[str, int | str | None]) -> list[tuple[int, list[str]]]:
        body = DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY | each) for each in filters])
        answer = self.run(self.handler.handle_delete_acls(None, body))
        return [
            (result.error_code, [each.resource_name for each in result.matching_acls])
            for result in answer.filter_results
        ]


ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def creation(name: str, **changes: int | str) -> AclCreation:
    """User:bob may read a topic."""
    values = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:bob",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**values | changes)


@pytest.fixture
def world() -> World:
    """No ACLs yet."""
    return World()


def test_acls_are_created_described_and_deleted(world):
    """Each creation and each filter has its own result."""
    assert world.create(
        creation("a"), creation("a", operation=4), creation("b", resource_pattern_type=4)
    ) == [0, 0, 0]

    described = world.describe().resources
    assert [(each.resource_name, each.pattern_type, len(each.acls)) for each in described] == [
        ("a", 3, 2),
        ("b", 4, 1),
    ]
    matched = world.describe(pattern_type_filter=2, resource_name_filter="bcd").resources
    assert [each.resource_name for each in matched] == ["b"]

    assert world.delete(
        {"resource_name_filter": "a", "operation": 4}, {"resource_name_filter": "nothing"}
    ) == [(0, ["a"]), (0, [])]
    assert world.delete({}) == [(0, ["a", "b"])]
    assert world.describe().resources == []


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_name": ""},
        {"resource_type": 1},
        {"resource_type": 4},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 77},
        {"permission_type": 0},
        {"principal": "bob"},
    ],
)
def test_acl_that_guards_nothing_is_an_invalid_request(world, changes):
    """The others of the request are created."""
    assert world.create(creation("a", **changes), creation("b")) == [42, 0]
    assert len(world.authorizer.table) == 1


def test_filter_that_names_what_is_unknown_is_refused(world):
    """An operation of a later Kafka must not match everything."""
    world.create(creation("a"))

    assert world.describe(operation=99).error_code == ErrorCode.INVALID_REQUEST
    assert world.delete({"pattern_type_filter": 0}) == [(42, [])]
    assert len(world.authorizer.table) == 1
