"""Asks leaders where leader epochs end, to detect logs that have diverged (KIP-320).

After an unclean election the new leader may lack records that a reader has seen, and write others
in their place. A leader returns the end of an epoch in its log (OffsetForLeaderEpoch). If that end
is before the reader's position, the log diverges there from the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from ottla.clients.network_client import NetworkClient, response_error
from ottla.errors import KafkaError
from ottla.protocol.fetch import DivergingEpoch
from ottla.protocol.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.structs import CONSUMER_REPLICA_ID, NO_EPOCH, NO_OFFSET, TopicPartition, by_topic

# Brokers allow this request to readers from this version on; before it only to other brokers.
FIRST_VERSION_FOR_READERS = 3


class EpochQuestion(NamedTuple):
    """The epoch up to which a log was read, and its current leader epoch as known to the client."""

    epoch: int
    leader_epoch: int


class Parting(NamedTuple):
    """The first offset at which a log differs from what was read, and the epoch before it.

    They are None and -1 if the leader cannot tell.
    """

    offset: int | None
    epoch: int


async def epoch_ends(
    client: NetworkClient, leader: int, questions: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochEndOffset | KafkaError]:
    """The end of the epoch of each partition, or its error; a leader may leave out some."""
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID)
    for topic, partitions in by_topic(questions).items():
        entry = OffsetForLeaderTopic(topic=topic)
        for partition in partitions:
            question = questions[TopicPartition(topic, partition)]
            entry.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition,
                    current_leader_epoch=question.leader_epoch,
                    leader_epoch=question.epoch,
                )
            )
        request.topics.append(entry)
    response = cast(
        OffsetForLeaderEpochResponse,
        await client.send(leader, request, low=FIRST_VERSION_FOR_READERS),
    )
    return {
        where: response_error(end.error_code, f"validation of {where}") or end
        for topic in response.topics
        for end in topic.partitions
        for where in [TopicPartition(topic.topic, end.partition)]
    }


def parting_before(offset: int, end: EpochEndOffset) -> Parting | None:
    """Where the log differs from what was read up to `offset`; None if it has all of that."""
    if end.end_offset == NO_OFFSET or end.leader_epoch == NO_EPOCH:
        return Parting(None, NO_EPOCH)
    if end.end_offset < offset:
        return Parting(end.end_offset, end.leader_epoch)
    return None


def parting_of(found: DivergingEpoch) -> Parting:
    """Where the log diverges, by a fetch response to the last fetched epoch (KIP-595)."""
    return Parting(None if found.end_offset == NO_OFFSET else found.end_offset, found.epoch)
