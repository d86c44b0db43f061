"""What a group coordinator knows of offsets is what a fresh load of its log gives, after anything.

Commits, commits in transactions, markers, deletions of offsets, groups and topics, and expiry, with
writes that are acknowledged late and in any order, refused, or in the log though not in time.
"""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from breadth import examples
from group_world import MemoryOffsetsLog, World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ottla.coordinator.coordinator_writer import SETTLE_MS, WRITE_AGAIN_MS
from ottla.coordinator.group import topic_drops
from ottla.coordinator.group.group import NOBODY
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.runtime.scheduler import at_once
from ottla.structs import MS_PER_MINUTE, TopicPartition, TxnProducer

GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 1))
PRODUCERS = st.sampled_from([7, 8])
ERRORS = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
)
RETENTION_MINUTES = 10


class OffsetSequences(RuleBasedStateMachine):
    """One coordinator over a log that may hold back, refuse or be late with each write."""

    @initialize()
    def start(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(topic_drops, "OFFSETS_IN_A_STEP", 1)
        log = MemoryOffsetsLog()
        self.world = World(log=log, offsets_retention_minutes=str(RETENTION_MINUTES))
        self.next_offset = 0
        # Producers whose marker was not acknowledged, with how their transactions have ended.
        self.unended: dict[int, bool] = {}
        self.newest_markers: Counter[int] = Counter()
        # The first offset that belongs to the present topic of a name.
        self.born = {"t": 0, "u": 0}

    @property
    def manager(self):
        return self.world.coordinator.manager

    @property
    def owes_tombstones(self) -> bool:
        """Also those of groups that have not had their turn since a topic was deleted."""
        owed = (group.offsets.owed_tombstones for group in self.manager.groups())
        return self.manager.drops.is_under_way or any(owed)

    def value(self) -> CommittedOffset:
        self.next_offset += 1
        return CommittedOffset(
            self.next_offset, commit_timestamp_ms=self.world.runtime.clock.now_ms()
        )

    @rule(group=GROUPS, partitions=st.lists(PARTITIONS, min_size=1, max_size=3, unique=True))
    def commit(self, group: str, partitions: list[TopicPartition]) -> None:
        offsets = {partition: self.value() for partition in partitions}
        self.world.coordinator.commit_offsets(group, NOBODY, offsets, lambda errors: None)

    @rule(group=GROUPS, partition=PARTITIONS, producer_id=PRODUCERS)
    def stage(self, group: str, partition: TopicPartition, producer_id: int) -> None:
        self.world.coordinator.commit_offsets_in_transaction(
            group,
            NOBODY,
            TxnProducer("x", producer_id, 0, 1),
            {partition: self.value()},
            lambda errors: None,
        )

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The marker is sent until it is acknowledged, as the transaction's coordinator does.

        That of an earlier one, which may be acknowledged later, ends nothing that was staged since.
        """
        commit = self.unended.setdefault(producer_id, commit)
        self.newest_markers[producer_id] += 1
        number = self.newest_markers[producer_id]
        header = {"producer_id": producer_id, "producer_epoch": 0}
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
        marker = build_batch(
            [(0, key, value, ())], is_transactional=True, is_control=True, **header
        )

        def on_done(error: ErrorCode, place: int) -> None:
            if not error:
                if number == self.newest_markers[producer_id]:
                    self.unended.pop(producer_id, None)
                manager.end_transaction(0, place, producer_id, commit)

        manager = self.manager
        self.world.log.append(0, marker, on_done)

    @rule(group=GROUPS, partitions=st.lists(PARTITIONS, min_size=1, max_size=3, unique=True))
    def delete_offsets(self, group: str, partitions: list[TopicPartition]) -> None:
        self.world.coordinator.delete_offsets(group, partitions, lambda error, errors: None)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        present = self.manager.group(group)
        if present is not None and not self.manager.availability(group):
            self.manager.delete_group(present, lambda error: None)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and make another one of its name, whose offsets are larger."""
        self.manager.drop_topics({topic})
        self.born[topic] = self.next_offset + 1

    @rule()
    def compare_topics(self) -> None:
        """All topics that there are exist."""
        self.manager.drop_deleted_topics()

    @rule()
    def take_turns(self) -> None:
        """Work in slices goes on, to its end; nobody has to ask for a group."""
        self.world.advance(0)
        for group in self.manager.groups():
            for partition, value in group.offsets.all().items():
                assert value.offset >= self.born[partition.topic]

    @rule(minutes=st.sampled_from([1, RETENTION_MINUTES]))
    def expire(self, minutes: int) -> None:
        self.world.advance(minutes * MS_PER_MINUTE)
        at_once(self.world.coordinator.expire_offsets())

    @rule(error=ERRORS)
    def set_error(self, error: ErrorCode) -> None:
        self.world.log.error = error
        self.world.log.is_replicated = error is not ErrorCode.REQUEST_TIMED_OUT

    @rule()
    def hold(self) -> None:
        self.world.log.hold = True

    @rule(in_order=st.booleans())
    def release(self, in_order: bool) -> None:
        self.world.log.hold = False
        self.world.log.release(in_order)

    @precondition(lambda self: not self.owes_tombstones)
    @rule()
    def move_away_and_back(self) -> None:
        """Only what is in the log is left."""
        self.release(in_order=True)
        self.world.move_away_and_back()

    @rule()
    def settle(self) -> None:
        """When nothing is on its way, memory is what the log says."""
        self.set_error(ErrorCode.NONE)
        self.release(in_order=True)
        for producer_id, commit in list(self.unended.items()):
            self.end_transaction(producer_id, commit)
        self.world.advance(2 * WRITE_AGAIN_MS + SETTLE_MS)
        assert self.manager.differences(0) == []

    @rule(group=GROUPS)
    def look(self, group: str) -> None:
        """Nobody sees an offset of a deleted topic, not even for a moment.

        Its reader would pass over the new topic's first records.
        """
        found = self.manager.group(group)
        for partition, value in [] if found is None else found.offsets.all().items():
            assert value.offset >= self.born[partition.topic]

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.settle()
            self.take_turns()
            self.patch.undo()


TestOffsetSequences = OffsetSequences.TestCase
TestOffsetSequences.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None
)
