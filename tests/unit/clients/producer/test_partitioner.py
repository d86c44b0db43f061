"""Where records go."""

from __future__ import annotations

import pytest

from ottla.clients.metadata import Cluster, PartitionInfo, TopicInfo
from ottla.clients.producer.partitioner import CustomPartitioner, StickyPartition, partition_for_key
from ottla.clients.producer.producer import Producer
from ottla.errors import ConfigError, KafkaError
from ottla.record.murmur import murmur2
from ottla.structs import NO_UUID

LED = PartitionInfo("t", 0, 1, 0, (1,), (1,), ())
UNLED = PartitionInfo("t", 1, -1, 0, (1,), (), (1,))
CLUSTER = Cluster(topics={"t": TopicInfo("t", NO_UUID, False, {0: LED, 1: UNLED})})
RECORD = ("t", "key", b"key", 5, b"5")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_the_java_client(key, expected):
    """Known answers as signed 32-bit numbers, for every length modulo four."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_key_decides_the_partition():
    """The hash is made positive by clearing its sign, as in Java, before the remainder."""
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert partition_for_key(b"21", 10) == partition_for_key(b"21", 10)


def test_sticky_partition_moves_to_another_one():
    """A move never stays where it is while there is a choice."""
    sticky = StickyPartition(lambda n: 0)

    assert [sticky.move([0, 1, 2], [0, 1, 2]) for _ in range(3)] == [0, 1, 0]


def test_sticky_partition_prefers_partitions_with_a_leader():
    """A partition without a leader is taken only if no partition has one."""
    sticky = StickyPartition(lambda n: n - 1)

    assert sticky.move([0, 1, 2], [1]) == 1
    assert sticky.move([0, 1, 2], []) == 2
    assert StickyPartition(lambda n: 0).move([0], [0]) == 0


class ByValue:
    """Kafka's interface: what it was told, and the last partition that has a leader."""

    def __init__(self):
        self.calls = []

    def configure(self, settings):
        self.calls.append(settings["linger.ms"])

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        self.calls.append((topic, key, key_bytes, value, value_bytes))
        assert cluster.partition_count_for_topic(topic) == 2
        assert cluster.partitions_for_topic(topic) == [LED, UNLED]
        assert cluster.partition_count_for_topic("none") == 0
        return cluster.available_partitions_for_topic(topic)[-1].partition

    def close(self):
        self.calls.append("closed")


def test_partitioner_of_kafkas_interface_is_configured_asked_and_closed():
    """It sees key and value as they were given and as bytes, and the cluster."""
    partitioner = ByValue()
    custom = CustomPartitioner(partitioner, {"linger.ms": 5})

    assert custom.choose(RECORD, CLUSTER) == 0
    custom.close()
    assert partitioner.calls == [5, RECORD, "closed"]
    assert CustomPartitioner(ByValue, {"linger.ms": 5}).choose(RECORD, CLUSTER) == 0


def test_function_is_a_partitioner():
    """It gets the serialized record, all partitions, and those with a leader."""
    custom = CustomPartitioner(lambda *arguments: len(arguments[-2]) - arguments[-1][0] - 1, {})

    assert custom.choose(RECORD, CLUSTER) == 1


class Wrong:
    def partition(self, key, num_partitions):
        return 0


class Demanding:
    def __init__(self, path):
        self.path = path


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        (Wrong, "partition must take (topic, key, key_bytes, value, value_bytes, cluster)"),
        (lambda key: 0, "the function must take (topic, key, value, partitions, available)"),
        (Demanding, "must be made without arguments"),
        (7, "must be a callable or have partition()"),
    ],
)
def test_wrong_partitioner_is_refused_when_the_producer_is_made(setting, rule):
    """It failed with the first record, in the middle of a program."""
    with pytest.raises(ConfigError) as caught:
        Producer("127.0.0.1:1", partitioner_class=setting)

    assert "partitioner.class=" in str(caught.value)
    assert rule in str(caught.value)


def test_partitioner_that_gives_no_number_is_named():
    """None would have meant that a partition is to be chosen."""
    custom = CustomPartitioner(lambda *arguments: None, {})

    with pytest.raises(KafkaError, match="gave None for a record of topic t"):
        custom.choose(RECORD, CLUSTER)
