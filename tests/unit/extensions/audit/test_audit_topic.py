"""Where audit records are written: here or elsewhere, in a topic that is made if need be."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.audit.audit_topic import AuditTopic
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_IDS,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.record.memory_records import batches
from ottla.replication.append_results import PartitionAppendResult
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import mock_runtime

VALUES = [b"one", b"two"]


class World:
    """The topic has partitions with these leaders; broker 1 is under test."""

    def __init__(self, *leaders, led_here=(), in_cluster=True):
        self.runtime = mock_runtime()
        self.cache = MetadataCache("cluster")
        self.leaders = leaders
        self.created, self.appended, self.asked, self.turns = [], [], [], 0
        self.error = ErrorCode.NONE
        self.failure = None
        self.partitions = {
            TopicPartition("audit", index): SimpleNamespace(is_leader=index in led_here)
            for index in range(len(leaders))
        }
        self.topic = AuditTopic(
            "audit", self.runtime, self, self.cache, self.create, self if in_cluster else None
        )
        self.make_topic()

    def make_topic(self):
        states = [
            PartitionState(
                TopicPartition("audit", index), UUID(int=5), 1, LeaderAndIsr(each, 0, (each,)), ()
            )
            for index, each in enumerate(self.leaders)
        ]
        self.cache.update(states, [])

    async def create(self, name):
        self.created.append(name)
        self.leaders = (1,)
        self.partitions = {TopicPartition("audit", 0): SimpleNamespace(is_leader=True)}
        self.make_topic()

    def append_records(self, timeout_ms, acks, records, respond):
        ((partition, data),) = records.items()
        self.appended.append((partition, acks, values(data)))
        respond({partition: PartitionAppendResult(self.error)})
        respond({partition: PartitionAppendResult(self.error)})

    def complete_delayed(self):
        self.turns += 1

    def node(self, broker_id):
        return broker_id

    async def ask(self, node, purpose, request, *, high):
        if self.failure is not None:
            raise self.failure
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert high == FIRST_VERSION_WITH_IDS - 1  # it names the topic
        self.asked.append((node, topic.name, partition.index, request.acks))
        assert values(partition.records) == VALUES
        line = PartitionProduceResponse(index=partition.index, error_code=int(self.error))
        answer = TopicProduceResponse(name=topic.name, partition_responses=[line])
        return ProduceResponse(responses=[answer])

    def write(self):
        self.runtime.scheduler.run(self.topic.write(VALUES))


def values(data):
    """The values of the records in a batch."""
    return [record.value for batch in batches(data) for record in batch.records()]


def test_records_are_appended_where_this_broker_leads():
    """Readers that wait for them are served in the same turn."""
    world = World(2, 1, led_here={1})
    world.write()

    assert world.appended == [(TopicPartition("audit", 1), -1, VALUES)]
    assert (world.asked, world.created, world.turns) == ([], [], 1)


def test_topic_is_made_where_it_is_missing():
    """A missing audit topic is made, and written to at once."""
    world = World()
    world.write()

    assert world.created == ["audit"]
    assert [partition for partition, _, _ in world.appended] == [TopicPartition("audit", 0)]


def test_records_are_sent_to_a_leader_elsewhere():
    """One without a leader is none."""
    world = World(-1, 3)
    world.write()

    assert world.asked == [(3, "audit", 1, -1)]
    assert world.appended == []


@pytest.mark.parametrize(
    ("world", "is_here"),
    [(World(1, led_here={0}), True), (World(2), False)],
    ids=["here", "elsewhere"],
)
def test_refusal_is_an_error(world, is_here):
    """The records are written again, or lost, as the error says."""
    world.error = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError, match="did not take audit records") as caught:
        world.write()

    assert caught.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (len(world.appended), len(world.asked)) == (int(is_here), int(not is_here))


@pytest.mark.parametrize(
    "world", [World(-1), World(2, in_cluster=False)], ids=["no leader", "no way to it"]
)
def test_topic_that_nobody_leads_is_an_error(world):
    """It passes with time."""
    with pytest.raises(KafkaError) as caught:
        world.write()

    assert caught.value.error is ErrorCode.LEADER_NOT_AVAILABLE


def test_network_that_fails_is_an_error_that_passes():
    """The leader may be back soon."""
    world = World(2)
    world.failure = OSError(111, "Connection refused")
    with pytest.raises(KafkaError) as caught:
        world.write()

    assert caught.value.error is ErrorCode.NETWORK_EXCEPTION
