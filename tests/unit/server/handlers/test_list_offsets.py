"""ListOffsets: places and times, in the words of each version; and the times of a commit."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from apis_world import Context
from produce_world import PARTITION, ProduceWorld

from ottla.errors import ErrorCode
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.message import encode
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.record.batch_builder import build_batch
from ottla.replication.replica_requests import OffsetResult
from ottla.runtime import Slices
from ottla.server.handlers.list_offsets import ListOffsetsHandler
from ottla.server.handlers.offsets import OffsetHandlers
from ottla.structs import IsolationLevel, TopicPartition

LATEST, EARLIEST, MAX_TIME, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


class Replicas:
    """It notes what is looked up, and finds offset 6 at time 5 in epoch 7, or fails."""

    def __init__(self):
        self.asked = []
        self.error = ErrorCode.NONE

    def fetch_offset(self, *asked):
        self.asked.append(asked)
        yield from ()
        return OffsetResult(self.error, 5, 6, 7)


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


def look_up(replicas, *timestamps, version=11, indexes=None, **fields):
    """The lines of the answer for partitions of topic t."""
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
        for index, timestamp in zip(indexes or range(99), timestamps, strict=False)
    ]
    body = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if version >= 2 else 0,
        topics=[ListOffsetsTopic(name="t", partitions=partitions)],
    )
    answer = ListOffsetsHandler(replicas, Slices()).handle_list_offsets(Context(version), body)
    assert encode(answer, version)
    (topic,) = answer.topics
    assert topic.name == "t"
    return topic.partitions


def test_time_is_looked_up_with_what_the_reader_knows(replicas):
    """Its isolation level, and the leader epoch that fences it."""
    (line,) = look_up(replicas, 123, current_leader_epoch=4)

    assert (line.error_code, line.timestamp, line.offset, line.leader_epoch) == (0, 5, 6, 7)
    committed = IsolationLevel.READ_COMMITTED
    assert replicas.asked == [(TopicPartition("t", 0), 123, committed, 4, -1)]
    look_up(replicas, LATEST, version=1)
    assert replicas.asked[-1][2] is IsolationLevel.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIME, 7), (LOCAL, 8), (TIERED, 9), (PENDING, 11), (-7, 99)],
)
@pytest.mark.parametrize("version", range(1, 12))
def test_place_is_known_from_a_version_on(replicas, timestamp, first_version, version):
    """The earliest local offset is the earliest."""
    (line,) = look_up(replicas, timestamp, version=version)
    if version < first_version:
        assert line.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert replicas.asked == []
    else:
        assert line.error_code == 0
        wanted = EARLIEST if timestamp == LOCAL else timestamp
        assert [asked[1] for asked in replicas.asked] == [wanted]


@pytest.mark.parametrize(("version", "epoch"), [(3, -1), (4, 7)])
def test_epoch_is_told_where_there_is_a_place(replicas, version, epoch):
    """Since version 4."""
    assert look_up(replicas, LATEST, version=version)[0].leader_epoch == epoch


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (4, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE),
        (4, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_error_is_one_that_the_reader_knows(replicas, version, error, told):
    """An older one asks again for another reason (KIP-207)."""
    replicas.error = error

    assert look_up(replicas, LATEST, version=version)[0].error_code == told


def test_partition_that_is_named_twice_is_refused(replicas):
    """It is not clear which time counts; the others are looked up."""
    lines = look_up(replicas, LATEST, 5, LATEST, indexes=(0, 0, 1))

    assert [line.error_code for line in lines] == [ErrorCode.INVALID_REQUEST] * 2 + [0]
    assert len(replicas.asked) == 1


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(LATEST, 1), (EARLIEST, 0), (LOCAL, 0), (TIERED, -1), (PENDING, -1), (2, -1)],
)
def test_place_is_told_by_the_leader_alone(timestamp, offset):
    """Also that nothing is in another tier: another broker does not know whether that is so."""
    world = ProduceWorld()
    assert world.error(build_batch([(1, b"k", b"v", ())])) is ErrorCode.NONE

    def found(index=PARTITION.partition, epoch=-1):
        (line,) = look_up(world.manager, timestamp, indexes=(index,), current_leader_epoch=epoch)
        return ErrorCode(line.error_code), line.offset

    assert found() == (ErrorCode.NONE, offset)
    assert found(9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert found(epoch=99) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    world.lead(leader=9, epoch=2)
    assert found() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_version_0_lists_where_segments_begin():
    """Of a partition that is led here."""
    world = ProduceWorld()
    assert world.error(build_batch([(1, b"k", b"v", ())])) is ErrorCode.NONE

    def found(index=PARTITION.partition):
        (line,) = look_up(world.manager, LATEST, version=0, indexes=(index,), max_num_offsets=10)
        return line.error_code, line.old_style_offsets

    assert found() == (0, [1, 0])
    assert found(9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    world.lead(leader=9, epoch=2)
    assert found() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


# What a commit says of times and of its member


class Coordinator:
    """It notes what is committed and who looks offsets up."""

    def commit_offsets(self, group_id, committer, offsets, respond):
        self.committer, self.offsets = committer, offsets


@pytest.mark.parametrize(
    ("timestamp", "retention", "committed", "expires"),
    [(-1, -1, 50, None), (0, -1, 0, None), (7, 0, 7, 50), (7, 10, 7, 60)],
)
def test_commit_has_the_times_that_it_says(timestamp, retention, committed, expires):
    """A time of its own, and one from which on it does not count, where old requests say so."""
    coordinator = Coordinator()
    clock = SimpleNamespace(now_ms=lambda: 50)
    handlers = OffsetHandlers(coordinator, clock, lambda tp: UUID(int=1), {}.get, None, Slices())
    partition = OffsetCommitRequestPartition(commit_timestamp=timestamp, committed_offset=3)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    body = OffsetCommitRequest(group_id="g", topics=topics, retention_time_ms=retention)
    handlers.handle_offset_commit(Context(2), body)
    (found,) = coordinator.offsets.values()

    assert (found.commit_timestamp_ms, found.expire_timestamp_ms) == (committed, expires)


@pytest.mark.parametrize(("version", "knows"), [(8, False), (9, True)])
def test_member_knows_its_epoch_since_version_9(version, knows):
    """Before, its generation is that of a classic group (KIP-848)."""
    coordinator = Coordinator()
    clock = SimpleNamespace(now_ms=lambda: 50)
    handlers = OffsetHandlers(coordinator, clock, lambda tp: UUID(int=1), {}.get, None, Slices())
    topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
    body = OffsetCommitRequest(group_id="g", topics=topics)
    handlers.handle_offset_commit(Context(version), body)

    assert coordinator.committer.knows_epochs is knows
