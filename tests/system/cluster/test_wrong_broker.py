"""What a broker answers for partitions that another one leads, and how clients find that one."""

from __future__ import annotations

import logging
import socket
import struct
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from ottla import Admin, NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.transactions import DescribeProducersRequest, TopicRequest
from ottla.record.batch_builder import build_batch
from ottla.structs import ElectionType, TopicPartition
from ottla.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 60
LEADER, FOLLOWER, OTHER = 1, 2, 3
"""Of the topics of these tests; the third broker has no replica."""
PRODUCE_WITH_LEADERS = 10
FETCH_WITH_LEADERS = 16


@pytest.fixture
def admin(cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(cluster, admin, unique):
    """A topic with one partition, whose two replicas all brokers know."""
    name = unique("led-elsewhere")
    admin.create_topics([NewTopic(name, replica_assignment={0: [LEADER, FOLLOWER]})])

    def is_known() -> bool:
        errors = [error_of(broker, name, "ListOffsets") for broker in cluster.brokers.values()]
        return errors == [ErrorCode.NONE, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]

    wait_until(is_known, "all brokers know the topic")
    return name


def ask(broker, request, version):
    """The answer of one broker to one request."""
    with socket.create_connection(("127.0.0.1", broker.port), LIMIT_S) as connection:
        connection.sendall(encode_request(version, 1, "lost", request))
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        frame = connection.recv(size, socket.MSG_WAITALL)
    return decode_response(type(request), version, frame)[1]


def produce(topic):
    batch = build_batch([(1_000, None, b"x", ())])
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def fetch(topic="", topic_id=None, leader_epoch=-1):
    wanted = [FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=leader_epoch)]
    named = FetchTopic(topic=topic, partitions=wanted)
    if topic_id is not None:
        named.topic_id = topic_id
    return FetchRequest(max_bytes=1, topics=[named])


def producers(topic):
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])


REQUESTS = {
    "DeleteRecords": lambda topic: (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ],
            timeout_ms=LIMIT_S * 1000,
        ),
        0,
    ),
    "ListOffsets": lambda topic: (
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ]
        ),
        1,
    ),
    "OffsetForLeaderEpoch": lambda topic: (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ]
        ),
        0,
    ),
    "DescribeProducers": lambda topic: (producers(topic), 0),
    "Fetch": lambda topic: (fetch(topic), 4),
    "Produce": lambda topic: (produce(topic), 3),
}
"""A request about partition 0 of a topic, and its version."""
SERVED_BY_FOLLOWERS = {"DescribeProducers": ErrorCode.NONE}


def error_of(broker, topic, name):
    """What one API says of partition 0 of a topic, asked of this broker."""
    return line_of(ask(broker, *REQUESTS[name](topic))).error_code


def line_of(response):
    """What an answer says of its only partition."""
    (topic,) = response.responses if hasattr(response, "responses") else response.topics
    is_produce = hasattr(topic, "partition_responses")
    (line,) = topic.partition_responses if is_produce else topic.partitions
    return line


def named_leader(response):
    """The leader and epoch that the answer names, and where it says that the leader listens."""
    leader = line_of(response).current_leader
    endpoints = {each.node_id: (each.host, each.port) for each in response.node_endpoints}
    return leader and (leader.leader_id, leader.leader_epoch), endpoints


@pytest.mark.parametrize("name", REQUESTS)
def test_broker_that_does_not_lead_says_so_where_the_topic_exists(cluster, topic, name):
    """One without a replica said that there was no such topic; clients asked for no metadata."""
    errors = {id_: error_of(each, topic, name) for id_, each in cluster.brokers.items()}

    assert errors == {
        LEADER: ErrorCode.NONE,
        FOLLOWER: SERVED_BY_FOLLOWERS.get(name, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        OTHER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    unknown = error_of(cluster.brokers[OTHER], "no-such-topic", name)
    assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_answer_names_the_leader_and_where_it_listens(cluster, admin, topic):
    """Produce v10 and Fetch v16 had the fields, and left them empty (KIP-951)."""
    known = admin.describe_topics([topic])[topic]
    leader, other = cluster.brokers[LEADER], cluster.brokers[OTHER]
    epoch = known.partitions[0].leader_epoch
    expected = (LEADER, epoch), {LEADER: ("127.0.0.1", leader.port)}
    read = fetch(topic_id=known.topic_id)

    assert named_leader(ask(other, produce(topic), PRODUCE_WITH_LEADERS)) == expected
    follower = cluster.brokers[FOLLOWER]
    assert named_leader(ask(follower, produce(topic), PRODUCE_WITH_LEADERS)) == expected
    assert named_leader(ask(other, read, FETCH_WITH_LEADERS)) == expected
    assert named_leader(ask(leader, read, FETCH_WITH_LEADERS)) == (None, {})
    prefer_the_follower(admin, topic)
    elect(admin, topic)
    late = fetch(topic_id=known.topic_id, leader_epoch=epoch)
    fenced = ask(follower, late, FETCH_WITH_LEADERS)
    assert line_of(fenced).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert named_leader(fenced)[1] == {FOLLOWER: ("127.0.0.1", follower.port)}


def prefer_the_follower(admin, topic):
    """The follower is to lead from the next election on; the leader epoch is the last before it."""
    partition = TopicPartition(topic, 0)
    before = admin.describe_topics([topic])[topic].partitions[0].leader_epoch
    admin.alter_partition_reassignments({partition: [FOLLOWER, LEADER]})

    def is_preferred() -> bool:
        known = admin.describe_topics([topic])[topic].partitions[0]
        is_over = not admin.list_partition_reassignments()
        return is_over and known.leader_epoch > before and known.replicas[0] == FOLLOWER

    wait_until(is_preferred, f"broker {FOLLOWER} is preferred")


def elect(admin, topic):
    """Have the preferred replica lead."""
    partition = TopicPartition(topic, 0)

    def leads() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, [partition])
        return admin.describe_topics([topic])[topic].partitions[0].leader == FOLLOWER

    wait_until(leads, f"broker {FOLLOWER} leads {partition}")


class ClientLog(logging.Handler):
    """What librdkafka says, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def names_leader(self, client: str, topic: str) -> bool:
        """Whether a client has taken the new leader from the answer to another request."""
        return any(
            "METADATAUPDATE" in line
            and client in line
            and f"Partition {topic}(" in line
            and f"updated with leader {FOLLOWER} " in line
            for line in self.lines
        )


def test_librdkafka_takes_the_new_leader_from_the_answer(cluster, admin, topic):
    """A producer and a consumer go on at the new leader, of which no metadata have told them."""
    prefer_the_follower(admin, topic)
    log = logging.getLogger(topic)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    said = ClientLog()
    log.addHandler(said)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "topic.metadata.refresh.interval.ms": -1,
        "debug": "metadata",
    }
    producer = confluent_kafka.Producer(settings, logger=log)
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest"}, logger=log
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        for value in (b"before", b"after"):
            producer.produce(topic, value)
            assert producer.flush(LIMIT_S) == 0
            message = consumer.poll(LIMIT_S)
            assert (message.error(), message.value()) == (None, value)
            if value == b"before":
                elect(admin, topic)
        producer.poll(0)
    finally:
        consumer.close()

    assert said.names_leader("producer", topic), said.lines
    assert said.names_leader("consumer", topic), said.lines
