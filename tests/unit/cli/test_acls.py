"""`ottla acls`: the texts of Kafka's tool, and what follows from the ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    ResourcePattern,
    ResourceType,
)

ADD_A = ("--add", "--allow-principal", "User:a")
ORDERS = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"


class FakeAcls:
    """An admin client that keeps ACLs, and tells the settings of a broker."""

    def __init__(self) -> None:
        self.table = AclTable()
        self.settings = {"super.users": "User:root"}
        self.error: KafkaError | None = None

    def __enter__(self) -> FakeAcls:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        if self.error is not None:
            raise self.error
        return [each for each in self.table if wanted is None or wanted.matches(each)]

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        self.table.add(bindings)

    def delete_acls(self, filters: Iterable[AclBindingFilter]) -> None:
        for wanted in filters:
            for pattern, entry in [each for each in self.table if wanted.matches(each)]:
                self.table.put(pattern, self.table.entries(pattern) - {entry})

    def describe_cluster(self) -> SimpleNamespace:
        return SimpleNamespace(nodes=[SimpleNamespace(id=0)])

    def describe_configs(self, resources: list[object]) -> dict[object, dict[str, SimpleNamespace]]:
        entries = {key: SimpleNamespace(value=value) for key, value in self.settings.items()}
        return dict.fromkeys(resources, entries)


@pytest.fixture
def acls(clients) -> FakeAcls:
    """No ACLs yet."""
    clients.client = FakeAcls()
    return clients.client


def bound(
    name: str,
    operation: AclOperation,
    principal: str = "User:bob",
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    pattern = ResourcePattern(ResourceType.TOPIC, name, pattern_type)
    return AclBinding(pattern, AccessControlEntry(principal, "*", operation, permission))


def test_added_acls_are_printed_as_by_kafka(ottla, acls):
    """Blanks and all; afterwards the ACLs that there are."""
    outcome = ottla(
        "acls",
        "--add",
        "--allow-principal",
        "User:bob",
        "--operation",
        "Write",
        "--topic",
        "orders",
    )

    line = " \t(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW) "
    assert outcome.status == 0
    assert outcome.lines == [
        f"Adding ACLs for resource `{ORDERS}`: ",
        line,
        "",
        f"Current ACLs for resource `{ORDERS}`: ",
        line,
        "",
    ]
    assert list(acls.table) == [bound("orders", AclOperation.WRITE)]


def test_shorthands_make_what_producers_and_consumers_need(ottla, acls):
    """Shorthands also work both at once, and for transactions without duplicates."""
    words = ("--allow-principal", "User:bob", "--topic", "t", "--group", "g")
    ottla(
        "acls",
        "--add",
        *words,
        "--producer",
        "--consumer",
        "--idempotent",
        "--transactional-id",
        "x",
    )

    made = {
        (pattern.type.title, pattern.name, entry.operation.title) for pattern, entry in acls.table
    }
    assert made == {
        ("Topic", "t", "Write"),
        ("Topic", "t", "Describe"),
        ("Topic", "t", "Create"),
        ("Topic", "t", "Read"),
        ("Group", "g", "Read"),
        ("TransactionalId", "x", "Write"),
        ("TransactionalId", "x", "Describe"),
        ("Cluster", "kafka-cluster", "IdempotentWrite"),
    }


def test_acls_are_removed_after_a_yes(ottla, acls):
    """ACLs stay without a yes, or at the end of the input; --force asks nothing."""
    acls.table.add([bound("orders", AclOperation.READ), bound("orders", AclOperation.WRITE)])
    words = ("acls", "--remove", "--topic", "orders")
    question = f"Are you sure you want to delete all ACLs for resource filter `{ORDERS}`? (y/n)"

    assert ottla(*words, stdin=b"n\n").lines[0] == question
    assert ottla(*words).lines[0] == question
    assert len(acls.table) == 2
    one = (*words, "--allow-principal", "User:bob", "--operation", "Read")
    asked = ottla(*one, stdin=b"y\n").lines
    assert asked[0] == "Are you sure you want to remove ACLs: "
    assert asked[1] == " \t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW) "
    assert list(acls.table) == [bound("orders", AclOperation.WRITE)]
    assert ottla(*words, "--force").lines == []
    assert len(acls.table) == 0


def test_list_shows_what_counts_for_a_name(ottla, acls):
    """--resource-pattern-type match, and only the ACLs of one principal."""
    prefixed = PatternType.PREFIXED
    acls.table.add(
        [
            bound("logs-", AclOperation.READ, pattern_type=prefixed),
            bound("*", AclOperation.DESCRIBE, "User:eve"),
            bound("other", AclOperation.READ),
        ]
    )
    words = ("acls", "--list", "--topic", "logs-web", "--resource-pattern-type", "match")

    assert ottla("acls", "--list", "--topic", "logs-web").lines == []
    assert [line for line in ottla(*words).lines if line.startswith("Current")] == [
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=*, "
        "patternType=LITERAL)`: ",
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=logs-, "
        "patternType=PREFIXED)`: ",
    ]
    of_eve = ottla(*words, "--principal", "User:eve").lines
    assert of_eve[0] == "ACLs for principal `User:eve`"
    assert sum(line.startswith("Current") for line in of_eve) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Command must include exactly one action: --list, --add, --remove. "),
        (("--list", "--add"), "Command must include exactly one action"),
        (("--add", "--topic", "t"), "You must specify one of: --allow-principal, --deny-principal"),
        (("--add", "--allow-principal", "User:a"), "You must provide at least one resource"),
        (("--add", "--producer", "--allow-principal", "User:a"), "With --producer you must"),
        (("--add", "--consumer", "--topic", "t"), "With --consumer you must specify a --topic and"),
        (
            ("--add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"),
            "ResourceType GROUP only supports operations ALL,READ,DELETE,DESCRIBE",
        ),
        (
            (*ADD_A, "--topic", "t", "--resource-pattern-type", "match"),
            "A '--resource-pattern-type' value of 'MATCH' is not valid when adding acls.",
        ),
        (
            ("--add", "--allow-principal", "bob", "--topic", "t"),
            "--allow-principal: a principal is",
        ),
        (
            ("--add", "--deny-principal", "user:bob", "--topic", "t"),
            "--deny-principal: the type of a principal is User, and not 'user'",
        ),
        (
            (*ADD_A, "--topic", "t", "--allow-host", "1.2.3.999"),
            "--allow-host: '1.2.3.999' matches",
        ),
        ((*ADD_A, "--topic", "t", "--allow-host", "10.0.0.0/99"), "--allow-host: '10.0.0.0/99'"),
        ((*ADD_A, "--topic", "t", "--allow-host", ""), "--allow-host: '' matches no client"),
        ((*ADD_A, "--topic", "t", "--deny-host", "1.2.3.4"), "--deny-host is used only with"),
        (
            ("--add", "--deny-principal", "User:a", "--deny-host", "evil.example", "--topic", "t"),
            "names of hosts are not looked up",
        ),
        (("--list", "--topic", "t", "--resource-pattern-type", "x"), "'x' is not one of"),
        (("explain", "--operation", "Read", "--topic", "t"), "missing required option --principal"),
        (("who-can", "--operation", "Read"), "who-can needs exactly one resource"),
        (("test",), "test needs a FILE"),
        (("--list", "--authorizer", "x"), "--authorizer is used only with"),
        (
            ("--list", "--authorizer", "x", "--authorizer-properties", "zookeeper.connect=h:1"),
            "--authorizer may be kafka.security.authorizer.AclAuthorizer or",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(ottla, acls, words, said):
    """In the words of Kafka's tool where it has them."""
    outcome = ottla("acls", *words)

    assert outcome.status
    assert said in outcome.err
    assert len(acls.table) == 0


