"""Coordinators are made when they are first needed, and answer between a start and a stop."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.record.batch_builder import build_batch
from ottla.registry.embedded import EmbeddedRegistry
from ottla.server.coordinators import Coordinators, TopicLog
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from ottla.testing import MemoryDisk, mock_runtime

P0, P1, P2 = (TopicPartition(OFFSETS_TOPIC, index) for index in range(3))


class World:
    """A broker's coordinators, each of which notes when it begins and ends to answer."""

    def __init__(self, **settings):
        runtime = mock_runtime()
        self.coordinators = Coordinators(
            runtime,
            BrokerConfig.parse(settings),
            SimpleNamespace(broker_id=1, partitions={}),
            MetadataCache("cluster"),
            EmbeddedRegistry(runtime, "/registry"),
        )


@pytest.fixture
def made(monkeypatch):
    """What each coordinator was told."""
    told = []
    for path, name in (
        ("ottla.coordinator.group.group_coordinator", "GroupCoordinator"),
        ("ottla.coordinator.transaction.transaction_coordinator", "TransactionCoordinator"),
    ):
        for method in ("startup", "shutdown"):
            monkeypatch.setattr(
                f"{path}.{name}.{method}",
                lambda self, name=name, method=method: told.append((name, method)),
            )
    return told


GROUPS, TRANSACTIONS = "GroupCoordinator", "TransactionCoordinator"


def test_coordinator_begins_to_answer_when_it_is_first_needed(made):
    """Of a broker that is about to start, or that has stopped, nobody wants an answer."""
    coordinators = World().coordinators
    groups = coordinators.coordinator(OFFSETS_TOPIC)
    assert made == []
    coordinators.startup()
    assert made == [(GROUPS, "startup")]
    transactions = coordinators.coordinator(TRANSACTIONS_TOPIC)
    assert made.pop() == (TRANSACTIONS, "startup")
    assert (groups, transactions) == (coordinators.groups, coordinators.transactions)
    coordinators.shutdown()

    assert made[1:] == [(TRANSACTIONS, "shutdown"), (GROUPS, "shutdown")]


def test_coordinator_that_is_made_after_the_end_does_not_answer(made):
    """A last request may ask for it."""
    coordinators = World().coordinators
    coordinators.startup()
    coordinators.shutdown()

    assert coordinators.groups is not None
    assert made == []


def test_deleted_topics_are_told_to_groups_that_there_are(monkeypatch):
    """After a full update also those that were deleted while no broker coordinated the groups."""
    coordinators, told = World().coordinators, []
    coordinators.on_topics_deleted(["t"], is_full=True)
    assert "groups" not in vars(coordinators)
    manager = coordinators.groups.manager
    monkeypatch.setattr(manager, "drop_topics", lambda topics: told.append(list(topics)))
    monkeypatch.setattr(manager, "drop_deleted_topics", lambda: told.append("all others"))
    coordinators.on_topics_deleted(["t"], is_full=False)
    assert told == [["t"]]
    coordinators.on_topics_deleted([], is_full=True)

    assert told == [["t"], [], "all others"]


@pytest.mark.parametrize(("protocols", "serves"), [("classic", False), ("classic,consumer", True)])
def test_consumer_groups_are_served_where_the_settings_say_so(protocols, serves):
    """group.coordinator.rebalance.protocols (KIP-848)."""
    coordinators = World(**{"group.coordinator.rebalance.protocols": protocols}).coordinators

    assert coordinators.serves_consumer_protocol is serves


class Log:
    """A log of batches with one record each, which reads a number of them at a time."""

    log_start_offset = 2

    def __init__(self, end, at_once):
        self.log_end_offset, self.at_once = end, at_once
        self.is_cut_at = None
        self.asked = []

    def read(self, offset, size, *, max_offset, min_one_message):
        assert (max_offset, min_one_message) == (self.log_end_offset, True)
        self.asked.append(offset)
        if self.is_cut_at == "missing":
            return SimpleNamespace(records=None)
        offsets = range(offset, min(offset + self.at_once, self.log_end_offset))
        if self.is_cut_at is not None:
            offsets = [each for each in offsets if each < self.is_cut_at]
        data = b"".join(build_batch([(1, b"k", b"v", ())], base_offset=each) for each in offsets)
        file = MemoryDisk().open("/segment", create=True)
        file.pwrite(data, 0)
        return SimpleNamespace(
            records=SimpleNamespace(size=len(data), read=lambda: file.pread(len(data), 0))
        )


def topic_log(log=None):
    """Partition 0 is led here, partition 1 is followed, and partition 2 is elsewhere."""
    partitions = {
        P0: SimpleNamespace(is_leader=True, leader_epoch=4, log=log),
        P1: SimpleNamespace(is_leader=False, leader_epoch=5, log=log),
    }
    replicas = SimpleNamespace(partitions=partitions, partition=partitions.__getitem__)
    return TopicLog(replicas, MetadataCache("c"), OFFSETS_TOPIC, 50, 5_000)


def test_broker_coordinates_what_it_leads():
    """A replica that follows has its groups on another broker."""
    log = topic_log()

    assert [log.is_leader(index) for index in range(3)] == [True, False, False]
    assert log.leader_epoch(0) == 4


@pytest.mark.parametrize(
    ("cut", "asked", "count"),
    [(None, [2, 4, 6], 5), (5, [2, 4, 5], 3), ("missing", [2], 0)],
)
def test_whole_partition_is_read_a_part_at_a_time(cut, asked, count):
    """A log that ends before it should is read to where it ends."""
    log = Log(end=7, at_once=2)
    log.is_cut_at = cut
    found = list(topic_log(log).read(0))

    assert log.asked == asked
    assert sum(map(len, found)) == count * len(build_batch([(1, b"k", b"v", ())]))
