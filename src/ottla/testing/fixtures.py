"""Fixtures for any pytest suite, which pytest finds by itself where Ottla is installed.

`ottla_fresh_broker` is a broker of the test's own, in its process. `ottla_broker` and
`ottla_cluster` are processes: started when a test first asks for them, they live as long as the
session, and every test finds them running, because what a test has killed, stopped or paused is
brought back after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # what no test asks for is not imported
    from ottla.testing.broker_process import BrokerProcess
    from ottla.testing.cluster_process import ClusterProcess
    from ottla.testing.in_process_broker import InProcessBroker

REFUSAL = re.compile(r"^ottla zookeeper: (.*)$", re.MULTILINE)

Settings = Mapping[str, str | int]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "ottla_settings(**settings): settings of the fresh broker of this test"
    )


@pytest.fixture
def ottla_fresh_broker_settings() -> Settings:
    """The settings of `ottla_fresh_broker`, for a suite to override: `{"num_partitions": 3}`."""
    return {}


@pytest.fixture
def ottla_fresh_broker(
    request: pytest.FixtureRequest, ottla_fresh_broker_settings: Settings
) -> Iterator[InProcessBroker]:
    """A broker of this test alone, in memory and in a thread of this process.

    `@pytest.mark.ottla_settings(num_partitions=3)` has settings for one test; `data_dir` among
    them is a directory for the broker to store its data in.
    """
    from ottla.testing.in_process_broker import InProcessBroker

    settings = _underscored(ottla_fresh_broker_settings)
    for marker in reversed(list(request.node.iter_markers("ottla_settings"))):
        settings |= _underscored(marker.kwargs)
    with InProcessBroker(settings.pop("data_dir", None), **settings) as broker:
        yield broker


def _underscored(settings: Settings) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


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
    from ottla.testing.broker_process import BrokerProcess

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
    from ottla.testing.cluster_process import ClusterProcess

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
