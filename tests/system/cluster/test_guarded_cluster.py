"""Three brokers that log in to each other over TLS, with an authorizer, under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_load import SteadyLoad
from guarded import (
    DENIAL,
    NO_DENIAL,
    PARTITIONS,
    TOPIC,
    PartitionReaders,
    broker_settings,
    login,
    ours,
    prepare,
)

import ottla
from ottla.testing import InProcessCluster, wait_until

LIMIT_S = 60


@pytest.fixture
def guarded(certificates) -> Iterator[InProcessCluster]:
    """Brokers 1 to 3 with the topic and the ACLs."""
    with InProcessCluster(3, **broker_settings(certificates)) as cluster:
        prepare(servers(cluster).split(","), certificates)
        yield cluster


def servers(cluster: InProcessCluster) -> str:
    """Where its living brokers listen; the certificate names localhost."""
    return ",".join(f"localhost:{cluster.ports[each]}" for each in cluster.live_brokers)


def admin_of(cluster: InProcessCluster, certificates) -> ottla.Admin:
    return ottla.Admin(servers(cluster), ours("admin", certificates))


def test_denial_stops_consumers_of_all_brokers(guarded, certificates):
    """While they read; once it is taken away, they read on where they were."""
    alice = login("alice", certificates)
    with (
        SteadyLoad(servers(guarded), TOPIC, PARTITIONS, **alice) as load,
        PartitionReaders(servers(guarded), ours("bob", certificates)) as bob,
        admin_of(guarded, certificates) as admin,
    ):
        leaders = admin.describe_topics([TOPIC])[TOPIC].partitions
        assert {each.leader for each in leaders} == {1, 2, 3}
        wait_until(lambda: bob.have_read_more([0] * PARTITIONS), "records", meanwhile=bob.poll)

        admin.create_acls([DENIAL])
        wait_until(
            lambda: bob.have_been_refused([0] * PARTITIONS), "the refusals", meanwhile=bob.poll
        )
        read, refused = list(bob.read), list(bob.refused)
        load.until_more()
        wait_until(lambda: bob.have_been_refused(refused), "more refusals", meanwhile=bob.poll)
        assert bob.read == read

        admin.delete_acls([NO_DENIAL])
        wait_until(lambda: bob.have_read_more(read), "records again", meanwhile=bob.poll)
    load.check()


@pytest.mark.wide
def test_nothing_is_lost_when_brokers_die(guarded, certificates):
    """One after the other; who has no right has none at a broker that has just come back."""
    alice = login("alice", certificates)
    mallory = ours("mallory", certificates)
    with SteadyLoad(servers(guarded), TOPIC, PARTITIONS, **alice) as load:
        for broker_id in (1, 2, 3):
            load.until_more()
            guarded.kill_broker(broker_id)
            load.until_more()
            guarded.start_broker(broker_id)
            guarded.wait_until_in_sync(TOPIC)
            with (
                ottla.Producer(f"localhost:{guarded.ports[broker_id]}", mallory) as producer,
                pytest.raises(ottla.KafkaError, match="TOPIC_AUTHORIZATION_FAILED"),
            ):
                producer.send(TOPIC, b"-1").result(LIMIT_S)
    load.check()
