"""Metadata of any size as a request: encoded once for all brokers, and read, in slices."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from ottla.protocol.message import decode, encode
from ottla.protocol.update_metadata import (
    FULL_TYPE,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.runtime.scheduler import at_once
from ottla.server.order_messages import (
    NEWEST_UPDATE,
    STATES_AT_ONCE,
    EncodedUpdateMetadata,
    encoded_update,
    metadata_update,
)
from ottla.structs import (
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    MetadataUpdate,
    PartitionState,
    TopicPartition,
)

SIZES = [
    [],
    [1],
    [STATES_AT_ONCE],
    [1] * 2 * STATES_AT_ONCE,
    [2 * STATES_AT_ONCE + 1, 1],
    [7] * STATES_AT_ONCE,
]
"""The partitions of each topic."""
BROKERS = [BrokerEndPoints(2, -1, (EndPoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), "rack")]


def update_of(sizes):
    states = [
        PartitionState(
            TopicPartition(f"t{n}", index),
            UUID(int=n + 1),
            5,
            LeaderAndIsr(index % 3, 7, (1, 2), 9),
            (1, 2, 3),
            False,
            (3,) * (index % 2),
        )
        for n, size in enumerate(sizes)
        for index in range(size)
    ]
    return MetadataUpdate(states, BROKERS, ["gone", "too"], is_full=True)


def pauses_of(work):
    """Do all of it; returns its result, and how often it pauses."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)}-{sum(sizes)}")
def test_update_of_any_size_arrives_as_it_was_meant(sizes):
    """A slice has so many partitions at most, on either side; a short one is made in a step."""
    update = update_of(sizes)
    body, pauses = pauses_of(encoded_update(1, 5, update))
    request = decode(UpdateMetadataRequest, NEWEST_UPDATE, body)
    assert (request.controller_id, request.controller_epoch, request.type) == (1, 5, FULL_TYPE)
    assert [len(topic.partition_states) for topic in request.topic_states] == [*sizes, 1, 1]
    read, more = pauses_of(metadata_update(request))

    assert read == update
    for found in (pauses, more):
        assert found >= len(update.states) // STATES_AT_ONCE
        assert (found > 0) == (len(update.states) >= STATES_AT_ONCE)


@pytest.mark.parametrize("epoch", [-1, 0, 2**40])
def test_update_for_a_broker_has_the_bytes_of_the_request(epoch):
    """As if it had been encoded for that broker alone."""

    async def encoded():
        made = asyncio.get_running_loop().create_future()
        made.set_result(at_once(encoded_update(1, 5, update_of([2]))))
        return encode(EncodedUpdateMetadata(made=made, broker_epoch=epoch), NEWEST_UPDATE)

    body = asyncio.run(encoded())
    plain = decode(UpdateMetadataRequest, NEWEST_UPDATE, body)
    assert plain.broker_epoch == epoch
    assert encode(plain, NEWEST_UPDATE) == body


def test_partitions_of_before_topics_were_grouped_are_read():
    """Up to v4 each names its topic, and no topic has an id."""
    states = [
        UpdateMetadataPartitionState(topic_name="t", partition_index=n, leader=1) for n in (0, 1)
    ]
    body = UpdateMetadataRequest(
        ungrouped_partition_states=states,
        topic_states=[UpdateMetadataTopicState(topic_name="u", partition_states=[states[0]])],
    )
    read = at_once(metadata_update(body))

    found = [each.topic_partition for each in read.states]
    assert found == [TopicPartition("u", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    assert not read.is_full
