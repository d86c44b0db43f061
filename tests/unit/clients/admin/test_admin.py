"""`ottla.Admin` against a real broker."""

from __future__ import annotations

import pytest

from ottla import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from ottla.errors import ErrorCode, KafkaTimeoutError
from ottla.protocol.api_keys import ApiKey
from ottla.structs import NO_UUID

LIMIT_SECONDS = 100


@pytest.fixture
def admin(broker):
    """An admin client of the shared broker."""
    with Admin(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(admin, unique) -> str:
    """A topic with two partitions, of ten records each."""
    name = unique("ottla-admin")
    admin.create_topics([NewTopic(name, 2, 1)])
    return name


@pytest.fixture
def filled(broker, topic) -> str:
    """The same topic with ten records in each partition, at the times 1000 to 1009."""
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, b"v", partition=number % 2, timestamp_ms=1000 + number // 2)
    return topic


def test_topics_are_created_described_and_deleted(admin, unique):
    """The life of a topic."""
    name = unique("life")
    admin.create_topics([NewTopic(name, 3, 1, configs={"retention.ms": "1000"})])
    assert name in admin.list_topics()
    description = admin.describe_topics([name])[name]
    assert description.name == name
    assert description.topic_id != NO_UUID
    assert not description.is_internal
    assert [p.partition for p in description.partitions] == [0, 1, 2]
    assert all(p.leader in p.isr and p.leader in p.replicas for p in description.partitions)
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_validation_creates_nothing(admin, unique):
    """validate_only says whether it would work."""
    name = unique("validated")
    admin.create_topics([NewTopic(name, 1)], validate_only=True)

    assert name not in admin.list_topics()


def test_counts_are_left_to_the_broker(admin, unique):
    """A name alone stands for num.partitions and default.replication.factor."""
    name = unique("defaults")
    admin.create_topics([name])

    assert len(admin.describe_topics([name])[name].partitions) == 1


def test_replicas_are_placed_by_hand(admin, unique):
    """An assignment takes the place of both counts."""
    name = unique("placed")
    (node,) = admin.describe_cluster().nodes
    admin.create_topics([NewTopic(name, replica_assignment={0: [node.id], 1: [node.id]})])

    assert [p.replicas for p in admin.describe_topics([name])[name].partitions] == [[node.id]] * 2


def test_bulk_call_tries_everything_and_raises_the_first_error(admin, topic, unique):
    """`results` tells what became of each; the others were created."""
    fine = unique("fine")
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS") as caught:
        admin.create_topics([NewTopic(topic, 1), NewTopic(fine, 1), NewTopic("not/valid", 1)])

    assert caught.value.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert caught.value.results[fine] is None
    assert caught.value.results["not/valid"].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fine in admin.list_topics()


def test_unknown_topic_is_told_at_once(admin, unique):
    """Neither describing nor deleting waits for a topic that is not there."""
    for call in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(KafkaError) as caught:
            call([unique("missing")])
        assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_are_added(admin, topic):
    """The total count grows; it cannot shrink."""
    admin.create_partitions({topic: 4})
    assert len(admin.describe_topics([topic])[topic].partitions) == 4
    with pytest.raises(KafkaError, match="INVALID_PARTITIONS"):
        admin.create_partitions({topic: 2})


def test_cluster_is_described(admin, broker):
    """One broker, which is the controller, at the address that we know."""
    cluster = admin.describe_cluster()

    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap_servers]
    assert cluster.controller == cluster.nodes[0]
    assert len(cluster.cluster_id) == 22


def test_api_versions_are_told_by_key(admin):
    """Each API under its name, with the lowest and the highest version."""
    versions = admin.api_versions(admin.describe_cluster().nodes[0].id)

    assert versions[ApiKey.API_VERSIONS][0] == 0
    assert versions[ApiKey.FETCH][1] >= 12


def test_settings_change_one_by_one_or_all_at_once(admin, topic):
    """Incremental changes leave the others alone; alter_configs replaces everything."""
    resource = ConfigResource.topic(topic)
    admin.incremental_alter_configs(
        {resource: [AlterConfigOp("retention.ms", "1000"), AlterConfigOp("segment.bytes", "9999")]}
    )
    admin.incremental_alter_configs({resource: [AlterConfigOp("segment.bytes", op="DELETE")]})
    entries = admin.describe_configs([resource], include_synonyms=True)[resource]
    assert entries["retention.ms"].value == "1000"
    assert not entries["retention.ms"].is_default
    assert entries["retention.ms"].synonyms[0].value == "1000"
    assert entries["segment.bytes"].is_default
    admin.alter_configs({resource: {"cleanup.policy": "compact"}})
    entries = admin.describe_configs([resource])[resource]
    assert entries["cleanup.policy"].value == "compact"
    assert entries["retention.ms"].is_default