def test_error_of_the_broker_is_told_as_by_kafka(ottla, acls):
    """A broker without an authorizer."""
    acls.error = KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
    outcome = ottla("acls", "--list")

    assert outcome.status == 1
    assert "Error while executing ACL command: " in outcome.err
    assert "no authorizer is configured" in outcome.err


def test_explain_names_the_acl_that_decides(ottla, acls):
    """The status tells whether all of it is allowed."""
    acls.table.add(
        [
            bound("orders", AclOperation.READ),
            bound("*", AclOperation.WRITE, "User:*", AclPermissionType.DENY),
        ]
    )
    words = ("acls", "explain", "--principal", "User:bob", "--topic", "orders")

    allowed = ottla(*words, "--operation", "Describe", "--host", "10.0.0.1")
    assert allowed.status == 0
    assert allowed.lines == [
        "User:bob ALLOWED Describe on Topic:orders from 10.0.0.1",
        "  because an ACL allows it",
        f"  {ORDERS} (principal=User:bob, host=*, operation=READ, permissionType=ALLOW)",
    ]
    denied = ottla(*words, "--operation", "Write")
    assert denied.status == 1
    assert denied.lines[0] == "User:bob DENIED Write on Topic:orders"
    assert "name=*" in denied.lines[2]
    root = ottla(
        *("acls", "explain", "--principal", "User:root", "--cluster", "--operation", "Alter")
    )
    assert root.lines[1] == "  because User:root is a super user"


def test_who_can_lists_principals_with_a_reason(ottla, acls):
    """Those that ACLs name, super users, and everybody where `*` may."""
    acls.table.add(
        [bound("orders", AclOperation.READ), bound("other", AclOperation.READ, "User:x")]
    )
    words = ("acls", "who-can", "--operation", "Read", "--topic", "orders")

    names = [line.partition(": ")[0] for line in ottla(*words).lines]
    assert names == ["User:bob", "User:root"]
    acls.table.add([bound("orders", AclOperation.READ, "User:*")])
    names = [line.partition(": ")[0] for line in ottla(*words).lines]
    assert names == ["User:* (everybody else)", "User:bob", "User:root", "User:x"]


def test_expectations_are_checked(ottla, acls, tmp_path):
    """One line for each that is not so; made for CI, so the status tells."""
    acls.table.add([bound("orders", AclOperation.READ)])
    file = tmp_path / "expected"
    file.write_text(
        "# who may read\n"
        "allow User:bob Read topic orders\n"
        "deny User:eve Read topic orders from 10.0.0.1  # a comment\n"
        "allow User:root Alter cluster\n"
    )
    assert ottla("acls", "test", file).lines == ["3 expectations, 0 not met"]
    file.write_text("deny User:bob Describe topic orders\n")
    failed = ottla("acls", "test", file)

    assert failed.status == 1
    assert failed.lines[0].startswith(f"{file}:1: not so: deny User:bob Describe topic orders: ")
    assert failed.lines[1] == "1 expectations, 1 not met"
    file.write_text("maybe User:bob Read topic orders\n")
    assert f"{file}:1: a line is `allow|deny" in ottla("acls", "test", file).err


def test_unknown_super_users_are_assumed_away_and_said(ottla, acls):
    """A client that may not see the broker's settings can still ask about ACLs."""

    def refuse(resources: object) -> None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "denied")

    acls.describe_configs = refuse
    outcome = ottla(
        *("acls", "explain", "--principal", "User:root", "--cluster", "--operation", "Alter")
    )

    assert outcome.status == 1
    assert "no super users" in outcome.err
