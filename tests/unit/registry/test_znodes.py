"""The JSON of the nodes, byte for byte as Kafka's."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import KafkaError
from ottla.registry.znodes import (
    BLACK_LIST,
    WHITE_LIST,
    BrokerNode,
    ConsumerRegistration,
    ProducerIdBlock,
    TopicNode,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_controller,
    decode_epoch,
    decode_offset,
    decode_partition_state,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller,
    encode_epoch,
    encode_offset,
    encode_partition_state,
)
from ottla.structs import NO_UUID, LeaderAndIsr, decode_uuid, encode_uuid

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
BROKER = BrokerNode(
    ("PLAINTEXT://localhost:9092",), {"PLAINTEXT": "PLAINTEXT"}, "localhost", 9092, 1565
)
BROKER_V4 = (
    b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://localhost:9092"],"jmx_port":-1,"host":"localhost",'
    b'"timestamp":"1565","port":9092,"version":4}'
)
BROKER_V5 = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://localhost:9092"],"jmx_port":-1,"port":9092,'
    b'"host":"localhost","version":5,"timestamp":"1565"}'
)
BROKER_V1 = b'{"jmx_port":-1,"timestamp":"1565","host":"localhost","version":1,"port":9092}'


def test_broker_is_written_as_version_4():
    """The sample of the articles."""
    assert BROKER.encode() == BROKER_V4


@pytest.mark.parametrize("data", [BROKER_V1, BROKER_V4, BROKER_V5])
def test_broker_is_read_in_all_versions(data):
    """Before version 2 host and port are the only end point."""
    assert BrokerNode.decode(0, data) == BROKER


def test_rack_is_there_if_the_broker_has_one():
    """Version 3 and newer."""
    data = BrokerNode(("A://h:1",), {"A": "PLAINTEXT"}, None, -1, 5, rack="r1").encode()

    assert data.endswith(b'"rack":"r1"}')
    assert BrokerNode.decode(0, data).rack == "r1"


def test_topic_is_written_as_version_3():
    """Partitions in order, the id in base64."""
    data = TopicNode({1: (1, 0), 0: (0, 1)}, TOPIC_ID).encode()

    assert data == (
        b'{"removing_replicas":{},"partitions":{"0":[0,1],"1":[1,0]},'
        b'"topic_id":"ABEiM0RVZneImaq7zN3u_w","adding_replicas":{},"version":3}'
    )
    assert TopicNode.decode("t", data) == TopicNode({0: (0, 1), 1: (1, 0)}, TOPIC_ID)


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"partitions":{"0":[0]}}',
        b'{"version":2,"partitions":{"0":[0]},"adding_replicas":{},"removing_replicas":{}}',
    ],
)
def test_older_topics_have_no_id(data):
    """The controller gives them one."""
    assert TopicNode.decode("t", data) == TopicNode({0: (0,)}, NO_UUID)


def test_partition_state_is_written_as_kafka_does():
    """The version of the node comes from its stat, not from its data."""
    data = encode_partition_state(LeaderAndIsr(1, 2, (1, 0)), 3)

    assert data == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[1,0]}'
    assert decode_partition_state("/p", data, 7) == (LeaderAndIsr(1, 2, (1, 0), 7), 3)


def test_controller_and_its_epoch():
    """JSON and plain decimal text."""
    data = encode_controller(4, 99)

    assert data == b'{"version":1,"brokerid":4,"timestamp":"99"}'
    assert decode_controller(data) == 4
    assert decode_epoch(encode_epoch(12)) == 12


def test_cluster_id_has_its_version_as_text():
    """For reasons of Kafka's own."""
    data = encode_cluster_id("abc")

    assert data == b'{"version":"1","id":"abc"}'
    assert decode_cluster_id(data) == "abc"


def test_config_is_a_map_of_texts():
    """An empty node has none."""
    data = encode_config({"retention.ms": "5"})

    assert data == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert decode_config("/c", data) == {"retention.ms": "5"}
    assert decode_config("/c", b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        encode_config_change("topics/t"),
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
    ],
)
def test_config_change_names_the_entity(data):
    """Both versions."""
    assert decode_config_change("/c", data) == "topics/t"


def test_producer_id_block_has_its_ids_as_texts():
    """Both ends are included."""
    block = ProducerIdBlock(0, 1000, 1999)

    assert block.encode() == b'{"version":1,"broker":0,"block_start":"1000","block_end":"1999"}'
    assert ProducerIdBlock.decode(block.encode()) == block


def test_uuid_is_22_characters():
    """URL-safe base64 without padding, there and back."""
    text = encode_uuid(TOPIC_ID)

    assert len(text) == 22
    assert decode_uuid(text) == TOPIC_ID


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"partitions":5}', b"\xff"])
@pytest.mark.parametrize(
    "decode",
    [
        lambda data: TopicNode.decode("t", data),
        lambda data: decode_partition_state("/p", data, 0),
        decode_controller,
        decode_epoch,
        decode_cluster_id,
        lambda data: decode_config("/c", data or b"{}"),
        lambda data: decode_config_change("/c", data),
        ProducerIdBlock.decode,
    ],
)
def test_unreadable_node_is_named(decode, data):
    """Whatever somebody else wrote, the error shows it."""
    with pytest.raises(KafkaError, match="is not readable"):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"endpoints":5}',
        b'{"port":"x"}',
        BROKER_V5.replace(b"localhost", rb"\ud800"),
    ],
)
def test_unreadable_broker_is_named(data):
    """The broker's node has defaults for most of its keys, but not for nonsense."""
    with pytest.raises(KafkaError, match="broker 3 is not readable"):
        BrokerNode.decode(3, data)


REGISTRATION = ConsumerRegistration({"pages": 2}, "static", 1565)
REGISTRATION_V1 = b'{"version":1,"subscription":{"pages":2},"pattern":"static","timestamp":"1565"}'


def test_an_old_consumer_is_written_as_kafkas_are():
    """The id of a consumer of the old kind, version 1."""
    assert REGISTRATION.encode() == REGISTRATION_V1


@pytest.mark.parametrize(
    ("data", "registration"),
    [
        (REGISTRATION_V1, REGISTRATION),
        (b'{"pages":2}', ConsumerRegistration({"pages": 2})),
        (b"*2*web.*", ConsumerRegistration({"web.*": 2}, WHITE_LIST)),
        (b"!1!web!", ConsumerRegistration({"web!": 1}, BLACK_LIST)),
        (
            b'{"version":1,"subscription":{"w":1},"pattern":"white-list","timestamp":"1"}',
            ConsumerRegistration({"w": 1}, WHITE_LIST, 1),
        ),
    ],
)
def test_old_consumers_are_read_as_0_7_and_0_8_write_them(data, registration):
    """Topics with their streams, or a pattern."""
    assert ConsumerRegistration.decode("c", data) == registration


@pytest.mark.parametrize("data", [b"", b"[]", b"*x*y", b'{"subscription":[1]}', b'{"a":"b"}'])
def test_what_is_no_consumer_is_refused(data):
    """The error names the consumer."""
    with pytest.raises(KafkaError, match="consumer c"):
        ConsumerRegistration.decode("c", data)


def test_offsets_of_old_consumers_are_decimal_text():
    """Anything else is refused with its path."""
    assert encode_offset(12) == b"12"
    assert decode_offset("/o", b"12") == 12
    with pytest.raises(KafkaError, match="/o"):
        decode_offset("/o", b"x")
