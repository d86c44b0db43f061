"""A broker with an audit topic, and one without."""

from __future__ import annotations

import json

from broker_world import BrokerWorld

from ottla.extensions.audit.audit import Audit
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.update_metadata import UpdateMetadataRequest
from ottla.record.memory_records import batches
from ottla.security.principal import KafkaPrincipal
from ottla.structs import TopicPartition

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
IN_CLUSTER = {"zookeeper_connect": "here:2181", "broker_id": 0}
TWO_LISTENERS = {
    "listeners": "PLAINTEXT://:9092,B://:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    "inter_broker_listener_name": "B",
}
EVE, ROOT = KafkaPrincipal.user("eve"), KafkaPrincipal.user("root")


def creation(name):
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def audited(world):
    """The records of the audit topic."""
    world.runtime.advance(5_000)
    log = world.broker.replica_manager.partitions[TopicPartition("audit", 0)].log
    data = log.read(0, 1 << 20, max_offset=log.log_end_offset, min_one_message=True)
    records = (each for batch in batches(data.records.read()) for each in batch.records())
    return [json.loads(each.value) for each in records]


def test_administrative_requests_and_denials_are_noted_in_the_audit_topic():
    """What is refused to clients on their listener, too."""
    world = BrokerWorld(
        **TWO_LISTENERS,
        **IN_CLUSTER,
        ottla_audit_topic="audit",
        super_users="User:root",
        **AUTHORIZER,
    ).start()
    assert world.ask(creation("made"), 6, principal=ROOT).topics[0].error_code == 0
    world.ask(MetadataRequest(topics=[MetadataRequestTopic(name="made")]), 9, principal=EVE)
    world.ask(UpdateMetadataRequest(controller_epoch=-1), 8, principal=ROOT)
    found = [(each["principal"], each["api"], each["decision"]) for each in audited(world)]

    assert sorted(found) == [
        ("User:eve", "Metadata", "denied"),
        ("User:root", "CreateTopics", "allowed"),
        ("User:root", "UpdateMetadata", "denied"),
    ]


def test_broker_alone_writes_its_audit_topic_itself():
    """It leads whatever there is."""
    world = BrokerWorld(ottla_audit_topic="audit").start()
    world.ask(creation("made"), 6)

    assert [each["api"] for each in audited(world)] == ["CreateTopics"]


def test_broker_without_an_audit_topic_notes_nothing():
    """Refusals are answered all the same."""
    world = BrokerWorld(**AUTHORIZER).start()

    assert world.broker.find(Audit) is None
    assert world.ask(creation("t"), 6, principal=EVE).topics[0].error_code
