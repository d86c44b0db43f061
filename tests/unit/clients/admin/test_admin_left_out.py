"""Answers to an admin client that leave out the subject, or are about other kinds of things."""

from __future__ import annotations

import pytest

from ottla import AlterConfigOp, ConfigResource, KafkaError, TopicPartition
from ottla.clients.admin.transactions import HangingTransaction
from ottla.protocol.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.group import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.protocol.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

PAGES = TopicPartition("pages", 0)
TOPIC = ConfigResource.topic("pages")
CALLS = {
    "delete a group": (
        lambda admin: admin.delete_groups(["g"]),
        DeleteGroupsRequest,
        DeleteGroupsResponse(),
    ),
    "end a transaction": (
        lambda admin: admin.abort_transaction(HangingTransaction(PAGES, 1, 0, -1)),
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse(),
    ),
    "offsets by time": (
        lambda admin: admin.list_offsets({PAGES: -1}),
        ListOffsetsRequest,
        ListOffsetsResponse(),
    ),
    "a group's offsets": (
        lambda admin: admin.list_group_offsets("g", [PAGES]),
        OffsetFetchRequest,
        OffsetFetchResponse(),
    ),
    "commit": (
        lambda admin: admin.alter_group_offsets("g", {PAGES: 5}),
        OffsetCommitRequest,
        OffsetCommitResponse(),
    ),
    "settings of another kind": (
        lambda admin: admin.describe_configs([TOPIC]),
        DescribeConfigsRequest,
        DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=99, resource_name="pages")]
        ),
    ),
    "change of another kind": (
        lambda admin: admin.incremental_alter_configs(
            {TOPIC: [AlterConfigOp("retention.ms", "1")]}
        ),
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=-1, resource_name="pages")]
        ),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_answer_that_leaves_the_subject_out_is_an_error(virtual_admin, cluster, call):
    """It is neither done nor known: the error says that the answer has not got it."""
    make, kind, answer = CALLS[call]
    for broker in cluster.brokers.values():
        broker.on(kind, answer)
    with pytest.raises(KafkaError, match=r"the answer leaves .* out"):
        make(virtual_admin)
