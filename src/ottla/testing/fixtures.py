"""Fixtures for any pytest suite, which pytest finds by itself where Ottla is installed.

`ottla_fresh_broker` and `ottla_fresh_cluster` are the test's own, in its process. `ottla_broker`
and `ottla_cluster` are processes: started when a test first asks for them, they live as long as the
session, and every test finds them running, because servers that a test has killed, stopped or
paused are brought back after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # modules that no test needs are not imported
    from ottla.testing.in_process_broker import InProcessBroker
    from ottla.testing.in_process_cluster import InProcessCluster
    from ottla.testing.processes import BrokerProcess, ClusterProcess

REFUSAL = re.compile(r"^ottla zookeeper: (.*)$", re.MULTILINE)

Settings = Mapping[str, str | int]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "ottla_settings(**settings): settings of this test's fresh broker or cluster"
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

    with InProcessBroker(**_settings_of(request, ottla_fresh_broker_settings)) as broker:
        yield broker


@pytest.fixture
def ottla_fresh_cluster_settings() -> Settings:
    """The settings of all brokers of `ottla_fresh_cluster`, for a suite to override."""
    return {}


@pytest.fixture
def ottla_fresh_cluster(
    request: pytest.FixtureRequest, ottla_fresh_cluster_settings: Settings
) -> Iterator[InProcessCluster]:
    """Brokers 1, 2 and 3 of this test alone, in memory, without ZooKeeper.

    `@pytest.mark.ottla_settings(brokers=5)` has another number, and settings as for a broker.
    """
    from ottla.testing.in_process_cluster import InProcessCluster

    with InProcessCluster(**_settings_of(request, ottla_fresh_cluster_settings)) as cluster:
        yield cluster


def _settings_of(request: pytest.FixtureRequest, settings: Settings) -> dict[str, Any]:
    """Those of the suite and, before them, of the test's markers; with dots or underscores."""
    markers = reversed(list(request.node.iter_markers("ottla_settings")))
    found = [settings, *(marker.kwargs for marker in markers)]
    named = {name.replace(".", "_"): name for each in found for name in each}
    values = {name.replace(".", "_"): value for each in found for name, value in each.items()}
    return {named[name]: value for name, value in values.items()}


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
    from ottla.testing.processes import BrokerProcess

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
    from ottla.testing.processes import ClusterProcess

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
