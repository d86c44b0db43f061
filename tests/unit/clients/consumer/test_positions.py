"""Where reading begins: committed offsets, resets, and lookups that fail or come too late."""

from __future__ import annotations

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import Later, MockCluster

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.offsets import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.structs import TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)


def listed(error: int, *partitions: int) -> ListOffsetsResponse:
    rows = [ListOffsetsPartitionResponse(partition_index=p, error_code=error) for p in partitions]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="pages", partitions=rows)])


@pytest.fixture
def two(runtime) -> MockCluster:
    """Broker 0 leads partition 0 and coordinates the groups; broker 1 leads partition 1."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    return cluster


def test_committed_offset_is_asked_of_the_coordinator_that_is_there(runtime, two):
    """One that says that it is none any more is asked no more."""
    world = ConsumerWorld(runtime, two, group_id="g")
    world.committed[FIRST] = 1
    world.write("a", "b")

    def move(request, version):
        two.coordinator = 1
        group = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
        return OffsetFetchResponse(groups=[group])

    two[0].on(OffsetFetchRequest, move)
    world.assign(0)

    assert world.values(5000) == ["b"]
    assert len(two[0].sent(OffsetFetchRequest)) == 1


def test_offset_is_asked_of_the_leader_that_is_there(runtime, two):
    """The metadata are fetched again where one says that it does not lead any more."""
    world = ConsumerWorld(runtime, two)
    world.write("a")

    def move(request, version):
        two.leaders["pages", 0] = 1
        return listed(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)

    two[0].on(ListOffsetsRequest, move)
    world.assign(0)

    assert world.values(5000) == ["a"]
    assert len(two[1].sent(ListOffsetsRequest)) == 1


@pytest.mark.parametrize("metadata_ms", [0, 20, 50, 300, 3000])
def test_first_lookup_awaits_the_first_metadata(runtime, two, metadata_ms):
    """They were under way, and a consumer took a pause, as if a broker had refused it something.

    Where they take longer than retry.backoff.ms, the lookup is tried again, as after a failure.
    """
    for broker in (two[0], two[1]):
        broker.on(MetadataRequest, lambda request, v: Later(metadata_ms, two.metadata(request)))
    world = ConsumerWorld(runtime, two)
    world.assign(0, 1)
    world.poll(metadata_ms + (10 if metadata_ms < 80 else 2000))

    assert [len(broker.sent(ListOffsetsRequest)) for broker in (two[0], two[1])] == [1, 1]


@pytest.mark.parametrize("group", [{}, {"group_id": "g"}], ids=["alone", "in a group"])
def test_position_that_was_set_meanwhile_is_not_overwritten(runtime, cluster, group):
    """The answer to an earlier lookup is for a place that nobody wants any more."""
    world = ConsumerWorld(runtime, cluster, **group)
    world.write("a", "b", "c")
    kind = OffsetFetchRequest if group else ListOffsetsRequest
    answer = world.fetch_offsets if group else world.list_offsets
    world.committed[FIRST] = 1
    cluster[0].on(kind, "hold")
    world.assign(0)
    world.poll(100)
    world.call(world.core.seek, FIRST, 2)
    held = cluster[0].held.pop()
    held.answer(answer(held.request, 9))

    assert world.values() == ["c"]


def test_partitions_whose_offsets_are_known_do_not_wait_for_others(runtime, two):
    """An error of one partition is handled after the answers of all have counted."""
    world = ConsumerWorld(runtime, two)
    world.write("b", partition=1)
    two[0].on(ListOffsetsRequest, listed(ErrorCode.LEADER_NOT_AVAILABLE, 0))
    world.assign(0, 1)

    assert world.values(500) == ["b"]


def test_lookup_that_is_refused_is_raised(runtime, cluster):
    """The refusal is raised at once, and the lookup is not repeated."""
    world = ConsumerWorld(runtime, cluster)
    cluster[0].on(ListOffsetsRequest, listed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0))
    world.assign(0)
    with pytest.raises(KafkaError) as caught:
        world.poll(60_000)

    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(cluster[0].sent(ListOffsetsRequest)) == 1


def test_lookup_is_repeated_with_growing_pauses(runtime, cluster):
    """The pauses grow from retry.backoff.ms to retry.backoff.max.ms."""
    world = ConsumerWorld(runtime, cluster)
    cluster[0].on(ListOffsetsRequest, listed(ErrorCode.OFFSET_NOT_AVAILABLE, 0))
    world.assign(0)
    counts = []
    for _ in range(3):
        before = len(cluster[0].sent(ListOffsetsRequest))
        world.poll(3000)
        counts.append(len(cluster[0].sent(ListOffsetsRequest)) - before)

    assert 4 <= counts[0] <= 8
    assert 2 <= counts[2] <= 4


def test_topic_that_a_consumer_reads_is_asked_for_until_it_is_there(runtime, cluster):
    """A topic is asked for also after another caller has asked about it, and there was none."""
    count = cluster.topics.pop("pages")
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    world.poll(100)
    with pytest.raises(KafkaError, match="topic pages"):
        world.run(world.core.topic_partitions("pages", world.deadline()))
    cluster.topics["pages"] = count
    world.write("a")

    assert world.values(5000) == ["a"]
    assert cluster[0].sent(MetadataRequest)[-1].topics


def test_position_that_the_answer_leaves_out_is_an_error(runtime, cluster):
    """It would be left out again, at once: the application is told."""
    world = ConsumerWorld(runtime, cluster)
    cluster[0].on(ListOffsetsRequest, ListOffsetsResponse())
    world.assign(0)
    with pytest.raises(KafkaError, match="the answer leaves pages-0 out"):
        world.values()

    assert len(cluster[0].sent(ListOffsetsRequest)) <= 2
