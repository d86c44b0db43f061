"""The page of access: ACLs, who can do what by them, users and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from visitor import Visitor, visit

from ottla import Admin
from ottla.clients.admin.acls import AclAdmin
from ottla.clients.admin.client_quotas import ClientQuotaAdmin
from ottla.clients.admin.scram_users import ScramUserAdmin, UserScramCredential
from ottla.console.access_pages import Question, command_of
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.structs import ClientEntity
from ottla.testing import InProcessBroker

PATTERNS = [
    ("User:alice", AclOperation.READ, AclPermissionType.ALLOW, "orders", PatternType.LITERAL),
    ("User:bob", AclOperation.ALL, AclPermissionType.ALLOW, "ord", PatternType.PREFIXED),
    ("User:bob", AclOperation.WRITE, AclPermissionType.DENY, "orders", PatternType.LITERAL),
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A broker with an authorizer, whose anonymous clients are super users."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with InProcessBroker(**settings) as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_acls(
            AclBinding(
                ResourcePattern(ResourceType.TOPIC, name, kind),
                AccessControlEntry(who, "*", operation, permission),
            )
            for who, operation, permission, name, kind in PATTERNS
        )
        admin.alter_user_scram_credentials([UserScramCredential("alice", "SCRAM-SHA-256", "s")])
        admin.alter_client_quotas({ClientEntity("alice"): {"producer_byte_rate": 1024.0}})
        yield broker.bootstrap_servers


def test_acls_users_and_quotas_are_listed(guarded):
    """The ACLs in windows, by any part of them."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/access.json")).json
        rows = [(each["principal"], each["operation"], each["permission"]) for each in data["rows"]]
        assert sorted(rows) == [
            ("User:alice", "Read", "Allow"),
            ("User:bob", "All", "Allow"),
            ("User:bob", "Write", "Deny"),
        ]
        assert data["users"] == [{"user": "alice", "mechanisms": {"SCRAM-SHA-256": 4096}}]
        assert data["quotas"] == [{"entity": "user alice", "limits": {"producer_byte_rate": 1024}}]
        found = (await visitor.get("/access.json?q=DENY&sort=principal")).json
        assert (found["found"], found["total"]) == (1, 3)
        page = (await visitor.get("/access")).text
        assert "1 KB/s" in page
        assert (await visitor.get("/access?sort=colour")).status == 400

    visit(guarded, walk)


def test_who_can_names_principals_with_the_acl_that_decides(guarded):
    """A denial takes away what a prefix allows; super users need no ACL."""

    async def walk(visitor: Visitor) -> None:
        read = "/access.json?kind=topic&name=orders&operation=Read"
        data = (await visitor.get(read)).json
        found = {each["principal"]: each["reason"] for each in data["answer"]}
        assert set(found) == {"User:ANONYMOUS", "User:alice", "User:bob"}
        assert found["User:ANONYMOUS"] == "User:ANONYMOUS is a super user"
        assert data["command"] == "ottla acls who-can --operation Read --topic orders"
        write = (await visitor.get(read.replace("Read", "Write"))).json
        assert [each["principal"] for each in write["answer"]] == ["User:ANONYMOUS"]
        page = (await visitor.get(read.replace(".json", ""))).text
        assert "for User:alice" in page

    visit(guarded, walk)


def test_decision_about_one_principal_is_explained(guarded):
    """With the ACL that denies it."""

    async def walk(visitor: Visitor) -> None:
        path = "/access.json?kind=topic&name=orders&operation=Write&principal=User:bob"
        data = (await visitor.get(path)).json
        (line,) = data["answer"]
        assert (line["is_allowed"], line["reason"]) == (False, "an ACL denies it")
        assert line["acl"]["permission"] == "Deny"
        assert data["command"] == (
            "ottla acls explain --principal User:bob --operation Write --topic orders"
        )

    visit(guarded, walk)


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("kind=table&operation=Read", "kind=table: must be one of topic"),
        ("kind=topic&operation=Fly", "operation=Fly: on a topic it must be one of"),
        ("kind=topic&name=t&operation=Read&principal=bob", "principal=bob:"),
    ],
)
def test_questions_with_mistakes_are_refused(guarded, query, rule):
    """With the values that there are."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(f"/access.json?{query}")
        assert answer.status == 400
        assert rule in answer.json["error"]

    visit(guarded, walk)


def test_broker_without_an_authorizer_says_so(ottla_fresh_broker):
    """In a sentence, beside users and quotas."""

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/access")
        assert page.status == 200
        assert "These brokers have no authorizer: everybody may do everything." in page.text
        assert "No user has SCRAM credentials." in page.text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_commands_have_the_options_of_each_kind():
    """The cluster has no name, and users have an option of another name."""
    cluster = Question("cluster", "", "Alter", "", "10.0.0.1")
    user = Question("user", "it's", "CreateTokens", "User:bob", "*")

    assert command_of(cluster) == ("ottla acls who-can --operation Alter --cluster --host 10.0.0.1")
    assert command_of(user) == (
        "ottla acls explain --principal User:bob --operation CreateTokens "
        """--user-principal 'it'"'"'s'"""
    )


def test_rights_users_and_quotas_are_asked_for_together(guarded, monkeypatch):
    """A broker that does not answer is waited for once, not three times."""
    together = asyncio.Barrier(3)

    async def none(*_: object) -> dict:
        await together.wait()
        return {}

    monkeypatch.setattr(AclAdmin, "describe_acls", none)
    monkeypatch.setattr(ScramUserAdmin, "describe", none)
    monkeypatch.setattr(ClientQuotaAdmin, "describe_client_quotas", none)

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/access")).status == 200

    visit(guarded, walk)
