"""Where records go."""

from __future__ import annotations

import pytest

from ottla.clients.producer.partitioner import StickyPartition, partition_for_key
from ottla.record.murmur import murmur2


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
