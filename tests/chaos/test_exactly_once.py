"""Copiers of a hundred thousand records while every broker of three and copiers are killed."""

from __future__ import annotations

import random
import time

import pytest
from cluster_load import ClusterView
from copiers import CopyJob

from ottla import Admin
from ottla.testing.processes import ClusterProcess

RECORDS, SIZE, PARTITIONS = 100_000, 750, 9
BROKERS = [1, 2, 3]
LIMIT_S = 240
CLASSIC, CONSUMER = ("confluent", "ottla", "confluent"), ("confluent",) * 3


@pytest.fixture
def cluster(java, tmp_path):
    """Three brokers that let members of groups be dead after a second."""
    settings = {
        "group.min.session.timeout.ms": 1000,
        "group.consumer.heartbeat.interval.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 1000,
        "group.consumer.session.timeout.ms": 4000,
        "group.consumer.min.session.timeout.ms": 4000,
    }
    cluster = ClusterProcess(tmp_path / "cluster", **settings).start()
    yield cluster
    cluster.stop()


@pytest.mark.parametrize(
    ("level", "protocol", "libraries"),
    [(0, "classic", CLASSIC), (2, "classic", CLASSIC), (2, "consumer", CONSUMER)],
    ids=["", "an epoch for each transaction", "the new group protocol"],
)
def test_copy_is_the_input_whoever_is_killed(cluster, seed, level, protocol, libraries):
    """Nothing is lost, nothing is there twice, nobody ever reads what is torn or aborted."""
    start_s = time.monotonic()
    chance = random.Random(f"{seed}-{level}-{protocol}")
    view = ClusterView(cluster.bootstrap_servers)
    if level:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": level})
    with CopyJob(
        view, "source", partitions=PARTITIONS, size=SIZE, protocol=protocol, libraries=libraries
    ) as job:
        job.write(RECORDS // 4)
        for broker_id in chance.sample(BROKERS, len(BROKERS)):
            job.write(RECORDS // 4)
            job.until_copied(job.reader.count + SIZE)
            cluster.kill_broker(broker_id)
            job.kill_any_copier(chance)
            job.until_copied(job.reader.count + SIZE)
            cluster.start_broker(broker_id)
            job.until_all_in_sync(BROKERS)
            job.kill_any_copier(chance)
        job.finish(LIMIT_S)
        seconds = time.monotonic() - start_s
        print(f"{RECORDS} records copied seed={seed} in {seconds:.0f} s: {job.summary()}")

    assert seconds < LIMIT_S
