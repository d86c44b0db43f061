"""Offsets that leaders tell: which version is asked, and where logs are taken to part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.topic_offsets import (
    EpochQuestion,
    ListOffsetsResult,
    OffsetSpec,
    Parting,
    epoch_ends,
    list_offsets,
    parting_before,
    parting_of,
)
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import DivergingEpoch
from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.runtime.timing import Deadline
from ottla.structs import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from mock_kafka import MockCluster

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
LATEST = {FIRST: int(OffsetSpec.LATEST)}
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class LeaderWorld:
    """A client that knows the cluster, and a broker 0 that tells offset 7 of all partitions."""

    def __init__(self, runtime, cluster: MockCluster) -> None:
        self.runtime, self.cluster = runtime, cluster
        config = AdminConfig.parse({"bootstrap.servers": cluster.bootstrap_servers})
        self.client = NetworkClient(runtime, config)
        self.metadata = Metadata(self.client, allow_auto_topic_creation=False)
        self.metadata.want(["pages", "missing"])
        runtime.scheduler.run(self.metadata.update(Deadline(runtime.clock, 1000)))
        cluster[0].on(ListOffsetsRequest, self.answer)

    def answer(self, request, version) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = [
                ListOffsetsPartitionResponse(
                    partition_index=p.partition_index,
                    offset=7,
                    timestamp=9,
                    leader_epoch=3 if version > 3 else -1,
                )
                for p in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def list(self, timestamps, *options):
        call = list_offsets(self.client, self.metadata, timestamps, *options)
        return self.runtime.scheduler.run(call)


@pytest.fixture
def world(runtime, cluster) -> LeaderWorld:
    cluster.epochs["pages", 0] = 3
    return LeaderWorld(runtime, cluster)


@pytest.mark.parametrize(
    ("isolation", "timestamp", "lowest"),
    [
        (UNCOMMITTED, OffsetSpec.LATEST, 1),
        (COMMITTED, OffsetSpec.LATEST, 2),
        (UNCOMMITTED, OffsetSpec.MAX_TIMESTAMP, 7),
        (COMMITTED, OffsetSpec.MAX_TIMESTAMP, 7),
    ],
)
def test_question_needs_a_version_that_has_it(world, cluster, isolation, timestamp, lowest):
    """An older broker would answer another one."""
    cluster[0].versions[ListOffsetsRequest.api_key] = (1, lowest)
    wanted = {FIRST: int(timestamp)}
    assert world.list(wanted, isolation) == {
        FIRST: ListOffsetsResult(7, 9, 3 if lowest > 3 else -1)
    }
    (request,) = cluster[0].sent(ListOffsetsRequest)
    assert request.isolation_level == (isolation if lowest > 1 else UNCOMMITTED)
    assert request.topics == [
        ListOffsetsTopic(
            name="pages",
            partitions=[
                ListOffsetsPartition(
                    partition_index=0,
                    current_leader_epoch=3 if lowest > 3 else -1,
                    timestamp=timestamp,
                )
            ],
        )
    ]
    if lowest > 1:
        cluster[0].versions[ListOffsetsRequest.api_key] = (1, lowest - 1)
        world.client.disconnect()
        found = world.list(wanted, isolation)
        assert found[FIRST].error is ErrorCode.UNSUPPORTED_VERSION


def test_partition_that_nobody_leads_has_an_error_of_its_own(runtime, cluster):
    """The others are asked for; each error says what is missing."""
    cluster.leaders["pages", 1] = -1
    world = LeaderWorld(runtime, cluster)
    missing, beyond = TopicPartition("missing", 0), TopicPartition("pages", 5)
    found = world.list(dict.fromkeys([FIRST, SECOND, missing, beyond], -1))

    assert found.pop(FIRST).offset == 7
    assert {where: (each.error, each.message) for where, each in found.items()} == {
        SECOND: (ErrorCode.LEADER_NOT_AVAILABLE, "partition pages-1 has no leader"),
        missing: (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic missing: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence}",
        ),
        beyond: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition pages-5"),
    }


def test_refusal_of_one_partition_is_its_own(world, cluster):
    """The other one has its offset."""

    def refuse(request, version):
        response = world.answer(request, version)
        response.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    cluster[0].on(ListOffsetsRequest, refuse)
    found = world.list(dict.fromkeys([FIRST, SECOND], -1))

    assert found[SECOND].offset == 7
    assert isinstance(found[FIRST], KafkaError)
    assert "offsets of pages-0" in found[FIRST].message


def test_leader_is_asked_where_epochs_end(world, cluster):
    """Partition by partition; brokers allow readers that from version 3 on."""
    rows = [
        EpochEndOffset(partition=0, leader_epoch=2, end_offset=4),
        EpochEndOffset(partition=1, error_code=ErrorCode.FENCED_LEADER_EPOCH),
    ]
    response = OffsetForLeaderTopicResult(topic="pages", partitions=rows)
    cluster[0].on(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse(topics=[response]))
    questions = {FIRST: EpochQuestion(2, 3), SECOND: EpochQuestion(1, 5)}
    found = world.runtime.scheduler.run(epoch_ends(world.client, 0, questions))
    (request,) = cluster[0].sent(OffsetForLeaderEpochRequest)

    assert request.topics[0].topic == "pages"
    assert request.topics[0].partitions == [
        OffsetForLeaderPartition(partition=0, current_leader_epoch=3, leader_epoch=2),
        OffsetForLeaderPartition(partition=1, current_leader_epoch=5, leader_epoch=1),
    ]
    assert found[FIRST] == rows[0]
    assert found[SECOND].error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("epoch", "end", "found"),
    [
        (3, 6, None),
        (3, 5, None),
        (3, 4, Parting(4, 3)),
        (0, 0, Parting(0, 0)),
        (-1, 9, Parting(None, -1)),
        (3, -1, Parting(None, -1)),
        (-1, -1, Parting(None, -1)),
    ],
)
def test_logs_part_where_the_epoch_ends_before_the_position(epoch, end, found):
    """The place is unknown if the leader does not know the epoch."""
    assert parting_before(5, EpochEndOffset(leader_epoch=epoch, end_offset=end)) == found


def test_divergence_that_a_fetch_tells_may_have_no_place():
    """Then the leader does not know the epoch either."""
    assert parting_of(DivergingEpoch(epoch=2, end_offset=4)) == Parting(4, 2)
    assert parting_of(DivergingEpoch(epoch=-1, end_offset=-1)) == Parting(None, -1)
