"""Whether a log is still the one that was read: it is asked where leader epochs end (KIP-320).

After an unclean election the new leader may lack records that a reader has seen, and write others
in their place. A leader says of an epoch where its log has the end of it (OffsetForLeaderEpoch). An
end before the offset up to which the reader has come is where the two logs part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from ottla.clients.network_client import NetworkClient, response_error
from ottla.clients.topic_offsets import CONSUMER_REPLICA_ID, NO_OFFSET, by_topic
from ottla.errors import KafkaError
from ottla.protocol.fetch import EpochEndOffset as FetchEnd
from ottla.protocol.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.structs import NO_EPOCH, TopicPartition

# Brokers let readers ask from this version on; before it only other brokers may.
FIRST_VERSION_FOR_READERS = 3


class EpochQuestion(NamedTuple):
    """Up to which epoch a log was read, and in which one the asker believes its leader to be."""

    epoch: int
    leader_epoch: int


class Parting(NamedTuple):
    """The first offset at which a log is not the one that was read, and the epoch before it.

    Both are None and -1 where the leader cannot say.
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
    """Where the log parts from what was read up to `offset`; None if it has all of that."""
    if end.end_offset == NO_OFFSET or end.leader_epoch == NO_EPOCH:
        return Parting(None, NO_EPOCH)
    if end.end_offset < offset:
        return Parting(end.end_offset, end.leader_epoch)
    return None


def parting_of(found: FetchEnd) -> Parting:
    """Where a leader that was given the last fetched epoch says that its log parts (KIP-595)."""
    return Parting(None if found.end_offset == NO_OFFSET else found.end_offset, found.epoch)
