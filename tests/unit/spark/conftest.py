"""A cluster that exists only as numbers, in the place of the admin client."""

from __future__ import annotations

import pytest

from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.clients.partition_reader import Truncation
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetSpec
from ottla.spark import connections
from ottla.structs import INTERNAL_TOPICS, NO_UUID, TopicPartition


class FakeAdmin:
    """`logs[topic][partition]` is the first offset of the log, and where it ends.

    `told` are the offsets that groups were given, unless there is a `refusal`. `epochs` are those
    of leaders, as far as they tell them; what they have `cut` was read in an older one. `ids` are
    those of topics, where brokers return them.
    """

    def __init__(self):
        self.logs = {}
        self.told = []
        self.refusal = None
        self.epochs = {}
        self.ids = {}
        self.cut = {}

    def log(self, topic, *ranges):
        """Partitions, each from a first offset to an end; timestamps are ten times the offsets."""
        self.logs[topic] = list(ranges)

    def list_topics(self):
        return set(self.logs)

    def describe_topics(self, names):
        return {
            name: TopicDescription(
                name,
                is_internal=name in INTERNAL_TOPICS,
                topic_id=self.ids.get(name, NO_UUID),
                partitions=[TopicPartitionInfo(p, leader=0) for p in range(len(self.logs[name]))],
            )
            for name in names
        }

    def alter_group_offsets(self, group_id, offsets):
        if self.refusal is not None:
            raise self.refusal
        self.told.append((group_id, dict(offsets)))

    def list_offsets(self, timestamps, isolation):
        assert isolation == "read_uncommitted"
        return {where: self.offset(where, time) for where, time in timestamps.items()}

    def offset(self, where, timestamp):
        first, end = self.logs[where.topic][where.partition]
        if timestamp == OffsetSpec.EARLIEST:
            return ListOffsetsResult(first, -1)
        if timestamp == OffsetSpec.LATEST:
            return ListOffsetsResult(end, -1, self.epochs.get(where, -1))
        found = max(first, -(-timestamp // 10))
        return ListOffsetsResult(found if found < end else -1, -1)

    def elect(self, topic, epoch, cut=None):
        """Partition 0 has a leader of this epoch, whose log is another one from `cut` on, or
        who knows where (-1)."""
        where = TopicPartition(topic, 0)
        self.epochs[where] = epoch
        if cut is not None:
            self.cut[where] = cut

    def truncations(self, positions):
        return {
            where: Truncation(at if at >= 0 else None, self.epochs[where])
            for where, at in self.cut.items()
            if where in positions
            and positions[where].epoch < self.epochs[where]
            and at < positions[where].offset
        }


@pytest.fixture
def admin(monkeypatch):
    """The fake stands wherever the source asks for an admin client."""
    fake = FakeAdmin()
    monkeypatch.setattr(connections, "admin", lambda settings: fake)
    monkeypatch.setattr(connections, "partition_reader", lambda settings: fake)
    return fake
