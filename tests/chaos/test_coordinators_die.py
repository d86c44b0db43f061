"""Coordinators die in the middle of what they coordinate."""

from __future__ import annotations

import pytest
from cluster_load import LIMIT_S, MANY, ClusterView, SteadyLoad, read_numbers
from confluent_kafka import KafkaException
from coordinator_places import OFFSETS, coordinator
from live_group import LiveGroup, all_read, wait_for_another
from one_transaction import OneTransaction

from ottla import Admin
from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess

COMMITTED = {"isolation.level": "read_committed"}
PARTITIONS = 4
REBALANCING = ("PreparingRebalance", "Reconciling")


@pytest.fixture
def cluster(java, tmp_path):
    """Three brokers that look often for transactions whose time is over."""
    setting = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    cluster = ClusterProcess(tmp_path / "cluster", **setting).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def view(cluster):
    """What a client's metadata say."""
    return ClusterView(cluster.bootstrap_servers)


def test_successor_aborts_what_takes_too_long(cluster, view, unique):
    """Whoever was to end it is silent, and so is who was to abort it."""
    timeout = {"transaction.timeout.ms": 2_000}
    transaction = OneTransaction(cluster, view, unique("silent"), **timeout)
    transaction.kill_coordinator()
    wait_until(lambda: transaction.stable_offset == 2, "the transaction is aborted")

    with pytest.raises(KafkaException):
        transaction.producer.commit_transaction(LIMIT_S)
    assert read_numbers(cluster.bootstrap_servers, transaction.name, 0, 0, **COMMITTED) == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_goes_on_with_another_coordinator(cluster, view, unique, protocol):
    """It dies while it waits for a member that does not come: the next one waits for it."""
    topic, group = unique("numbers"), unique("group")
    view.create(topic, PARTITIONS)
    with (
        SteadyLoad(cluster.bootstrap_servers, topic, PARTITIONS, at_once=MANY) as load,
        LiveGroup(view, group, topic, protocol) as members,
    ):
        first = members.join()
        members.until_shared()
        members.until_more()
        assert first.commit()
        second = members.join()
        # The first one's library joins by itself, but only when it is polled.
        with Admin(cluster.bootstrap_servers) as admin:
            wait_until(
                lambda: second.poll() or is_rebalancing(admin, group), "the rebalance has begun"
            )
        dead = coordinator(view, OFFSETS, group)
        cluster.kill_broker(dead)
        wait_for_another(view, group, dead)
        members.until_shared()
        members.until_more()
        load.end()
        members.poll_until(lambda: all_read(members, load), "all is read")
        members.poll_until(lambda: all(m.commit() for m in members.members), "all is committed")


def is_rebalancing(admin, group) -> bool:
    return admin.describe_groups([group])[group].state in REBALANCING
