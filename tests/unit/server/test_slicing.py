"""Large requests: what is refused before it is read, and what is answered in slices."""

from __future__ import annotations

import logging
import random
from itertools import chain
from struct import pack
from typing import Any

import pytest
from apis_world import Client, Family
from counting_slices import CountingSlices

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.group import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.message import request_class
from ottla.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from ottla.protocol.wire import uvarint_bytes
from ottla.server.apis import Apis
from ottla.server.slicing import MAX_ELEMENTS, MAX_FRAME_BYTES, SLICED, Slicing, once, weigh
from ottla.testing import mock_runtime


class World:
    """One API with one handler, and a client."""

    def __init__(self, key: ApiKey, handler: Any) -> None:
        self.runtime = mock_runtime()
        self.apis = Apis(self.runtime, [Family(key, handler)])
        self.client = Client()
        self.apis.slices = self.slices = CountingSlices()

    def send(self, frame: bytes) -> None:
        """The frame's buffer is used for others once the request has been taken."""
        buffer = bytearray(frame)
        self.client.hand_over(self.apis, buffer)
        buffer[:] = bytes(len(buffer))
        self.runtime.scheduler.run_ready()

    def ask(self, request: Any, version: int) -> Any:
        self.send(encode_request(version, 7, "test", request)[4:])
        if not self.client.sent:
            return None
        return decode_response(type(request), version, self.client.sent[-1])[1]


def offsets_request(*counts: int) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name=f"t{number}",
            partitions=[
                ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(count)
            ],
        )
        for number, count in enumerate(counts)
    ]
    return ListOffsetsRequest(topics=topics)


COUNTS = [[1], [1, 1], [499], [500], [6000], [400, 400, 3000], [2] * 2000]


def offsets_answer(asked: list[int]) -> Any:
    """A handler that notes how many partitions it was asked for at a time."""

    def handle(context: Any, body: ListOffsetsRequest) -> ListOffsetsResponse:
        asked.append(sum(len(topic.partitions) + 1 for topic in body.topics))
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=5)
                        for each in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    return handle


@pytest.mark.parametrize(
    "counts", [[1], [1, 1], [499], [500], [6000], [400, 400, 3000], [2] * 2000]
)
def test_answer_in_slices_is_that_of_one_step(counts):
    """Whatever is cut where: topics and partitions come once, and in their order."""
    asked: list[int] = []
    world = World(ApiKey.LIST_OFFSETS, offsets_answer(asked))
    request = offsets_request(*counts)

    answer = world.ask(request, 7)
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [
        (each.name, len(each.partitions)) for each in request.topics
    ]
    assert [p.partition_index for p in answer.topics[-1].partitions] == list(range(counts[-1]))
    assert max(asked) <= 500
    assert sum(asked) >= sum(counts) + len(counts)
    assert world.slices.turns >= len(asked) - 1


