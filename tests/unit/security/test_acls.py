"""ACLs: what they match, and what is decided by them."""

from __future__ import annotations

import pytest

from ottla.security.acls import (
    CLUSTER,
    OPERATIONS,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclTable,
    PatternType,
    Resource,
    ResourcePattern,
    ResourceType,
    check_binding,
    covers_host,
    parse_super_users,
)
from ottla.security.principal import KafkaPrincipal

ALICE = KafkaPrincipal.user("alice")
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC = ResourceType.TOPIC
HOST = "10.1.2.3"


def acl(
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = ALLOW,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> AclBinding:
    """An ACL of a topic."""
    pattern = ResourcePattern(TOPIC, name, pattern_type)
    return AclBinding(pattern, AccessControlEntry(principal, host, operation, permission))


def table_of(*bindings: AclBinding, **settings: bool) -> AclTable:
    table = AclTable(**settings)
    table.add(bindings)
    return table


def test_longer_prefix_does_not_hide_a_shorter_one():
    """KAFKA-14265: and a prefix of one letter counts as well (KAFKA-7702)."""
    prefixed = PatternType.PREFIXED
    table = table_of(
        acl("l", READ, pattern_type=prefixed),
        acl("logs-", WRITE, pattern_type=prefixed),
    )

    assert table.is_allowed(ALICE, HOST, READ, Resource(TOPIC, "logs-web"))
    assert table.is_allowed(ALICE, HOST, WRITE, Resource(TOPIC, "logs-web"))
    assert not table.is_allowed(ALICE, HOST, WRITE, Resource(TOPIC, "log"))


def test_denial_wins_over_every_permission():
    """Whichever pattern it is of; the decision names it."""
    denial = acl("*", READ, DENY, principal="User:*")
    table = table_of(acl("orders", AclOperation.ALL), denial)

    decision = table.decide(ALICE, HOST, READ, Resource(TOPIC, "orders"))

    assert not decision.is_allowed
    assert decision.binding == denial
    assert table.is_allowed(ALICE, HOST, WRITE, Resource(TOPIC, "orders"))


def test_permission_to_write_implies_description_and_a_denial_does_not():
    """A DENY of WRITE leaves DESCRIBE to others."""
    allowed = table_of(acl("t", WRITE))
    denied = table_of(acl("t", WRITE, DENY), acl("t", READ))

    assert allowed.is_allowed(ALICE, HOST, DESCRIBE, Resource(TOPIC, "t"))
    assert denied.is_allowed(ALICE, HOST, DESCRIBE, Resource(TOPIC, "t"))


def test_nobody_is_let_in_where_there_is_no_acl():
    """Unless allow.everyone.if.no.acl.found says so; super users always are."""
    resource = Resource(TOPIC, "t")
    bob = KafkaPrincipal.user("bob")
    closed, open_ = AclTable([bob]), AclTable(allow_everyone_if_no_acl_found=True)

    assert not closed.is_allowed(ALICE, HOST, READ, resource)
    assert closed.is_allowed(bob, HOST, READ, resource)
    assert open_.is_allowed(ALICE, HOST, READ, resource)
    open_.add([acl("t", READ, principal="User:bob")])
    assert not open_.is_allowed(ALICE, HOST, READ, resource), "there is an ACL now"


def test_decision_of_before_a_change_is_forgotten():
    """A permission that is taken away ends with the next question."""
    binding = acl("t", READ)
    table = table_of(binding)
    assert table.is_allowed(ALICE, HOST, READ, Resource(TOPIC, "t"))

    table.put(binding.pattern, [])

    assert not table.is_allowed(ALICE, HOST, READ, Resource(TOPIC, "t"))
    assert len(table) == 0


@pytest.mark.parametrize(
    ("wanted", "host", "is_covered"),
    [
        ("*", HOST, True),
        (HOST, HOST, True),
        ("10.0.0.0/8", HOST, True),
        ("10.1.2.9/24", HOST, True),
        ("11.0.0.0/8", HOST, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("fd00::/8", "fd00::1", True),
        ("example.org", HOST, False),
    ],
)
def test_host_is_an_address_or_a_network(wanted, host, is_covered):
    """Kafka knows addresses only, and writes those of IPv6 in full."""
    assert covers_host(wanted, host) is is_covered


def test_host_of_an_acl_counts_for_its_host_only():
    """The same principal elsewhere is not allowed, and the decisions are not mixed up."""
    table = table_of(acl("t", READ, host="10.1.2.3"))

    assert table.is_allowed(ALICE, "10.1.2.3", READ, Resource(TOPIC, "t"))
    assert not table.is_allowed(ALICE, "10.1.2.4", READ, Resource(TOPIC, "t"))


def test_idempotent_producer_needs_one_topic_that_it_may_write():
    """KIP-679: a permission that a denial covers is none."""
    prefixed = PatternType.PREFIXED
    table = table_of(acl("logs-", WRITE, pattern_type=prefixed))
    assert table.is_allowed_on_any(ALICE, HOST, WRITE, TOPIC)

    table.add([acl("lo", WRITE, DENY, pattern_type=prefixed)])

    assert not table.is_allowed_on_any(ALICE, HOST, WRITE, TOPIC)
    table.add([acl("t", WRITE)])
    assert table.is_allowed_on_any(ALICE, HOST, WRITE, TOPIC)
    table.add([acl("t", WRITE, DENY)])
    assert not table.is_allowed_on_any(ALICE, HOST, WRITE, TOPIC)


@pytest.mark.parametrize(
    ("name", "pattern_type", "found"),
    [
        ("logs-web", PatternType.MATCH, ["*", "logs-", "logs-web"]),
        ("logs-", PatternType.ANY, ["logs-"]),
        ("logs-", PatternType.LITERAL, []),
        (None, PatternType.LITERAL, ["*", "logs-web"]),
        (None, PatternType.ANY, ["*", "logs-", "logs-web"]),
    ],
)
def test_filter_finds_patterns_by_their_type(name, pattern_type, found):
    """MATCH finds what counts for a resource of the name, ANY the name itself."""
    table = table_of(
        acl("*", READ),
        acl("logs-", READ, pattern_type=PatternType.PREFIXED),
        acl("logs-web", READ),
    )
    wanted = AclBindingFilter(TOPIC, name, pattern_type)

    assert [each.pattern.name for each in table if wanted.matches(each)] == found


def test_super_users_are_separated_by_semicolons():
    """Names of certificates hold commas."""
    users = parse_super_users("User:CN=a,O=b; User:admin;")

    assert users == {KafkaPrincipal.user("CN=a,O=b"), KafkaPrincipal.user("admin")}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": ResourceType.ANY}, "type of resource"),
        ({"pattern_type": PatternType.MATCH}, "LITERAL or PREFIXED"),
        ({"name": ""}, "needs the name"),
        ({"name": "a/b"}, "slash"),
        ({"type": ResourceType.CLUSTER}, "kafka-cluster"),
        ({"operation": AclOperation.ANY}, "needs an operation"),
        ({"permission": AclPermissionType.UNKNOWN}, "ALLOW or DENY"),
        *[({"name": name}, "slash or NUL") for name in ("a/b", "a\0b", ".", "..")],
        ({"principal": "alice"}, "type:name"),
        ({"host": ""}, "needs a host"),
        ({"host": "10.0.0.0/99"}, "10.0.0.0/99"),
    ],
)
def test_acl_that_guards_nothing_is_refused(change, reason):
    """The error names what is wrong."""
    binding = acl("t", READ)
    check_binding(binding)
    pattern = binding.pattern._replace(
        **{key: value for key, value in change.items() if key in ResourcePattern._fields}
    )
    entry = binding.entry._replace(
        **{key: value for key, value in change.items() if key in AccessControlEntry._fields}
    )

    with pytest.raises(ValueError, match=reason):
        check_binding(AclBinding(pattern, entry))


