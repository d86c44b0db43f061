"""Listeners: of brokers and clients apart, and those that come and go while the broker runs.

A client that poses as a broker is refused where clients are apart, elsewhere hardly believed.
"""

from __future__ import annotations

import socket
import struct

import pytest
import trustme

from ottla import Admin, ConfigResource, Producer
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.transactions import WriteTxnMarkersRequest
from ottla.testing import InProcessBroker, InProcessCluster, wait_until

LIMIT_S = 60
FETCH_VERSION = 12
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="b" user_ann="s3cret";'
)


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
    """Followers and transaction coordinators are brokers."""
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


# Listeners that come and go while the broker runs.


@pytest.fixture
def broker():
    """On one listener; it can keep passwords."""
    with InProcessBroker(password_encoder_secret="sesame") as broker:
        broker.create_topic("t")
        yield broker


def change(broker, **settings):
    """Have these settings, by their keys with underscores, and no others."""
    resource = ConfigResource.broker(broker.broker.broker_id)
    named = {key.replace("_", ".") if "." not in key else key: settings[key] for key in settings}
    with Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({resource: named})


def is_served(broker, name):
    """Whether the cluster's metadata have a listener of the broker; its address, or None."""
    return broker.broker.cache.node(broker.broker.broker_id, name)


def write_one(bootstrap_servers, **settings):
    with Producer(bootstrap_servers, **settings) as producer:
        return producer.send("t", b"x").result(LIMIT_S)


def test_listener_is_added_and_removed_while_the_broker_runs(broker):
    """Its clients are sent to it; when it goes, so do they, and nobody else."""
    first = broker.broker.config.text_of("listeners")
    change(
        broker,
        listeners=f"{first},EXTRA://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
    )
    wait_until(lambda: is_served(broker, "EXTRA"), "EXTRA is in the metadata", LIMIT_S)
    extra = is_served(broker, "EXTRA")
    assert extra.port not in (0, broker.port)
    assert write_one(f"127.0.0.1:{extra.port}").offset == 0
    with socket.create_connection(("127.0.0.1", extra.port), LIMIT_S) as client:
        change(broker, listeners=first)
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", extra.port), LIMIT_S)
    wait_until(lambda: not is_served(broker, "EXTRA"), "EXTRA is out of the metadata", LIMIT_S)
    assert write_one(broker.bootstrap_servers).offset == 1


def test_listener_that_was_added_is_there_after_a_restart(broker, tmp_path):
    """With TLS and a login, by keys and passwords that came with it."""
    authority = trustme.CA()
    keys, trusted = str(tmp_path / "keys.pem"), str(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keys)
    authority.cert_pem.write_to_path(trusted)
    change(
        broker,
        listeners=broker.broker.config.text_of("listeners") + ",SAFE://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SAFE:SASL_SSL",
        **{
            "listener.name.safe.ssl.keystore.location": keys,
            "listener.name.safe.ssl.keystore.type": "PEM",
            "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": LOGIN,
        },
    )
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": trusted,
        "ssl_truststore_type": "PEM",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "ann",
        "sasl_password": "s3cret",
    }
    for offset in range(2):
        wait_until(lambda: is_served(broker, "SAFE"), "SAFE is in the metadata", LIMIT_S)
        port = is_served(broker, "SAFE").port
        assert write_one(f"127.0.0.1:{port}", **login).offset == offset
        if not offset:
            broker.stop()
            broker.start()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, "cannot change while it is there"),
        ({"listeners": "EXTRA://127.0.0.1:0"}, "must stay"),
        ({"listeners": "{0},OTHER://:0"}, "no security protocol is given"),
        ({"listeners": "{0},SSL://:0"}, "ssl.keystore.location: must be set"),
        ({"advertised.listeners": "EXTRA://h:1"}, "must have its listener name in listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:SASL_SSL"}, "sasl.jaas.config: must be set"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, "cannot change while listener"),
    ],
)
def test_change_of_listeners_that_cannot_be_is_refused(broker, settings, complaint):
    """A listener that stays is what it was, and brokers find each other as before."""
    first = broker.broker.config.text_of("listeners")
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,SSL:SSL"}
    named = protocols | {key: settings[key].format(first) for key in settings}
    with pytest.raises(KafkaError, match=complaint) as caught:
        change(broker, **named)
    assert caught.value.error is ErrorCode.INVALID_REQUEST


def test_listener_of_the_brokers_changes_broker_by_broker(tmp_path):
    """Those that were changed were refused by the others, and asked plain ports for TLS."""
    authority = trustme.CA()
    keys, trusted = str(tmp_path / "keys.pem"), str(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keys)
    authority.cert_pem.write_to_path(trusted)
    settings = {
        "listeners": "OLD://127.0.0.1:0,SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "OLD:PLAINTEXT,SAFE:SSL",
        "ssl.keystore.location": keys,
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": trusted,
        "ssl.truststore.type": "PEM",
        "ssl.client.auth": "required",
        "broker.rack": "a",  # which no order names
        "inter.broker.listener.name": "OLD",
        "ottla.inter.broker.listener.names": "safe",
    }
    with InProcessCluster(3, **settings) as cluster:
        cluster.create_topic("t", partitions=3)
        for own, others in (("SAFE", "OLD"), ("SAFE", "")):
            cluster.settings["inter.broker.listener.name"] = own
            cluster.settings["ottla.inter.broker.listener.names"] = others
            for broker in cluster.live_brokers:
                cluster.stop_broker(broker)
                cluster.start_broker(broker)
                cluster.wait_until_in_sync("t")
                with Producer(cluster.bootstrap_servers, acks="all") as producer:
                    for partition in range(3):
                        producer.send("t", b"x", partition=partition).result(LIMIT_S)
        assert len(cluster.records("t", 0)) == 6
