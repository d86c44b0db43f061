"""The newest records of a few partitions."""

from __future__ import annotations

from lag_world import LagWorld

from ottla.console import newest_records as room
from ottla.console.newest_records import newest_records
from ottla.structs import TopicPartition


def test_newest_records_of_each_partition_in_order(world: LagWorld, monkeypatch):
    """At most so many of each; a partition that is not there has none."""
    monkeypatch.setattr(room, "NEWEST", 3)
    one, other = world.add_topic("newest", 2)
    for number in range(5):
        world.write(one, 1, b"%d" % number)
    world.write(other, 1, b"x")

    found = world.run(newest_records(world.cluster, [one, other]))
    assert [(each, bytes(record.value)) for each, record in found] == [
        *[(one, b"%d" % number) for number in (2, 3, 4)],
        (other, b"x"),
    ]
    assert world.run(newest_records(world.cluster, [])) == []
    assert world.run(newest_records(world.cluster, [TopicPartition("gone", 0)])) == []