def test_words_are_read_as_all_tools_write_them():
    """ZooKeeper has IdempotentWrite, Java IDEMPOTENT_WRITE; numbers beyond are unknown."""
    for word in ("IdempotentWrite", "IDEMPOTENT_WRITE", "idempotent-write"):
        assert AclOperation.parse(word) is AclOperation.IDEMPOTENT_WRITE
    assert ResourceType.TRANSACTIONAL_ID.title == "TransactionalId"
    assert ResourceType.of(99) is ResourceType.UNKNOWN
    with pytest.raises(ValueError, match="'Fly' is not one of"):
        AclOperation.parse("Fly")


def test_texts_are_those_that_tools_of_kafka_print():
    """The texts are those of `kafka-acls --list`."""
    pattern, entry = acl("orders", WRITE)

    assert str(pattern) == ("ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)")
    assert str(entry) == ("(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)")


def test_bits_of_all_operations_are_those_of_kafka():
    """KIP-430: what a client is told that it may do."""
    bits = {type_: sum(1 << each for each in found) for type_, found in OPERATIONS.items()}

    assert bits[ResourceType.TOPIC] == 3576
    assert bits[CLUSTER.type] == 8096


class CountingTable(AclTable):
    """Counts the decisions that were made, not remembered."""

    count = 0

    def decide(self, *question):
        self.count += 1
        return super().decide(*question)


@pytest.mark.parametrize(("length", "made"), [(249, 1), (250, 2), (30_000, 2)])
def test_no_decision_is_kept_of_a_name_that_no_topic_may_have(length, made):
    """Clients make them up: a hundred thousand of them were three gigabytes."""
    table = CountingTable()
    for _ in range(2):
        table.is_allowed(ALICE, HOST, READ, Resource(ResourceType.TOPIC, "x" * length))

    assert table.count == made
