"""Markers in the partitions that a broker leads, and what groups hear of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.coordinator.transaction.marker_sender import TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.errors import ErrorCode
from ottla.log.log_validator import AppendOrigin
from ottla.record.control_record import ControlRecordType, end_of_transaction
from ottla.record.memory_records import batches
from ottla.replication.append_results import ACKS_ALL, PartitionAppendResult
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = TopicPartition("__consumer_offsets", 3)


class Replicas:
    """Takes every batch, at offset 8; `errors` say otherwise."""

    def __init__(self) -> None:
        self.partitions = {}
        self.errors = {}
        self.appended = {}

    def append_records(self, timeout_ms, acks, entries, respond, origin):
        assert (acks, origin) == (ACKS_ALL, AppendOrigin.COORDINATOR)
        self.appended |= entries
        respond(
            {tp: PartitionAppendResult(self.errors.get(tp, ErrorCode.NONE), 8, 8) for tp in entries}
        )


class World:
    """A writer, and what it told."""

    def __init__(self) -> None:
        self.replicas, self.ended, self.results = Replicas(), [], {}
        clock = mock_runtime().clock
        self.writer = MarkerWriter(clock, self.replicas, lambda *end: self.ended.append(end))

    def write(self, *partitions, version=0, is_commit=True):
        marker = TxnMarker(7, 3, is_commit, 5, version)
        self.writer.write(marker, partitions, self.results.update)


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("is_commit", [True, False])
def test_each_partition_gets_the_marker(world, is_commit):
    """With the producer, and the epoch of the coordinator that has decided."""
    world.write(T0, T1, is_commit=is_commit)

    assert world.results == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
    assert list(world.replicas.appended) == [T0, T1]
    (batch,) = batches(world.replicas.appended[T0])
    marker = end_of_transaction(batch)
    assert (batch.producer_id, batch.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert marker.type is (ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT)
    assert world.ended == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_groups_hear_of_the_end_of_their_offsets_where_it_is_in_the_log(world, is_commit):
    """With the offset of the marker: it ends only what stands before it."""
    world.write(T0, OFFSETS, is_commit=is_commit)

    assert world.ended == [(3, 8, 7, is_commit)]


def test_groups_hear_nothing_of_a_marker_that_was_refused(world):
    """It will be sent again."""
    world.replicas.errors = {OFFSETS: ErrorCode.NOT_ENOUGH_REPLICAS}
    world.write(OFFSETS)

    assert world.ended == []
    assert world.results == {OFFSETS: ErrorCode.NOT_ENOUGH_REPLICAS}


@pytest.mark.parametrize("version", [1, 2])
def test_late_marker_is_refused_where_the_next_transaction_is_open(world, version):
    """Only with an epoch for each transaction can it be told that it is late."""
    world.replicas.partitions = {
        T0: SimpleNamespace(has_open_txn=lambda producer_id, epoch: (producer_id, epoch) == (7, 3)),
        T1: SimpleNamespace(has_open_txn=lambda producer_id, epoch: False),
    }
    world.write(T0, T1, version=version)

    refused = ErrorCode.INVALID_PRODUCER_EPOCH if version == 2 else ErrorCode.NONE
    assert world.results == {T0: refused, T1: ErrorCode.NONE}
    assert list(world.replicas.appended) == ([T1] if version == 2 else [T0, T1])