def test_other_requests_are_served_between_the_slices():
    """Others are served between slices, and of two large requests each has its turn."""
    order: list[str] = []
    world = World(ApiKey.LIST_OFFSETS, None)
    first, second = Client(), Client()

    def handle(context: Any, body: ListOffsetsRequest) -> ListOffsetsResponse:
        order.append("a" if context.connection is first.connection else "b")
        return offsets_answer([])(context, body)

    world.apis.register(Family(ApiKey.LIST_OFFSETS, handle))
    frame = encode_request(7, 7, "test", offsets_request(2500))[4:]
    for client in (first, second):
        client.hand_over(world.apis, frame)
    world.runtime.scheduler.run_ready()

    assert "".join(order[1:9]).count("aaa") == 0
    assert sorted(order) == ["a"] * (len(order) // 2) + ["b"] * (len(order) // 2)


def test_error_of_a_slice_is_that_of_the_request():
    """The rest is not asked for."""
    asked: list[int] = []

    def handle(context: Any, body: Any) -> None:
        asked.append(1)
        raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")

    world = World(ApiKey.DESCRIBE_GROUPS, handle)
    world.ask(DescribeGroupsRequest(groups=[f"g{n}" for n in range(500)]), 5)

    assert world.client.closed == "DescribeGroupsRequest failed: GROUP_AUTHORIZATION_FAILED"
    assert asked == [1]


def test_client_that_has_gone_is_not_worked_for():
    """Its request ends with the slice that is being done."""
    asked: list[int] = []
    world = World(ApiKey.LIST_OFFSETS, None)

    def handle(context: Any, body: ListOffsetsRequest) -> ListOffsetsResponse:
        if len(asked) == 2:
            world.client.connection.close("the client has gone")
        return offsets_answer(asked)(context, body)

    world.apis.register(Family(ApiKey.LIST_OFFSETS, handle))
    assert world.ask(offsets_request(20_000), 7) is None
    assert len(asked) == 3


def produce_answer(asked: list[list[bytes]]) -> Any:
    """A handler that notes the records of each slice."""

    def handle(context: Any, body: ProduceRequest) -> ProduceResponse | None:
        asked.append([bytes(p.records) for t in body.topic_data for p in t.partition_data])
        if not body.acks:
            context.expect_no_response()
            context.no_response()
            return None
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=each.index) for each in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
        return ProduceResponse(responses=responses)

    return handle


@pytest.mark.parametrize("acks", [1, 0])
def test_batches_of_many_partitions_are_taken_in_slices(acks):
    """Their bytes are those that came, though the buffer of the network has others meanwhile."""
    asked: list[list[bytes]] = []
    world = World(ApiKey.PRODUCE, produce_answer(asked))
    rows = [PartitionProduceData(index=n, records=b"%061d" % n) for n in range(1000)]
    request = ProduceRequest(
        acks=acks, topic_data=[TopicProduceData(name="t", partition_data=rows)]
    )

    answer = world.ask(request, 9)
    assert list(chain(*asked)) == [b"%061d" % n for n in range(1000)]
    assert max(map(len, asked)) <= 200
    if acks:
        assert [p.index for p in answer.responses[0].partition_responses] == list(range(1000))
    else:
        assert (answer, world.client.ended) == (None, 1)


@pytest.mark.parametrize("key", sorted(SLICED), ids=lambda key: ApiKey(key).name)
def test_row_of_slices_names_lists_that_the_messages_have(key):
    """In the request and in its answer, as deep as they go."""
    request = request_class(key)
    for slicing in SLICED[key]:
        for cls, names in (
            (request, slicing.entries),
            (request.response_class, slicing.results),
        ):
            for name in names:
                (field,) = [each for each in cls.fields if each.name == name]
                cls = field.type.element


@pytest.mark.parametrize("key", sorted(SLICED), ids=lambda key: ApiKey(key).name)
def test_entry_with_one_answer_is_in_one_slice(key):
    """A topic was made of the first assignments alone, and answered with once for each part."""
    for slicing in SLICED[key]:
        assert slicing.is_whole == (len(slicing.results) == 1 < len(slicing.entries))


def test_topic_of_many_assignments_is_made_whole():
    """However many there are, and whatever stands beside it."""
    topics = [CreatableTopic(name=name) for name in ("a", "b", "c")]
    topics[1].assignments = [
        CreatableReplicaAssignment(partition_index=n, broker_ids=[1, 2]) for n in range(60)
    ]
    asked: list[list[tuple[str, int]]] = []

    def handle(context: Any, body: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.append([(topic.name, len(topic.assignments)) for topic in body.topics])
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=t.name) for t in body.topics])

    answer = World(ApiKey.CREATE_TOPICS, handle).ask(CreateTopicsRequest(topics=topics), 5)

    assert asked == [[("a", 0)], [("b", 60)], [("c", 0)]]
    assert [topic.name for topic in answer.topics] == ["a", "b", "c"]


