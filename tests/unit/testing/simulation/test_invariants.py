"""What the watcher of a simulated cluster takes for a broken promise, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.registry.node_tree import NodeTree
from ottla.structs import TopicPartition
from ottla.testing.simulation.invariants import Watcher

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def watcher():
    zookeeper = SimpleNamespace(tree=NodeTree())
    cluster = SimpleNamespace(hosts=[], world=SimpleNamespace(now_ms=0), zookeeper=zookeeper)
    return Watcher(cluster, SimpleNamespace(violations=[]))


class Leader(SimpleNamespace):
    """A partition: each is itself only, as the real ones are."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def leading(watcher, broker_id, epoch, end):
    """A broker that leads; its end is committed as soon as somebody has looked."""
    partition = Leader(
        topic_partition=PARTITION,
        topic_id=UUID(int=1),
        is_leader=True,
        leader_epoch=epoch,
        high_watermark=end,
        log=SimpleNamespace(log_end_offset=end),
    )
    manager = SimpleNamespace(partitions={PARTITION: partition})
    broker = SimpleNamespace(replica_manager=manager)
    host = SimpleNamespace(broker_id=broker_id, broker=broker, is_running=True, forgotten=[])
    watcher.cluster.hosts[:] = [host]
    watcher.look()
    return partition


def test_successor_without_what_was_committed_is_noticed(watcher):
    """The records between both ends were acknowledged, and nobody has them any more."""
    leading(watcher, 3, epoch=2, end=168)

    leading(watcher, 1, epoch=3, end=107)

    assert watcher.history.violations


def test_watermark_from_before_a_power_loss_is_no_new_promise(watcher):
    """A leader came back with its checkpoint; what others had not flushed may still be gone."""
    leading(watcher, 3, epoch=2, end=168)
    watcher.admit_losses({PARTITION: 107})

    leading(watcher, 3, epoch=3, end=129)
    leading(watcher, 1, epoch=4, end=107)

    assert watcher.history.violations == []


def test_what_is_committed_after_a_power_loss_must_stay(watcher):
    """Whoever came back and went on has promised what it had, as well as what is new."""
    leading(watcher, 3, epoch=2, end=168)
    watcher.admit_losses({PARTITION: 107})

    leading(watcher, 3, epoch=3, end=129).high_watermark = 130
    watcher.look()
    leading(watcher, 1, epoch=4, end=107)

    assert watcher.history.violations


def test_watermark_that_falls_in_an_epoch_is_noticed(watcher):
    """A leader that was well each time that somebody looked has lost what it had committed."""
    leader = leading(watcher, 3, epoch=2, end=168)
    watcher.look()
    assert watcher.history.violations == []

    leader.high_watermark = 107
    watcher.look()

    assert "fell from 168 to 107" in watcher.history.violations[0]


def test_second_leader_of_an_epoch_is_noticed(watcher):
    """It has all records, and the first was looked at more than once."""
    leading(watcher, 3, epoch=2, end=168)
    watcher.look()

    leading(watcher, 1, epoch=2, end=168)

    assert "brokers 3 and 1 lead in epoch 2" in watcher.history.violations[0]
