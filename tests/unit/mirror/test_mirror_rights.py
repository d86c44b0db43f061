"""A mirror into a cluster that asks who one is: what it carries over, and what it may do there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mirrors import mirroring, values

from ottla import Admin, Consumer
from ottla.clients.admin.descriptions import ConfigResource
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker, wait_until

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = ("mirror", "alice", "bob", "carol")
PAGES, COPY = TopicPartition("pages", 0), TopicPartition("a.pages", 0)
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


@pytest.fixture
def guarded() -> Iterator[dict[str, InProcessBroker]]:
    """a, where everybody is a super user; b, where users log in and only the mirror is one."""
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    of_b = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required username="mirror" password="mirror-secret" {users};'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:mirror",
    }
    with (
        InProcessBroker(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS") as a,
        InProcessBroker(**of_b) as b,
    ):
        yield {"a": a, "b": b}


def login(name: str) -> dict[str, str]:
    """How a user's clients connect."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}-secret",
    }


def acl(
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = ALLOW,
    topic: str = "pages",
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    entry = AccessControlEntry(f"User:{name}", "*", operation, permission)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, topic, pattern), entry)


def mirror_to_b(brokers: dict[str, InProcessBroker], **settings: str):
    into = {f"b_{name.replace('.', '_')}": value for name, value in login("mirror").items()}
    return mirroring(brokers, topics="pages", **into, **settings)


def error_of(broker: InProcessBroker, name: str) -> ErrorCode | None:
    """What a user is told that asks where the copy ends."""
    with Admin(broker.bootstrap_servers, login(name)) as admin:
        try:
            admin.list_offsets({COPY: -1})
        except KafkaError as error:
            return error.error
    return None


def test_rights_groups_and_settings_are_carried_to_a_guarded_cluster(guarded, produce):
    """Who may read there may read here; a right to write stays behind, and ALL is to read."""
    a, b = guarded["a"], guarded["b"]
    a.create_topic("pages", partitions=3, retention_ms=-1, max_message_bytes=2000000)
    produce(a, "pages", range(20))
    with Consumer(a.bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([PAGES])
        reader.commit({PAGES: 20})
    theirs = [
        acl("alice", AclOperation.READ),
        acl("bob", AclOperation.WRITE),
        acl("carol", AclOperation.ALL),
        acl("bob", AclOperation.DESCRIBE_CONFIGS, DENY),
        acl("bob", AclOperation.READ, topic="page", pattern=PatternType.PREFIXED),
    ]
    expected = {
        acl("alice", AclOperation.READ, topic="a.pages"),
        acl("carol", AclOperation.READ, topic="a.pages"),
        acl("bob", AclOperation.DESCRIBE_CONFIGS, DENY, topic="a.pages"),
    }

    with (
        Admin(a.bootstrap_servers) as source,
        Admin(b.bootstrap_servers, login("mirror")) as target,
    ):
        source.create_acls(theirs)
        with mirror_to_b(
            guarded, sync_group_offsets_enabled="true", sync_topic_acls_interval_seconds="1"
        ):
            b.wait_for_records("a.pages", 20)
            wait_until(lambda: b.committed("g") == {COPY: 20}, "the group")
            wait_until(lambda: set(target.describe_acls()) == expected, "the ACLs")
            source.create_acls([acl("bob", AclOperation.READ)])
            source.create_partitions({"pages": 4})
            wait_until(lambda: error_of(b, "bob") is None, "the right that came later")
            wait_until(
                lambda: len(target.describe_topics(["a.pages"])["a.pages"].partitions) == 4,
                "the partition that came later",
            )
        configs = target.describe_configs([ConfigResource.topic("a.pages")])

    assert values(b, "a.pages", 0) == [str(number) for number in range(20)]
    (entries,) = configs.values()
    assert (entries["retention.ms"].value, entries["max.message.bytes"].value) == ("-1", "2000000")
    with Consumer(b.bootstrap_servers, login("alice"), auto_offset_reset="earliest") as reader:
        reader.assign([COPY])
        found = []
        wait_until(
            lambda: len(found) >= 20, "her records", meanwhile=lambda: found.extend(reader.poll(50))
        )


def test_rights_stay_behind_if_asked(guarded, produce):
    """sync.topic.acls.enabled=false: the copy has no ACLs, and only super users read it."""
    produce(guarded["a"], "pages", range(5))
    with (
        Admin(guarded["a"].bootstrap_servers) as source,
        Admin(guarded["b"].bootstrap_servers, login("mirror")) as target,
    ):
        source.create_acls([acl("alice", AclOperation.READ)])
        with mirror_to_b(guarded, sync_topic_acls_enabled="false"):
            guarded["b"].wait_for_records("a.pages", 5)
            guarded["b"].wait_for_records("heartbeats", 2)

        assert target.describe_acls() == []
    assert error_of(guarded["b"], "alice") is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_mirror_without_rights_says_which_it_lacks(guarded, produce):
    """A login that may not create topics at the target: the line says so, and nothing is copied."""
    produce(guarded["a"], "pages", range(5))
    into = {f"b_{name.replace('.', '_')}": value for name, value in login("bob").items()}

    with mirroring(guarded, topics="pages", **into) as mirror:
        (status,) = wait_until(
            lambda: [each for each in mirror.statuses() if each.error], "an error"
        )

    assert "AUTHORIZATION_FAILED" in status.error
    assert guarded["b"].topics() == []
