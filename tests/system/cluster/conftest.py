"""One cluster of three brokers for the tests of this folder: each leaves it whole again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_load import LIMIT_S, QUIET, SESSION_MS, ClusterView
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess, ZooKeeperProcess

QUICK = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
}
"""Nobody who is dead, and nothing that is too late, is waited for long."""


@pytest.fixture(scope="session")
def running_cluster(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    """Brokers 1, 2 and 3 below a chroot of the shared server."""
    data_dir = tmp_path_factory.mktemp("cluster")
    cluster = ClusterProcess(data_dir, zookeeper=zookeeper, chroot="/cluster", **QUICK).start()
    make_internal_topics(cluster.bootstrap_servers)
    yield cluster
    cluster.stop()


def make_internal_topics(servers: str) -> None:
    """While all brokers are there: a test may begin with one that is dead."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "first", **QUIET})
    consumer.committed([TopicPartition("first", 0)], LIMIT_S)
    consumer.close()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "first", **QUIET})
    producer.init_transactions(LIMIT_S)


@pytest.fixture
def cluster(running_cluster: ClusterProcess) -> Iterator[ClusterProcess]:
    """The cluster, whole; brokers that a test has killed or stopped are started again after it."""
    brokers = list(running_cluster.brokers)
    view = ClusterView(running_cluster.bootstrap_servers)
    wait_until(lambda: view.is_whole(brokers), "all brokers are there, and all replicas in sync")
    yield running_cluster
    running_cluster.mend()


@pytest.fixture
def view(cluster: ClusterProcess) -> ClusterView:
    """What a client's metadata say."""
    return ClusterView(cluster.bootstrap_servers)
