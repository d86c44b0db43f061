"""What a handler may do with the context of a slice, and when a request is answered in slices."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from test_slicing import World, offsets_answer, offsets_request

from ottla.errors import LocalProtocolError
from ottla.network.request_context import NO_QUOTA, RequestContext, RequestQuota
from ottla.protocol.acls import AclCreationResult, CreateAclsResponse
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from ottla.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.metadata import MetadataRequestTopic
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.runtime.scheduler import Work
from ottla.server.handlers.named_topics import name_topics
from ottla.server.slicing import LONG_FRAME_BYTES, Slicing, once

MANY = 1_200


class Charged(RequestContext):
    """Each request is charged by itself."""

    def __init__(self, connection: Any, header: Any, received_ms: int) -> None:
        super().__init__(connection, header, received_ms)
        self.quota = RequestQuota()


def produce_request(*counts: int, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(
                name=f"t{number}",
                partition_data=[
                    PartitionProduceData(index=index, records=b"x" * 61) for index in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ],
    )


def produced(body: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index) for each in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )


@pytest.mark.parametrize(
    ("counts", "calls"),
    [((199,), 1), ((200,), 2), ((149, 49), 1), ((149, 50), 2), ((150, 150), 2), ((10,) * 40, 3)],
)
def test_batches_are_taken_in_slices_where_there_are_many(counts, calls):
    """Of one topic or of several together."""
    asked = []

    def handle(context: Any, body: ProduceRequest) -> ProduceResponse:
        asked.append(body)
        return produced(body)

    answer = World(ApiKey.PRODUCE, handle).ask(produce_request(*counts), 9)

    assert len(asked) == calls
    assert [len(topic.partition_responses) for topic in answer.responses] == list(counts)


def test_topic_that_is_deleted_between_slices_is_one_in_the_answer():
    """By its id, which clients know; no other topic, whose id is as unknown, is taken for it."""
    names = iter(["t"])

    def handle(context: Any, body: ProduceRequest) -> ProduceResponse:
        name_topics(body.topic_data, lambda topic_id: next(names, None))
        return produced(body)

    request = produce_request(320, 250)
    ids = [UUID(int=6), UUID(int=7)]
    for topic, topic_id in zip(request.topic_data, ids, strict=True):
        topic.topic_id = topic_id
    answer = World(ApiKey.PRODUCE, handle).ask(request, 13)

    assert [(each.topic_id, len(each.partition_responses)) for each in answer.responses] == [
        (ids[0], 320),
        (ids[1], 250),
    ]


def test_slice_is_answered_once_and_charged_as_a_part_of_the_whole():
    """As any request is."""
    quotas, refusals = [], []

    def amend(response: Any) -> Work[None]:
        response.topics[0].partitions.pop()
        yield

    def handle(context: Any, body: ListOffsetsRequest) -> None:
        quotas.append(context.quota)
        context.amend = amend
        context.respond(offsets_answer([])(context, body))
        for answer in (lambda: context.respond(ListOffsetsResponse()), context.no_response):
            with pytest.raises(LocalProtocolError) as caught:
                answer()
            refusals.append(caught.value)

    world = World(ApiKey.LIST_OFFSETS, handle)
    world.apis.new_context = lambda connection, header, received_ms, *_: Charged(
        connection, header, received_ms
    )
    answer = world.ask(offsets_request(MANY), 7)

    assert len(quotas) == 3
    assert all(quota is quotas[0] is not NO_QUOTA for quota in quotas)
    assert len(refusals) == 6
    assert len(answer.topics[0].partitions) == MANY - 3


@pytest.mark.parametrize("how", ["close", "reason"])
def test_slice_that_closes_the_connection_ends_the_request(how):
    """The rest is not asked for."""
    asked = []

    def handle(context: Any, body: ProduceRequest) -> None:
        asked.append(body)
        if how == "close":
            context.close_connection("it is over")
        else:
            context.close_reason = "it is over"
            context.no_response()

    world = World(ApiKey.PRODUCE, handle)
    assert world.ask(produce_request(1_000, acks=0), 9) is None

    assert world.client.closed == "it is over"
    assert len(asked) == 1


def test_what_is_named_again_is_answered_again_where_that_matters():
    """A look-up by time may be asked for with several times."""
    request = offsets_request(300, 300)
    request.topics[1].name = request.topics[0].name
    answer = World(ApiKey.LIST_OFFSETS, offsets_answer([])).ask(request, 7)

    assert sum(len(topic.partitions) for topic in answer.topics) == 600


def test_names_are_cut_into_slices_of_which_none_is_too_long():
    """Each comes once, in its order."""
    asked = []

    def handle(context: Any, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
        asked.append(body.groups)
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=g) for g in body.groups])

    names = [f"g{number}" for number in range(120)]
    answer = World(ApiKey.DESCRIBE_GROUPS, handle).ask(DescribeGroupsRequest(groups=names), 5)

    assert [len(each) for each in asked] == [50, 50, 20]
    assert [group.group_id for group in answer.groups] == names


def test_entries_without_lists_are_once_each():
    """By all of their values."""
    topics = [MetadataRequestTopic(name=name) for name in "abab"]

    assert [topic.name for topic in once(topics, ())] == ["a", "b"]


def test_results_without_lists_stay_apart():
    """Two of them may be the same."""
    whole, more = (CreateAclsResponse(results=[AclCreationResult()] * count) for count in (2, 3))
    Slicing(("creations",), ("results",)).join(whole, more)

    assert len(whole.results) == 5


def test_request_of_many_bytes_and_few_elements_is_served_at_once():
    """A long name is no reason for slices."""
    world = World(ApiKey.HEARTBEAT, lambda context, body: HeartbeatResponse(error_code=27))
    answer = world.ask(HeartbeatRequest(group_id="g" * LONG_FRAME_BYTES), 0)

    assert answer.error_code == 27
