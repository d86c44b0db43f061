"""Peers of other languages: fetched into `.peers/` by their package clients, run on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_tools import KafkaTools
from cluster_load import ClusterView
from kafka_cluster import PATIENT, KafkaCluster
from peer_cluster import PeerCluster
from same_words import Pair

from ottla.testing.processes import BrokerProcess, ZooKeeperProcess


def pytest_collection_modifyitems(items):
    """A peer is a JVM or a compiled program, and the first run fetches it: give it time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", params=["3.9", "4.1"])
def tools(request):
    """The tools of Apache Kafka, in each version that is pinned here."""
    return KafkaTools(request.param, kafka_jars(request.param))


@pytest.fixture(scope="module")
def start_module_broker(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers that the tests of a module share."""
    started: list[BrokerProcess] = []

    def start(data_dir: Path | None = None, **overrides: str | int) -> BrokerProcess:
        folder = data_dir or tmp_path_factory.mktemp("module") / "data"
        started.append(BrokerProcess(folder, **overrides))
        return started[-1].start()

    yield start
    for process in started:
        if process.process is not None:
            process.kill()


@pytest.fixture(scope="session")
def running_cluster(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    """Brokers 1, 2 and 3 below a chroot of the shared server."""
    folder = tmp_path_factory.mktemp("peer-cluster")
    cluster = PeerCluster(folder, zookeeper=zookeeper, chroot="/peers").start()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(running_cluster: PeerCluster) -> Iterator[PeerCluster]:
    """The cluster; brokers that a test has killed or stopped are started again after it."""
    yield running_cluster
    running_cluster.mend()


@pytest.fixture
def view(cluster: PeerCluster) -> ClusterView:
    """What a client's metadata say."""
    return ClusterView(cluster.bootstrap_servers)


@pytest.fixture(scope="session")
def pair(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Three brokers of Kafka 2.3 and three of Ottla, below chroots of the shared server."""
    tools = KafkaTools("2.3", kafka_jars("2.3"))
    folder = tmp_path_factory.mktemp("pair")
    kafka = KafkaCluster(tools, folder / "kafka", zookeeper, "/kafka-2.3")
    ottla = PeerCluster(folder / "ottla", zookeeper=zookeeper, chroot="/ottla", **PATIENT)
    try:
        yield Pair(tools, kafka.start(), ottla.start())
    finally:
        kafka.stop()
        ottla.stop()
