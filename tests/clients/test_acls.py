"""What clients are told that lack a right; and clients that administer ACLs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AclBinding as RdAclBinding
from confluent_kafka.admin import AclBindingFilter as RdFilter
from confluent_kafka.admin import (
    AclOperation as RdOperation,
)
from confluent_kafka.admin import (
    AclPermissionType as RdPermission,
)
from confluent_kafka.admin import (
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import (
    ResourceType as RdType,
)

import ottla
from ottla.errors import ErrorCode
from ottla.extensions.rights.rights import Rights
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
from ottla.testing import InProcessBroker, wait_until

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LIMIT_S = 60


def acl(
    operation: AclOperation,
    type_: ResourceType,
    name: str,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    principal: str = ANONYMOUS,
) -> AclBinding:
    entry = AccessControlEntry(principal, "*", operation, permission)
    return AclBinding(ResourcePattern(type_, name, PatternType.LITERAL), entry)


@pytest.fixture
def guarded() -> Iterator[InProcessBroker]:
    """A broker on which nobody may do anything yet."""
    with InProcessBroker(authorizer_class_name=AUTHORIZER) as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def administered() -> Iterator[InProcessBroker]:
    """A broker whose clients are all super users."""
    with InProcessBroker(authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS) as broker:
        yield broker


def allow(broker: InProcessBroker, *bindings: AclBinding) -> None:
    """As another broker of the cluster would: through the store."""
    store = broker.broker.find(Rights).authorizer.store
    assert set(broker.run(store.add(list(bindings))).values()) == {None}


def test_producer_and_consumer_are_told_what_they_lack(guarded: InProcessBroker) -> None:
    """Errors that name the right; with it, the same clients work."""
    settings = {"bootstrap.servers": guarded.bootstrap_servers}
    allow(guarded, acl(AclOperation.DESCRIBE, TOPIC, "t"))
    plain = {"enable.idempotence": False}
    with ottla.Producer(settings | plain) as producer:
        with pytest.raises(ottla.KafkaError) as told:
            producer.send("t", b"x").result(LIMIT_S)
        assert told.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allow(guarded, acl(AclOperation.WRITE, TOPIC, "t"))
        producer.send("t", b"1").result(LIMIT_S)

    with ottla.Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(ottla.KafkaError) as told:
            consumer.poll(LIMIT_S * 1000)
        assert told.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_consumer_that_was_refused_reads_once_it_may(guarded: InProcessBroker) -> None:
    """It asks again with each poll, not when its metadata are five minutes old."""
    settings = {"bootstrap.servers": guarded.bootstrap_servers}
    with ottla.Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition("t", 0)])
        with pytest.raises(ottla.KafkaError) as told:
            consumer.poll(LIMIT_S * 1000)
        assert told.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allow(guarded, acl(AclOperation.READ, TOPIC, "t"), acl(AclOperation.WRITE, TOPIC, "t"))
        with ottla.Producer(settings) as producer:
            producer.send("t", b"1").result(LIMIT_S)
        assert [record.value for record in consumer.poll(LIMIT_S * 1000)] == [b"1"]


def test_librdkafka_is_told_what_it_lacks(guarded: InProcessBroker) -> None:
    """The delivery report of a producer, and the error of a consumer's group."""
    allow(guarded, acl(AclOperation.DESCRIBE, TOPIC, "t"))
    reports: list[confluent_kafka.KafkaError] = []
    settings = {"bootstrap.servers": guarded.bootstrap_servers}
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"x", on_delivery=lambda error, message: reports.append(error))
    producer.flush(LIMIT_S)
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
    consumer.subscribe(["t"])
    message = consumer.poll(LIMIT_S)
    consumer.close()

    assert reports[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert message.error().code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED


def test_denial_stops_a_consumer_that_runs(guarded: InProcessBroker) -> None:
    """With its next fetch; once the denial is taken away it goes on where it was."""
    denial = acl(AclOperation.READ, TOPIC, "t", AclPermissionType.DENY)
    allow(
        guarded,
        acl(AclOperation.READ, TOPIC, "t"),
        acl(AclOperation.WRITE, TOPIC, "t"),
        acl(AclOperation.READ, GROUP, "g"),
    )
    settings = {"bootstrap.servers": guarded.bootstrap_servers}
    read: list[bytes] = []
    failures: list[ottla.KafkaError] = []
    is_over = threading.Event()

    def consume() -> None:
        with ottla.Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            while not is_over.is_set():
                try:
                    read.extend(record.value for record in consumer.poll(200))
                except ottla.KafkaError as error:
                    failures.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        with ottla.Producer(settings) as producer:
            producer.send("t", b"before").result(LIMIT_S)
            wait_until(lambda: read == [b"before"], "the record")
            allow(guarded, denial)
            wait_until(lambda: failures, "the denial")  # a fetch that waits ends first
            producer.send("t", b"after").result(LIMIT_S)
            assert read == [b"before"]
            store = guarded.broker.find(Rights).authorizer.store
            guarded.run(store.remove([AclBindingFilter(permission=AclPermissionType.DENY)]))
            wait_until(lambda: read == [b"before", b"after"], "the record")
    finally:
        is_over.set()
        thread.join(LIMIT_S)

    assert failures[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_admin_creates_describes_and_deletes_acls(administered: InProcessBroker) -> None:
    """With the values of ottla.security.acls; what is wrong is named."""
    mine = [acl(AclOperation.READ, TOPIC, "a"), acl(AclOperation.WRITE, TOPIC, "b")]
    with ottla.Admin(administered.bootstrap_servers) as admin:
        admin.create_acls(mine)
        assert admin.describe_acls() == mine
        of_b = AclBindingFilter(TOPIC, "b")
        assert admin.describe_acls(of_b) == mine[1:]
        assert admin.delete_acls([of_b]) == {of_b: mine[1:]}
        assert admin.describe_acls() == mine[:1]
        with pytest.raises(ottla.KafkaError, match="needs the name of a resource"):
            admin.create_acls([acl(AclOperation.READ, TOPIC, "")])


def test_librdkafka_administers_acls(administered: InProcessBroker) -> None:
    """Its own types, over the same requests."""
    admin = AdminClient({"bootstrap.servers": administered.bootstrap_servers})
    binding = RdAclBinding(
        RdType.TOPIC,
        "logs-",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        RdOperation.READ,
        RdPermission.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result(LIMIT_S)
    everything = RdFilter(
        RdType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        RdOperation.ANY,
        RdPermission.ANY,
    )

    assert admin.describe_acls(everything).result(LIMIT_S) == [binding]
    (deleted,) = admin.delete_acls([everything]).values()
    assert deleted.result(LIMIT_S) == [binding]
    assert admin.describe_acls(everything).result(LIMIT_S) == []
