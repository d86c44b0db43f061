"""Answers to a transaction's requests that leave out what they should be about."""

from __future__ import annotations

import pytest
from transaction_world import TransactionWorld

from ottla.clients.committed_offsets import ConsumerGroupMetadata, GroupMembership
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ottla.structs import TopicPartition

OFFSETS = {TopicPartition("pages", 0): OffsetAndMetadata(7)}
GROUP = ConsumerGroupMetadata("copiers", GroupMembership(3, "member-1", None))


@pytest.fixture
def world(runtime, cluster) -> TransactionWorld:
    """A producer in its first transaction."""
    return TransactionWorld(runtime, cluster).begun()


def test_partition_that_is_left_out_is_not_in_the_transaction(world, cluster):
    """Its records would be outside: nothing is sent to it."""
    cluster[0].on(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse())
    future = world.send("a")
    world.run(1000)

    with pytest.raises(KafkaError, match=r"the answer leaves .*pages-0 out"):
        future.result(0)
    assert world.sent() == []


def test_offset_that_is_left_out_ends_the_transaction_with_an_abort(world, cluster):
    """The records would be committed without the offset, and be made again."""
    cluster[0].on(TxnOffsetCommitRequest, TxnOffsetCommitResponse())
    with pytest.raises(KafkaError, match=r"the answer leaves .*pages-0 out"):
        world.call("send_offsets", OFFSETS, GROUP)
    with pytest.raises(KafkaError):
        world.call("commit")
    world.call("abort")

    assert world.conversation()[-1] == "abort"


@pytest.mark.parametrize("epoch", [-1, -(2**15)])
@pytest.mark.parametrize("producer_id", [-1, 42])
def test_answer_without_a_producer_id_is_no_beginning(runtime, cluster, producer_id, epoch):
    """Nor is one whose epoch is none."""
    world = TransactionWorld(runtime, cluster)
    answer = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    cluster[0].on(InitProducerIdRequest, answer)
    with pytest.raises(KafkaError, match="the answer leaves the producer id out"):
        world.call("init")