def test_settings_of_a_broker_are_asked_of_that_broker(admin):
    """A broker describes itself."""
    resource = ConfigResource.broker(admin.describe_cluster().nodes[0].id)
    entries = admin.describe_configs([resource])[resource]

    assert entries["log.dirs"].is_read_only
    assert entries["log.dirs"].value


def test_settings_are_described_with_their_documentation(admin, topic):
    """KIP-569: what each setting does, where it is asked for."""
    resource = ConfigResource.topic(topic)
    asked = admin.describe_configs([resource], include_documentation=True)[resource]
    not_asked = admin.describe_configs([resource])[resource]

    assert asked["retention.ms"].documentation.endswith(".")
    assert not_asked["retention.ms"].documentation is None


def test_bad_setting_is_refused(admin, topic):
    """The error names key and value."""
    resource = ConfigResource.topic(topic)
    with pytest.raises(KafkaError, match=r"INVALID_CONFIG.*retention\.ms"):
        admin.incremental_alter_configs({resource: [AlterConfigOp("retention.ms", "soon")]})


def test_offsets_are_listed_by_time(admin, filled):
    """Offsets are found by timestamp, and at both ends; -1 where no record is that young."""
    first = TopicPartition(filled, 0)

    def offset(timestamp) -> int:
        return admin.list_offsets({first: timestamp})[first].offset

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 10
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(1004) == 4
    assert offset(99_999) == -1


def test_records_are_deleted(admin, filled):
    """The log begins later; -1 stands for its end."""
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)

    assert admin.delete_records({first: 4, second: -1}) == {first: 4, second: 10}
    found = admin.list_offsets({first: OffsetSpec.EARLIEST, second: OffsetSpec.EARLIEST})
    assert [result.offset for result in found.values()] == [4, 10]


def test_groups_are_listed_and_described(admin, broker, filled, unique):
    """State, assignor and members with their partitions; an unknown group is Dead."""
    group = unique("described")
    with Consumer(broker.bootstrap_servers, group_id=group, topics=[filled]) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        assert group in {listing.group_id for listing in admin.list_groups(["Stable"])}
        description = admin.describe_groups([group])[group]
    assert (description.state, description.protocol) == ("Stable", "range")
    assert description.coordinator.id == admin.describe_cluster().nodes[0].id
    (member,) = description.members
    assert member.client_id == "ottla"
    assert member.assignment == [TopicPartition(filled, 0), TopicPartition(filled, 1)]
    assert admin.describe_groups([unique("nobody")]).popitem()[1].state == "Dead"


def test_offsets_of_a_group_are_read_and_changed(admin, filled, unique):
    """For a group without members; numbers or with metadata."""
    group = unique("offsets")
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    admin.alter_group_offsets(group, {first: 3, second: OffsetAndMetadata(4, "four")})

    assert admin.list_group_offsets(group)[second] == OffsetAndMetadata(4, "four")
    assert list(admin.list_group_offsets(group, [first])) == [first]


def test_group_is_deleted_only_without_members(admin, broker, filled, unique):
    """NON_EMPTY_GROUP while somebody is in it."""
    group = unique("deleted")
    with Consumer(broker.bootstrap_servers, group_id=group, topics=[filled]) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            admin.delete_groups([group])
    admin.delete_groups([group])

    assert group not in {listing.group_id for listing in admin.list_groups()}


def test_unreachable_cluster_ends_at_the_time_limit():
    """default.api.timeout.ms bounds each call, and the error names the address."""
    with (
        Admin("127.0.0.1:9", default_api_timeout_ms=200, request_timeout_ms=50) as admin,
        pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:9"),
    ):
        admin.list_topics()


def test_closed_admin_raises(broker):
    """After close nothing is asked any more; closing again does nothing."""
    admin = Admin(broker.bootstrap_servers)
    admin.close()
    admin.close()

    with pytest.raises(RuntimeError, match="closed"):
        admin.list_topics()