def test_entries_that_share_a_name_are_in_one_slice():
    """They are refused together, wherever they stand: one was deleted, and the other unknown."""
    names = [f"t{number}" for number in range(120)] + ["t3", "t70"]
    (slicing, _) = SLICED[ApiKey.DELETE_TOPICS]
    slices = list(slicing.cut(DeleteTopicsRequest(topic_names=names)))

    assert slices[0] == ["t3", "t3", "t70", "t70"]
    assert sorted(chain(*slices)) == sorted(names)
    assert max(map(len, slices)) <= slicing.most


@pytest.mark.parametrize("repetitions", [2, 3, 30])
def test_many_entries_that_share_names_are_not_all_in_one_slice(repetitions):
    """Two of each of ten thousand names were handled in one step of the loop."""
    names = [f"t{number % 400}" for number in range(400 * repetitions)]
    (slicing, _) = SLICED[ApiKey.DELETE_TOPICS]
    slices = list(slicing.cut(DeleteTopicsRequest(topic_names=names)))

    assert sorted(chain(*slices)) == sorted(names)
    assert max(map(len, slices)) < slicing.most + repetitions
    assert sum(len(set(part)) for part in slices) == 400


@pytest.mark.parametrize("seed", range(20))
def test_cut_loses_and_repeats_nothing(seed):
    """Any groups, topics and partitions: the slices have each once, and none is too large."""
    chance = random.Random(seed)
    slicing = Slicing(("groups", "topics", "partition_indexes"), (), chance.choice([7, 40, 500]))
    groups = [
        OffsetFetchRequestGroup(
            group_id=f"g{g}",
            topics=[
                OffsetFetchRequestTopics(
                    name=f"t{t}",
                    partition_indexes=list(range(chance.choice([0, 1, 5, 6, 38, 39, 40, 90]))),
                )
                for t in range(chance.choice([0, 1, 3, 30]))
            ],
        )
        for g in range(chance.choice([1, 4, 60]))
    ]

    def named(found: list[Any]) -> list[tuple[str, str, int]]:
        return [
            (group.group_id, topic.name, index)
            for group in found
            for topic in group.topics
            for index in topic.partition_indexes
        ]

    slices = list(slicing.cut(OffsetFetchRequest(groups=groups)))
    assert list(chain(*map(named, slices))) == named(groups)
    assert {group.group_id for part in slices for group in part} == {g.group_id for g in groups}
    for part in slices:
        topics = [topic for group in part for topic in group.topics]
        inner = sum(1 + len(topic.partition_indexes) for topic in topics)
        assert sum(weigh(group, slicing.entries[1:]) for group in part) == len(part) + inner
        assert len(part) + inner <= slicing.most


def test_what_is_named_again_is_answered_once():
    """Answers may be far larger than names."""
    asked: list[str] = []

    def handle(context: Any, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
        asked.extend(body.groups)
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=g) for g in body.groups])

    world = World(ApiKey.DESCRIBE_GROUPS, handle)
    answer = world.ask(DescribeGroupsRequest(groups=["g", "h"] * 1000), 5)

    assert asked == [group.group_id for group in answer.groups] == ["g", "h"]


def test_repeated_topics_are_put_together():
    """Their partitions count once each; null, which is all of them, includes the others."""

    def topic(name: str, keys: list[str] | None) -> DescribeConfigsResource:
        return DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys)

    request = DescribeConfigsRequest(
        resources=[topic("a", ["x"]), topic("b", ["x"]), topic("a", ["y", "x"]), topic("b", None)]
    )
    a, b = once(request.resources, ("configuration_keys",))
    assert (a.resource_name, a.configuration_keys) == ("a", ["x", "y"])
    assert (b.resource_name, b.configuration_keys) == ("b", None)


# What is refused.


