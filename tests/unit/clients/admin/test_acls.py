"""Calls about ACLs and delegation tokens: what is asked, and what comes back."""

from __future__ import annotations

import pytest
from admin_world import ANYONE, Call, OldBroker, asked

from ottla import KafkaError
from ottla.errors import ErrorCode
from ottla.protocol.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    TokenOwner,
    TokenRenewer,
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
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal

DISABLED = ErrorCode.SECURITY_DISABLED
ANN, BOB, CARL = (KafkaPrincipal("User", name) for name in ("ann", "bob", "carl"))


def binding(name: str) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED),
        AccessControlEntry("User:ann", "*", AclOperation.WRITE, AclPermissionType.DENY),
    )


ENTRY = {"principal": "User:ann", "host": "*", "operation": 4, "permission_type": 2}
ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
FILTER = AclBindingFilter(
    ResourceType.GROUP,
    "g",
    PatternType.LITERAL,
    "User:bob",
    "10.0.0.1",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
FILTERED = {
    "resource_type_filter": 3,
    "resource_name_filter": "g",
    "pattern_type_filter": 3,
    "principal_filter": "User:bob",
    "host_filter": "10.0.0.1",
    "operation": 3,
    "permission_type": 3,
}


def described(*names: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=2,
                resource_name=name,
                pattern_type=4,
                acls=[AclDescription(**ENTRY)],
            )
            for name in names
        ]
    )


def creation(name: str) -> AclCreation:
    return AclCreation(resource_type=2, resource_name=name, resource_pattern_type=4, **ENTRY)


def matching(name: str, code: int = 0) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=code, resource_type=2, resource_name=name, pattern_type=4, **ENTRY
    )


def deleted(*acls: DeleteAclsMatchingAcl, code: int = 0) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, matching_acls=list(acls))
    return DeleteAclsResponse(filter_results=[result])


CALLS = {
    "describe all ACLs": Call(
        lambda admin: admin.describe_acls(),
        ANYONE,
        DescribeAclsRequest(**ANY),
        described("b", "a"),
        [binding("a"), binding("b")],
    ),
    "describe some ACLs": Call(
        lambda admin: admin.describe_acls(FILTER),
        ANYONE,
        DescribeAclsRequest(**FILTERED),
        DescribeAclsResponse(error_code=DISABLED),
        DISABLED,
    ),
    "create ACLs": Call(
        lambda admin: admin.create_acls(iter([binding("a"), binding("b")])),
        ANYONE,
        CreateAclsRequest(creations=[creation("a"), creation("b")]),
        CreateAclsResponse(results=[AclCreationResult(), AclCreationResult()]),
        None,
    ),
    "create ACLs of which one is refused": Call(
        lambda admin: admin.create_acls([binding("a"), binding("b")]),
        ANYONE,
        CreateAclsRequest(creations=[creation("a"), creation("b")]),
        CreateAclsResponse(
            results=[AclCreationResult(), AclCreationResult(error_code=ErrorCode.INVALID_REQUEST)]
        ),
        ErrorCode.INVALID_REQUEST,
    ),
    "delete ACLs": Call(
        lambda admin: admin.delete_acls(iter([FILTER])),
        ANYONE,
        DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTERED)]),
        deleted(matching("b"), matching("a")),
        {FILTER: [binding("a"), binding("b")]},
    ),
    "delete ACLs of which one stays": Call(
        lambda admin: admin.delete_acls([FILTER]),
        ANYONE,
        DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTERED)]),
        deleted(matching("b"), matching("a", int(ErrorCode.UNKNOWN_SERVER_ERROR))),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "delete ACLs in vain": Call(
        lambda admin: admin.delete_acls([FILTER]),
        ANYONE,
        DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTERED)]),
        deleted(code=int(DISABLED)),
        DISABLED,
    ),
}


def token_of(requester: KafkaPrincipal, *renewers: KafkaPrincipal) -> DelegationToken:
    return DelegationToken("id", ANN, requester, renewers, 1, 2, 3, b"hmac")


MADE = CreateDelegationTokenResponse(
    principal_type="User",
    principal_name="ann",
    token_requester_principal_type="User",
    token_requester_principal_name="bob",
    issue_timestamp_ms=1,
    expiry_timestamp_ms=2,
    max_timestamp_ms=3,
    token_id="id",
    hmac=b"hmac",
)
RENEWER = TokenRenewer(principal_type="User", principal_name="carl")


