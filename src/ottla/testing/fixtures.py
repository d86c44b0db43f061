"""Fixtures for any pytest suite: a broker, and a cluster of three, as processes of their own.

`pytest_plugins = ["ottla.testing.fixtures"]` in the top conftest.py makes them known. The processes
are started when a test first asks for them, live as long as the session, and every test finds them
running: a process that a test has killed, stopped or paused is brought back after the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from ottla.testing.broker_process import BrokerProcess
from ottla.testing.cluster_process import ClusterProcess

REFUSAL = re.compile(r"^ottla zookeeper: (.*)$", re.MULTILINE)

Settings = Mapping[str, str | int]


@pytest.fixture(scope="session")
def ottla_broker_settings() -> Settings:
    """The settings of `ottla_broker`, for a suite to override: `{"num.partitions": 3}`."""
    return {}


@pytest.fixture(scope="session")
def ottla_cluster_settings() -> Settings:
    """The settings of all brokers of `ottla_cluster`, for a suite to override."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker_process(
    tmp_path_factory: pytest.TempPathFactory, ottla_broker_settings: Settings
) -> Iterator[BrokerProcess]:
    """The process behind `ottla_broker`."""
    folder = tmp_path_factory.mktemp("ottla-broker")
    broker = BrokerProcess(folder / "data", **ottla_broker_settings).start()
    yield broker
    broker.stop()


@pytest.fixture
def ottla_broker(ottla_broker_process: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker that all tests of a session share: use topics and groups of your own."""
    yield ottla_broker_process
    if ottla_broker_process.process is None:
        ottla_broker_process.start()


@pytest.fixture(scope="session")
def ottla_cluster_process(
    tmp_path_factory: pytest.TempPathFactory, ottla_cluster_settings: Settings
) -> Iterator[ClusterProcess]:
    """The processes behind `ottla_cluster`; skips where ZooKeeper cannot run, and says why."""
    cluster = ClusterProcess(tmp_path_factory.mktemp("ottla-cluster"), 0)
    for broker_id in (1, 2, 3):
        cluster.add(broker_id, **ottla_cluster_settings)
    try:
        cluster.zookeeper.start()
    except RuntimeError:
        refusal = REFUSAL.search(cluster.zookeeper.log)
        if refusal is None:
            raise
        pytest.skip(f"ottla_cluster needs ZooKeeper: {refusal[1]}")
    try:
        cluster.start_brokers()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ottla_cluster(ottla_cluster_process: ClusterProcess) -> Iterator[ClusterProcess]:
    """ZooKeeper and the brokers 1, 2 and 3, which all tests of a session share."""
    yield ottla_cluster_process
    ottla_cluster_process.mend()