def fetch_request(count: int) -> FetchRequest:
    partitions = [FetchPartition(partition=n) for n in range(count)]
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)])


def test_request_of_too_many_elements_is_answered_with_an_error():
    """Where its answer has a place for one; before its elements are made."""
    world = World(ApiKey.FETCH, lambda context, body: FetchResponse(session_id=3))

    assert world.ask(fetch_request(MAX_ELEMENTS - 10), 11).session_id == 3
    answer = world.ask(fetch_request(MAX_ELEMENTS + 10), 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_REQUEST, 0)
    assert world.ask(FetchRequest(), 11).session_id == 3


def test_requests_of_too_many_elements_have_one_line(caplog):
    """A client that gets the error may ask the same again, on the same connection."""
    caplog.set_level(logging.INFO)
    world = World(ApiKey.FETCH, lambda context, body: FetchResponse())
    for _ in range(3):
        world.ask(fetch_request(MAX_ELEMENTS + 10), 11)

    assert len(world.client.sent) == 3
    assert caplog.text.count("elements announced") == 1


def test_request_of_too_many_elements_is_closed_where_there_is_no_place_for_an_error():
    """The reason names message, field and rule."""
    world = World(ApiKey.LIST_OFFSETS, offsets_answer([]))
    world.ask(offsets_request(MAX_ELEMENTS), 7)

    assert "topics.partitions: 25000 elements announced, but only" in world.client.closed


@pytest.mark.parametrize("groups", [1, 30, 5000])
def test_elements_of_all_arrays_count_together(groups):
    """However they are nested."""
    world = World(ApiKey.OFFSET_FETCH, None)
    each = 60_000 // groups
    body = b"".join(b"\2g" + pack_count(each) + b"\1\1\0" * each + b"\0" for _ in range(groups))
    frame = pack(">hhih", 9, 8, 1, -1) + b"\0" + pack_count(groups) + body + b"\0\0"
    world.send(frame)

    assert "elements announced, but only" in world.client.closed


def pack_count(count: int) -> bytes:
    return uvarint_bytes(count + 1)


def test_unknown_tagged_fields_count_as_elements():
    """Each element may have some, and they are skipped one by one."""
    tags = b"\x28" + b"\x7f\0" * 40
    topic = b"\2t" + b"\1" + tags
    frame = pack(">hhih", 9, 8, 1, -1) + b"\0\2\2g" + pack_count(2000) + topic * 2000 + b"\0\0\0"
    world = World(ApiKey.OFFSET_FETCH, None)
    world.send(frame)

    assert "40 elements announced, but only" in world.client.closed


def test_frame_of_too_many_bytes_is_not_received():
    """Records, assignments and states may be large; what only names things may not."""
    apis = World(ApiKey.DESCRIBE_GROUPS, None).apis
    assert apis.max_frame_bytes(ApiKey.DESCRIBE_GROUPS) == MAX_FRAME_BYTES
    assert apis.max_frame_bytes(12345) == MAX_FRAME_BYTES
    for key in (ApiKey.PRODUCE, ApiKey.LEADER_AND_ISR, ApiKey.SYNC_GROUP):
        assert World(key, None).apis.max_frame_bytes(key) > MAX_FRAME_BYTES


@pytest.mark.parametrize(
    ("key", "elements_of_a_partition"),
    [
        (ApiKey.LEADER_AND_ISR, 1 + 3 + 3),
        (ApiKey.UPDATE_METADATA, 1 + 3 + 3 + 3),
        (ApiKey.STOP_REPLICA, 1),
        (ApiKey.ALTER_PARTITION, 1 + 3),
    ],
)
def test_what_brokers_say_is_bounded_by_the_largest_cluster(key, elements_of_a_partition):
    """Where clients share the listener of the brokers, they can send it as well."""
    needed = 200_000 * elements_of_a_partition
    most = World(key, None).apis._apis[key].max_elements

    assert needed < most < 4 * needed
