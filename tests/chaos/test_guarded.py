"""ZooKeeper hangs while users log in, read, write and are refused: all of it stays as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from cluster_load import MANY, SteadyLoad
from guarded import (
    DENIAL,
    PARTITIONS,
    TOPIC,
    PartitionReaders,
    broker_settings,
    login,
    ours,
    prepare,
    rule,
)

import ottla
from ottla.security.acls import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess, ZooKeeperProcess

HANG_S = 30
LIMIT_S = 120


@pytest.fixture
def zookeeper(java, tmp_path) -> Iterator[ZooKeeperProcess]:
    """A server of its own, which may hang."""
    server = ZooKeeperProcess(tmp_path / "zookeeper").start()
    yield server
    server.resume()
    server.stop()


@pytest.fixture
def guarded(zookeeper, certificates, tmp_path) -> Iterator[ClusterProcess]:
    """Brokers 1 to 3 with the topic and the ACLs."""
    settings = broker_settings(certificates) | {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "zookeeper.session.timeout.ms": 6_000,
    }
    cluster = ClusterProcess(
        tmp_path / "brokers", 3, zookeeper=zookeeper, chroot="/guarded", **settings
    ).start()
    prepare(cluster.bootstrap_servers.split(","), certificates)
    yield cluster
    zookeeper.resume()
    cluster.stop()


def is_created(admin: ottla.Admin, binding: AclBinding) -> bool:
    """Whether an ACL was added; a session that ends meanwhile leaves that open."""
    try:
        admin.create_acls([binding])
    except ottla.KafkaError:
        return False
    return True


def test_nothing_is_newly_denied_or_open_while_zookeeper_hangs(guarded, zookeeper, certificates):
    """Alice writes and reads, bob stays denied, mallory too; a change holds when it is over."""
    servers = guarded.bootstrap_servers
    with (
        SteadyLoad(
            servers, TOPIC, PARTITIONS, at_once=MANY, **login("alice", certificates)
        ) as load,
        PartitionReaders(servers, ours("alice", certificates)) as alice,
        PartitionReaders(servers, ours("bob", certificates)) as bob,
        PartitionReaders(servers, ours("mallory", certificates)) as mallory,
        ottla.Admin(servers, ours("admin", certificates)) as admin,
    ):

        def poll_all() -> None:
            for readers in (alice, bob, mallory):
                readers.poll()

        wait_until(lambda: bob.have_read_more([0] * PARTITIONS), "records", meanwhile=bob.poll)
        admin.create_acls([DENIAL])
        wait_until(
            lambda: bob.have_been_refused([0] * PARTITIONS), "the refusals", meanwhile=bob.poll
        )
        readers = list(bob.read)

        zookeeper.pause()
        is_over = threading.Event()
        timer = threading.Timer(HANG_S, is_over.set)
        timer.start()
        # A login needs no ZooKeeper: new clients come and go as well.
        while not is_over.is_set():
            load.until_more(1)
            before = list(alice.read), list(bob.refused), list(mallory.refused)
            wait_until(
                lambda before=before: (
                    alice.have_read_more(before[0])
                    and bob.have_been_refused(before[1])
                    and mallory.have_been_refused(before[2])
                ),
                "everybody is told",
                LIMIT_S,
                meanwhile=poll_all,
            )
            with (
                ottla.Producer(servers, ours("mallory", certificates)) as producer,
                pytest.raises(ottla.KafkaError, match="TOPIC_AUTHORIZATION_FAILED"),
            ):
                producer.send(TOPIC, b"-1").result(LIMIT_S)
        assert (alice.refused, bob.read, mallory.read) == ([0] * 3, readers, [0] * 3)

        timer.join()
        zookeeper.resume()
        load.until_more()
        denial = rule("alice", AclOperation.READ, AclPermissionType.DENY)
        wait_until(lambda: is_created(admin, denial), "brokers have sessions again", LIMIT_S)
        wait_until(
            lambda: alice.have_been_refused([0] * PARTITIONS),
            "a denial after the hang",
            LIMIT_S,
            meanwhile=alice.poll,
        )
        assert bob.read == readers
        admin.delete_acls([AclBindingFilter(*(denial.pattern + denial.entry))])
    load.check()
