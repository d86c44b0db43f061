"""Decisions by ACLs are those of a reference that is slow and plain."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import pytest
from breadth import examples
from counted_calls import calls
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security import acls as acl_module
from ottla.security.acls import (
    FEW_ENTRIES,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    Resource,
    ResourcePattern,
    ResourceType,
    starts_with_any,
)
from ottla.security.principal import KafkaPrincipal

NAMES = ["a", "ab", "abc", "b", "*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "127.0.0.1"]
USERS = ["alice", "bob"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]

# All that there are: one is drawn faster than the parts of one.
PATTERNS = [
    ResourcePattern(*parts)
    for parts in product(TYPES, NAMES, [PatternType.LITERAL, PatternType.PREFIXED])
]
ENTRIES = [
    AccessControlEntry(*parts)
    for parts in product(
        [*(f"User:{name}" for name in USERS), "User:*", "Group:alice"],
        [*HOSTS, "*"],
        [AclOperation.ALL, *OPERATIONS],
        [AclPermissionType.ALLOW, AclPermissionType.DENY],
    )
]
RESOURCES = [Resource(*parts) for parts in product(TYPES, [*NAMES, "abcd", "c"])]
BINDINGS = [AclBinding(*parts) for parts in product(PATTERNS, ENTRIES)]
QUESTIONS = list(product(USERS, HOSTS, OPERATIONS, RESOURCES))
bindings = st.lists(st.sampled_from(BINDINGS), max_size=12)


def covers(pattern: ResourcePattern, resource: Resource) -> bool:
    """Whether the pattern is about the resource, spelt out."""
    if pattern.type != resource.type:
        return False
    if pattern.pattern_type == PatternType.PREFIXED:
        return resource.name[: len(pattern.name)] == pattern.name
    return pattern.name == resource.name or pattern.name == "*"


def says(entry: AccessControlEntry, user: str, host: str, operations: set[AclOperation]) -> bool:
    """Whether an ACL is about the user at the host, and one of the operations or all."""
    return (
        entry.principal in (f"User:{user}", "User:*")
        and entry.host in (host, "*")
        and (entry.operation in operations or entry.operation == AclOperation.ALL)
    )


def reference(
    acls: list[AclBinding], open_: bool, user: str, host: str, wanted: AclOperation, on: Resource
) -> bool:
    """Kafka's rules, one after the other, over every ACL."""
    found = [entry for pattern, entry in acls if covers(pattern, on)]
    if not found:
        return open_
    allowing = {wanted}
    if wanted == AclOperation.DESCRIBE:
        allowing |= {AclOperation.READ, AclOperation.WRITE}
        allowing |= {AclOperation.DELETE, AclOperation.ALTER}
    if wanted == AclOperation.DESCRIBE_CONFIGS:
        allowing |= {AclOperation.ALTER_CONFIGS}
    for entry in found:
        if entry.permission == AclPermissionType.DENY and says(entry, user, host, {wanted}):
            return False
    return any(
        entry.permission == AclPermissionType.ALLOW and says(entry, user, host, allowing)
        for entry in found
    )


def remove(table: AclTable, gone: list[AclBinding]) -> None:
    """Take ACLs away as they are when others have removed them: pattern by pattern."""
    for pattern, entry in gone:
        table.put(pattern, table.entries(pattern) - {entry})


@pytest.mark.parametrize("few", [0, FEW_ENTRIES], ids=["looked up", "read"])
@settings(max_examples=examples(200))
@given(
    bindings,
    bindings,
    st.integers(0, 12),
    st.booleans(),
    st.lists(st.sampled_from(QUESTIONS), min_size=1, max_size=8),
)
def test_decisions_are_those_of_the_reference(few, acls, more, left, open_, questions):
    """After ACLs were added and removed no earlier decision is remembered."""
    table = AclTable(allow_everyone_if_no_acl_found=open_)
    known: list[AclBinding] = []
    steps = [(acls, []), (more, []), ([], (acls + more)[left:])]
    for added, gone in steps:
        table.add(added)
        remove(table, gone)
        known = [each for each in known + added if each not in gone]
        assert list(table) == sorted(set(known))
        for user, host, operation, resource in questions:
            with patch.object(acl_module, "FEW_ENTRIES", few):
                expected = reference(known, open_, user, host, operation, resource)
                principal = KafkaPrincipal.user(user)
                assert table.is_allowed(principal, host, operation, resource) is expected
                decision = table.decide(principal, host, operation, resource)
                assert decision.is_allowed is expected
                if decision.binding is not None:
                    assert decision.binding in known


@settings(max_examples=examples(200))
@given(bindings, st.sampled_from(USERS), st.sampled_from(HOSTS), st.sampled_from(TYPES))
def test_any_resource_may_be_used_if_one_may(acls, user, host, type_):
    """A name that the ACLs leave to the user is found by trying; with denials of names apart."""
    operation, principal = AclOperation.WRITE, KafkaPrincipal.user(user)
    plain = [
        each
        for each in acls
        if each.pattern.pattern_type is PatternType.LITERAL
        or each.entry.permission is AclPermissionType.ALLOW
    ]
    table = AclTable()
    table.add(plain)
    denies_all = any(
        entry.permission is AclPermissionType.DENY
        and pattern == ResourcePattern(type_, "*")
        and says(entry, user, host, {operation})
        for pattern, entry in plain
    )
    names = {pattern.name for pattern, _ in plain} | {f"{name}~" for name in NAMES}
    expected = not denies_all and any(
        table.is_allowed(principal, host, operation, Resource(type_, name)) for name in names
    )

    assert table.is_allowed_on_any(principal, host, operation, type_) is expected


words = st.text("ab\uffff", max_size=5)


@settings(max_examples=examples(300))
@given(st.lists(words, max_size=8), words)
def test_name_begins_with_one_of_many_prefixes(prefixes, name):
    """As if each were looked at."""
    assert starts_with_any(prefixes)(name) is any(map(name.startswith, prefixes))


def test_many_acls_of_a_pattern_cost_as_much_as_each_of_them():
    """A topic of all teams may have thousands: tools and pages make a table of them."""

    def cost(count: int) -> int:
        entries = [
            AccessControlEntry(f"User:{n}", "*", AclOperation.READ, AclPermissionType.ALLOW)
            for n in range(count)
        ]
        table = AclTable()
        return calls(lambda: table.add(AclBinding(PATTERNS[0], entry) for entry in entries))

    assert cost(2_000) < 3 * cost(1_000)
