"""A client that poses as a broker: refused where clients are apart, elsewhere hardly believed."""

from __future__ import annotations

import socket
import struct

import pytest

from ottla import Producer
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.transactions import WriteTxnMarkersRequest

LIMIT_S = 60
FETCH_VERSION = 12


def ask(port, request, version):
    """The answer to one request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        connection.sendall(encode_request(version, 1, "fake", request))
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        frame = connection.recv(size, socket.MSG_WAITALL)
    return decode_response(type(request), version, frame)[1]


def fetch_as(replica_id):
    """A fetch from far behind what there is, which would commit everything before it."""
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[partition])
    return FetchRequest(replica_id=replica_id, max_bytes=1 << 20, topics=[topic])


def test_listener_of_clients_serves_clients_only(start_broker):
    """Followers and transaction coordinators are brokers (B11)."""
    broker = start_broker(
        listeners="BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        listener_security_protocol_map="BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
    )
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result(LIMIT_S)
    as_follower = ask(broker.port, fetch_as(0), FETCH_VERSION)
    as_consumer = ask(broker.port, fetch_as(-1), FETCH_VERSION)

    assert as_follower.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert as_follower.responses == []
    assert as_consumer.responses[0].partitions[0].high_watermark == 1
    assert "WriteTxnMarkersRequest of a client at 127.0.0.1 is refused" in refused(broker)


def refused(broker):
    """What the broker says of a marker from a client: this API has no place for such an error."""
    with pytest.raises(struct.error):
        ask(broker.port, WriteTxnMarkersRequest(), 1)
    return broker.log


@pytest.mark.parametrize("replica_id", [0, 1, 2])
def test_replica_that_is_none_is_refused_on_a_shared_listener(broker, unique, replica_id):
    """The topic has one replica, and no offset of another one is believed."""
    topic = unique("followed")
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"x").result(LIMIT_S)
    request = fetch_as(replica_id)
    request.topics[0].topic = topic
    (partition,) = ask(broker.port, request, FETCH_VERSION).responses[0].partitions

    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bytes(partition.records) == b""