def token(requester: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type="User",
        principal_name="ann",
        token_requester_principal_type="User" if requester else "",
        token_requester_principal_name=requester,
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id="id",
        hmac=b"hmac",
        renewers=[RENEWER],
    )


CALLS |= {
    "make a token of one's own": Call(
        lambda admin: admin.create_delegation_token(),
        ANYONE,
        CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1
        ),
        MADE,
        token_of(BOB),
    ),
    "make a token of another": Call(
        lambda admin: admin.create_delegation_token(ANN, iter([CARL]), 9000),
        ANYONE,
        CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="ann",
            renewers=[RENEWER],
            max_lifetime_ms=9000,
        ),
        MADE,
        token_of(BOB, CARL),
    ),
    "make a token in vain": Call(
        lambda admin: admin.create_delegation_token(),
        ANYONE,
        CreateDelegationTokenRequest(
            owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1
        ),
        CreateDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ),
    "renew": Call(
        lambda admin: admin.renew_delegation_token(b"hmac", 50),
        ANYONE,
        RenewDelegationTokenRequest(hmac=b"hmac", renew_period_ms=50),
        RenewDelegationTokenResponse(expiry_timestamp_ms=99),
        99,
    ),
    "expire": Call(
        lambda admin: admin.expire_delegation_token(b"hmac"),
        ANYONE,
        ExpireDelegationTokenRequest(hmac=b"hmac", expiry_time_period_ms=-1),
        ExpireDelegationTokenResponse(expiry_timestamp_ms=98),
        98,
    ),
    "describe all tokens": Call(
        lambda admin: admin.describe_delegation_tokens(),
        ANYONE,
        DescribeDelegationTokenRequest(owners=None),
        DescribeDelegationTokenResponse(tokens=[token("bob"), token("")]),
        [token_of(BOB, CARL), token_of(ANN, CARL)],
    ),
    "describe some tokens": Call(
        lambda admin: admin.describe_delegation_tokens(iter([ANN])),
        ANYONE,
        DescribeDelegationTokenRequest(
            owners=[TokenOwner(principal_type="User", principal_name="ann")]
        ),
        DescribeDelegationTokenResponse(tokens=[]),
        [],
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_asks_for_what_it_was_given(virtual_admin, cluster, call):
    """One request to any broker, with everything in it; the answer is returned."""
    call.check(virtual_admin, cluster)


def test_token_of_another_needs_a_broker_that_knows_owners(virtual_admin, cluster):
    """An older one would make a token of whoever asks."""
    OldBroker(
        lambda admin: admin.create_delegation_token(ANN), CreateDelegationTokenRequest, 3
    ).check(virtual_admin, cluster)


def test_token_of_an_old_broker_was_requested_by_its_owner(virtual_admin, cluster):
    """Before version 3 nobody can request one for another."""
    for broker in cluster.brokers.values():
        broker.versions[CreateDelegationTokenRequest.api_key] = (0, 2)
        broker.on(CreateDelegationTokenRequest, MADE)

    assert virtual_admin.create_delegation_token() == token_of(ANN)


def test_call_is_repeated_only_for_what_may_pass(virtual_admin, cluster):
    """An ACL that was created is not created again; the second response is about the rest."""
    answers = [
        CreateAclsResponse(
            results=[AclCreationResult(), AclCreationResult(error_code=ErrorCode.NOT_CONTROLLER)]
        ),
        CreateAclsResponse(results=[AclCreationResult(error_code=ErrorCode.INVALID_REQUEST)]),
    ]
    for broker in cluster.brokers.values():
        broker.on(CreateAclsRequest, lambda request, version: answers.pop(0))
    with pytest.raises(KafkaError) as caught:
        virtual_admin.create_acls([binding("a"), binding("b")])

    assert caught.value.results[binding("a")] is None
    assert caught.value.results[binding("b")].error is ErrorCode.INVALID_REQUEST
    sent = [
        [each.resource_name for each in r.creations] for _, r in asked(cluster, CreateAclsRequest)
    ]
    assert sorted(sent) == [["a", "b"], ["b"]]
