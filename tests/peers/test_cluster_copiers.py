"""The copiers of the Java clients and of franz-go, while each broker of three is killed once."""

from __future__ import annotations

import random

import pytest
from copiers import CopyJob
from peer_program import PeerProgram

from ottla import Admin
from ottla.protocol.features import UpgradeType

RECORDS, SIZE, PARTITIONS = 24_000, 250, 6
FRANZ, JAVA, OLD_JAVA = "franz-go", "java-4.1", "java-3.9"
TOGETHER = (JAVA, FRANZ, OLD_JAVA)


@pytest.fixture
def transaction_version(request, cluster):
    """The level of the feature, for a test alone."""
    name = "transaction.version"
    with Admin(cluster.bootstrap_servers) as admin:
        if request.param:
            admin.update_features({name: request.param})
        yield request.param
        if request.param:
            admin.update_features({name: 0}, UpgradeType.SAFE_DOWNGRADE)


@pytest.mark.parametrize(
    ("transaction_version", "protocol", "libraries"),
    [
        (0, "classic", TOGETHER),
        (2, "classic", TOGETHER),
        (2, "consumer", (JAVA, FRANZ, JAVA)),
        (0, "consumer", (FRANZ, JAVA)),
    ],
    indirect=["transaction_version"],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_copy_is_the_input_though_each_broker_dies(
    cluster, view, unique, transaction_version, protocol, libraries
):
    """Brokers are killed or stopped, and copiers killed: nothing lost, torn or there twice."""
    programs = {name: PeerProgram(name).command("copy") for name in set(libraries)}
    with CopyJob(
        view,
        unique("copied"),
        partitions=PARTITIONS,
        size=SIZE,
        protocol=protocol,
        libraries=libraries,
        programs=programs,
    ) as job:
        job.write(RECORDS // 4)
        for broker_id in random.sample(list(cluster.brokers), len(cluster.brokers)):
            job.write(RECORDS // 4)
            job.until_copied(job.reader.count + SIZE)
            cluster.kill_broker(broker_id)
            job.until_copied(job.reader.count + SIZE)
            cluster.start_broker(broker_id)
            job.until_all_in_sync(list(cluster.brokers))
            job.kill_any_copier()
        stopped = random.choice(list(cluster.brokers))
        assert cluster.stop_broker(stopped) == 0
        job.finish()
        print(job.summary())

    assert all(copier.all("copied") for copier in job.copiers), job.summary()
