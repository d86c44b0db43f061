"""The fixtures in a suite that does not name them: pytest finds them where Ottla is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

SUITE = """
import asyncio
import threading

import pytest

from ottla import Producer


def send(broker, *values):
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value).result()


@pytest.fixture
def ottla_fresh_broker_settings():
    return {"num.partitions": 2}


@pytest.mark.parametrize("number", range(3))
def test_each_test_has_its_own(ottla_fresh_broker, number):
    assert ottla_fresh_broker.topics() == []
    send(ottla_fresh_broker, b"1")
    assert len(ottla_fresh_broker.records("t")) == 1
    assert len(ottla_fresh_broker.broker.cache.topic("t").partitions) == 2


@pytest.mark.ottla_settings(num_partitions=3)
class TestMarked:
    @pytest.mark.ottla_settings(broker_id=4)
    def test_settings_of_one_test(self, ottla_fresh_broker, tmp_path):
        send(ottla_fresh_broker, b"1")
        assert ottla_fresh_broker.broker.broker_id == 4
        assert len(ottla_fresh_broker.broker.cache.topic("t").partitions) == 3


def test_asyncio(ottla_fresh_broker):
    async def scene():
        await asyncio.gather(
            asyncio.to_thread(send, ottla_fresh_broker, b"1"),
            asyncio.to_thread(ottla_fresh_broker.wait_for_records, "t", 1),
        )

    asyncio.run(scene())


def test_threads(ottla_fresh_broker):
    threads = [threading.Thread(target=send, args=(ottla_fresh_broker, b"1")) for _ in range(3)]
    for thread in threads:
        thread.start()
    ottla_fresh_broker.wait_for_records("t", 3)
    for thread in threads:
        thread.join()


@pytest.mark.ottla_settings(brokers=2)
def test_cluster(ottla_fresh_cluster):
    assert ottla_fresh_cluster.live_brokers == [1, 2]
    send(ottla_fresh_cluster, b"1")
    ottla_fresh_cluster.wait_until_in_sync("t", replicas=2)


def test_nothing_is_left():
    assert threading.enumerate() == [threading.main_thread()]
"""


def run_pytest(folder, *options: str) -> str:
    """What pytest prints in a folder without a conftest; it must end well."""
    (folder / "test_mine.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pytest_finds_the_fixtures_by_itself(tmp_path):
    """An entry point brings them: no line in a conftest, no warning, nothing left behind."""
    names = [found.value for found in entry_points(group="pytest11")]
    assert "ottla.testing.fixtures" in names, "the environment is older than pyproject.toml: make"

    assert "8 passed in" in run_pytest(tmp_path, "-p", "no:cacheprovider")


MANY = """
import os
import threading

import pytest

from ottla import Producer


@pytest.mark.parametrize("number", range(20))
def test_it_is_alone(ottla_fresh_broker, number):
    assert ottla_fresh_broker.topics() == []
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        producer.send("t", b"%d" % number).result()
    assert [record.value for record in ottla_fresh_broker.records("t")] == [b"%d" % number]
"""


def test_workers_of_xdist_have_brokers_of_their_own(tmp_path):
    """Two processes at once, each with its tests: they share no port and no topic."""
    pytest.importorskip("xdist", reason="pytest-xdist is missing: make brings it")
    (tmp_path / "test_many.py").write_text(MANY)

    assert "28 passed in" in run_pytest(tmp_path, "-n", "2", "-p", "no:cacheprovider")
