"""Brokers that talk to each other over TLS only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_brokers import registered_brokers
from ottla.testing.processes import ClusterProcess

LIMIT_S = 60
COUNT = 200


@pytest.fixture(scope="module")
def tls_cluster(zookeeper, certificates, tmp_path_factory) -> Iterator[ClusterProcess]:
    """Two brokers, each of which shows the other its certificate."""
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": certificates.server,
        "ssl.truststore.location": certificates.ca,
        "default.replication.factor": 2,
        # None of them dies: a busy machine must not make it look so.
        "zookeeper.session.timeout.ms": 10_000,
        "offsets.topic.replication.factor": 2,
    }
    cluster = ClusterProcess(
        tmp_path_factory.mktemp("tls") / "cluster",
        2,
        zookeeper=zookeeper,
        chroot="/tls-cluster",
        **settings,
    ).start()
    yield cluster
    cluster.stop()


def test_brokers_register_what_their_listeners_speak(tls_cluster):
    """In ZooKeeper, where older tools and Kafka's own brokers look."""
    at = tls_cluster.zookeeper.connect + tls_cluster.chroot

    assert registered_brokers(at, "SSL", "WARN") == tls_cluster.bootstrap_servers
    with pytest.raises(CommandError, match=r"no listener for security\.protocol=PLAINTEXT"):
        registered_brokers(at, "PLAINTEXT", "WARN")


def test_cluster_replicates_over_tls(tls_cluster, certificates):
    """Controller, followers and groups; what is acknowledged, two replicas have."""
    servers = tls_cluster.bootstrap_servers
    secure = {
        "security.protocol": "SSL",
        "ssl.truststore.location": certificates.ca,
        "ssl.keystore.location": certificates.client,
    }
    with Admin(servers, secure) as admin:
        admin.create_topics([NewTopic("t", 2, 2)])
    with Producer(servers, secure, acks="all") as producer:
        for future in [producer.send("t", str(n), partition=n % 2) for n in range(COUNT)]:
            future.result(LIMIT_S)
    with Consumer(
        servers, secure, auto_offset_reset="earliest", group_id="g", topics=["t"]
    ) as consumer:
        values = []
        while len(values) < COUNT:
            values += [int(record.value) for record in consumer.poll(1000)]
    assert sorted(values) == list(range(COUNT))
    with Admin(servers, secure) as admin:
        partitions = admin.describe_topics(["t"])["t"].partitions
    assert {each.leader for each in partitions} == {1, 2}
    assert all(sorted(each.isr) == [1, 2] for each in partitions)
