"""What a cluster refuses of a mirror's work holds up nothing else of its flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirrors import mirroring, values

from ottla import Admin, Consumer, Producer
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.security.acls import (
    CLUSTER_NAME,
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
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def login(name: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}-secret",
    }


def acl(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType):
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    return AclBinding(pattern, AccessControlEntry("User:copier", "*", operation, permission))


@contextmanager
def guarded(*denied: tuple[ResourceType, str, AclOperation]) -> Iterator[InProcessBroker]:
    """A broker where the user `copier` may do all but this."""
    users = " ".join(f'user_{name}="{name}-secret"' for name in ("boss", "copier"))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required username="boss" password="boss-secret" {users};'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:boss",
    }
    everything = [(TOPIC, "*"), (GROUP, "*"), (CLUSTER, CLUSTER_NAME)]
    with InProcessBroker(**settings) as broker:
        with Admin(broker.bootstrap_servers, login("boss")) as admin:
            admin.create_acls([acl(*each, AclOperation.ALL, ALLOW) for each in everything])
            admin.create_acls([acl(*each, DENY) for each in denied])
        yield broker


def logins(alias: str) -> dict[str, str]:
    return {f"{alias}_{name.replace('.', '_')}": value for name, value in login("copier").items()}


def notices(mirror, word: str) -> list[str]:
    return [text for _, text in mirror.notices() if word in text]


def test_topic_that_the_target_does_not_take(two, produce):
    """Others are copied; it is tried again at each look at the topics."""
    a, b = two["a"], two["b"]
    b.create_topic("a_x.y")  # metrics could not tell it from a.x_y
    for topic in ("x_y", "good", "zebra"):
        produce(a, topic, range(5))
    with mirroring(two) as mirror:
        b.wait_for_records("a.good", 5)
        b.wait_for_records("a.zebra", 5)
        (notice,) = notices(mirror, "a.x_y")
        assert notice.startswith("a topic is not created, and so not copied: a.x_y: INVALID")
        with Admin(b.bootstrap_servers) as admin:
            admin.delete_topics(["a_x.y"])
        b.wait_for_records("a.x_y", 5)
    assert values(b, "a.x_y") == values(a, "x_y")


def test_changes_that_the_target_does_not_take(produce):
    """A right is missing for one topic: settings and partitions of the other follow."""
    denied = [(TOPIC, "a.one", each) for each in (AclOperation.ALTER, AclOperation.ALTER_CONFIGS)]
    with InProcessBroker() as a, guarded(*denied) as b:
        for topic in ("one", "two"):
            produce(a, topic, range(3))
        with (
            mirroring({"a": a, "b": b}, topics="one,two", **logins("b")) as mirror,
            Admin(a.bootstrap_servers) as source,
            Admin(b.bootstrap_servers, login("boss")) as target,
        ):
            b.wait_for_records("a.one", 3)
            b.wait_for_records("a.two", 3)
            source.create_partitions({"one": 2, "two": 2})
            change = [AlterConfigOp("retention.ms", "777000")]
            source.incremental_alter_configs(
                {ConfigResource.topic(each): change for each in ("one", "two")}
            )
            copy = ConfigResource.topic("a.two")
            wait_until(
                lambda: target.describe_configs([copy])[copy]["retention.ms"].value == "777000",
                "the setting",
            )
            produce(a, "two", ["new"], partition=1)
            produce(a, "one", ["new"])
            b.wait_for_records("a.two", 4)
            b.wait_for_records("a.one", 4)
            wait_until(lambda: notices(mirror, "partitions are not added: a.one"), "a notice")
            wait_until(lambda: notices(mirror, "settings are not copied: "), "another notice")


def test_topics_and_groups_that_the_source_does_not_show(produce):
    """Settings of one topic, the ACLs, and one group: all else is copied, and told of once."""
    denied = [
        (TOPIC, "one", AclOperation.DESCRIBE_CONFIGS),
        (GROUP, "secret", AclOperation.DESCRIBE),
    ]
    with guarded(*denied) as a, InProcessBroker() as b:
        with Producer(a.bootstrap_servers, login("boss")) as producer:
            for topic in ("one", "two"):
                for number in range(3):
                    producer.send(topic, str(number).encode())
        for group in ("open", "secret"):
            settings = login("boss") | {"group.id": group, "enable.auto.commit": "false"}
            with Consumer(a.bootstrap_servers, settings) as reader:
                reader.assign([TopicPartition("two", 0)])
                reader.commit({TopicPartition("two", 0): 3})
        settings = logins("a") | {"sync_group_offsets_enabled": "true"}
        with mirroring({"a": a, "b": b}, topics="one,two", **settings) as mirror:
            b.wait_for_records("a.two", 3)
            wait_until(lambda: b.committed("open") == {TopicPartition("a.two", 0): 3}, "a group")
            assert notices(mirror, "its copy stays as it is: ")
        assert b.committed("secret") == {}
        assert "a.one" not in b.topics()
