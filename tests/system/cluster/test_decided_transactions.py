"""Transactions whose coordinator dies between their decision and their markers."""

from __future__ import annotations

from cluster_load import LIMIT_S, read_numbers
from one_transaction import OneTransaction

from ottla.testing import wait_until

COMMITTED = {"isolation.level": "read_committed"}


def test_successor_writes_the_markers_of_what_is_decided(cluster, view, unique):
    """The log that is to have the marker is away, and then so is who decided it."""
    transaction = OneTransaction(cluster, view, unique("decided"))
    cluster.kill_broker(transaction.leader)
    wait_until(lambda: view.leaders(transaction.name) == {0: -1}, "the log is away")
    transaction.producer.commit_transaction(LIMIT_S)
    transaction.kill_coordinator()
    cluster.start_broker(transaction.leader)
    wait_until(lambda: transaction.stable_offset == 2, "the marker is written")

    assert transaction.first_coordinator not in cluster.live_brokers
    assert read_numbers(cluster.bootstrap_servers, transaction.name, 0, 1, **COMMITTED) == [1]
