"""Offsets that leaders tell: those of timestamps, and where leader epochs end.

After an unclean election the new leader may lack records that a reader has seen, and write others
in their place (KIP-320). A leader returns the end of an epoch in its log (OffsetForLeaderEpoch). If
that end is before the reader's position, the log diverges there from the one that was read.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from operator import index
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import UUID

from ottla import structs
from ottla.clients.answers import of_each
from ottla.clients.network_client import NetworkClient, response_error
from ottla.config.config_type import LONG_MAX
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    NO_OFFSET,
    NO_UUID,
    IsolationLevel,
    NamedTuple,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ottla.clients.metadata import Metadata
    from ottla.protocol.fetch import DivergingEpoch

V = TypeVar("V")

FIRST_VERSION = 1
FIRST_VERSION_WITH_ISOLATION = 2
FIRST_VERSION_WITH_MAX_TIMESTAMP = 7


class OffsetSpec(IntEnum):
    """Special offsets, requested by a number in place of a timestamp."""

    LATEST = structs.LATEST_TIMESTAMP
    EARLIEST = structs.EARLIEST_TIMESTAMP
    MAX_TIMESTAMP = structs.MAX_TIMESTAMP


def with_metadata(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit, with metadata; they may be given as plain numbers.

    TypeError or ValueError for what is no offset: brokers would keep it, and readers begin there.
    """
    found = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
    return {each: place_of(offset, f"the offset of {each}") for each, offset in found.items()}


def place_of(offset: OffsetAndMetadata | int, what: str = "offset") -> OffsetAndMetadata:
    """A place in a log, which may be given as a number; TypeError or ValueError for what is none"""
    place = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    try:
        number = index(place.offset)  # numbers of numpy, too
    except TypeError:
        text = f"{what}={place.offset!r}: must be a whole number, or OffsetAndMetadata"
        raise TypeError(text) from None
    if number < 0:
        raise ValueError(f"{what}={number}: must not be negative")
    if number > LONG_MAX:
        raise ValueError(f"{what}={number}: must be at most {LONG_MAX}, as no log has more")
    return place._replace(offset=number)


def checked_times(timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Times as a program gives them; ValueError for numbers that are the names of other places."""
    for partition, timestamp in timestamps.items():
        if not 0 <= timestamp <= LONG_MAX:
            text = f"the time of {TopicPartition(*partition)}={timestamp}: must be ms since 1970"
            raise ValueError(f"{text}, from 0 to {LONG_MAX}")
    return timestamps


class OffsetAndMetadata(NamedTuple):
    """A committed offset, that of the next record to read, with the application's metadata.

    With the `topic_id` of its topic, which the positions of a consumer have, it is committed for
    that topic alone: not for the next one of its name, if that was deleted (KIP-848). Offsets that
    were looked up have none.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    topic_id: UUID = NO_UUID


class KnownTopics(NamedTuple):
    """The topics of one name that a consumer knows at a partition, by their ids.

    `given` is that of the records which the application was given last, `present` that of the
    `position`: the next one, if the first was deleted. NO_UUID stands for none that is known.
    """

    given: UUID = NO_UUID
    present: UUID = NO_UUID
    position: int | None = None

    @property
    def are_known(self) -> bool:
        return self.given != NO_UUID or self.present != NO_UUID

    @property
    def have_changed(self) -> bool:
        """Whether the position is in another topic than the records before it."""
        return NO_UUID not in (self.given, self.present) and self.given != self.present

    def of(self, offset: int) -> UUID:
        """The topic of an offset that the application names.

        It may commit the position in a new topic before it has got a record of that: nothing is
        passed over where its consumer begins.
        """
        return self.present if self.given == NO_UUID or self._is_position(offset) else self.given

    def _is_position(self, offset: int) -> bool:
        return self.have_changed and offset == self.position


def with_ids(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topics: Mapping[TopicPartition, KnownTopics],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit with the ids of their topics: their own, or those that are known."""
    found = dict(offsets)
    for partition in topics.keys() & offsets.keys():
        offset = found[partition]
        if offset.topic_id == NO_UUID:
            found[partition] = offset._replace(topic_id=topics[partition].of(offset.offset))
    return found


class ListOffsetsResult(NamedTuple):
    """The offset found for a timestamp, and its record's own timestamp; -1 if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_EPOCH


async def list_offsets(
    client: NetworkClient,
    metadata: Metadata,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
    """Fetch the offset or the error of each partition, once.

    With DEBUGGING_REPLICA_ID the latest offset is the end of the leader's log, committed or not.
    """

    async def ask(
        leader: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        request = ListOffsetsRequest(replica_id=replica_id)
        wanted = {partition: timestamps[partition] for partition in partitions}
        return await _ask_leader(client, metadata, leader, wanted, isolation, request)

    return await ask_leaders(metadata, timestamps, ask)


async def ask_leaders(
    metadata: Metadata,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
) -> dict[TopicPartition, V | KafkaError]:
    """`ask` the leaders once, concurrently; the result has an answer or error per partition."""
    results: dict[TopicPartition, V | KafkaError] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = metadata.cluster.leader(partition)
        if leader in metadata.cluster.nodes:
            by_leader.setdefault(leader, []).append(partition)
        else:
            results[partition] = no_leader(metadata, partition)

    async def ask_one(
        leader: int, led: list[TopicPartition]
    ) -> Mapping[TopicPartition, V | KafkaError]:
        try:
            return of_each(led, await ask(leader, led))
        except KafkaError as error:
            return dict.fromkeys(led, error)

    for answer in await asyncio.gather(*(ask_one(*each) for each in by_leader.items())):
        results.update(answer)
    return results


def no_leader(metadata: Metadata, partition: TopicPartition) -> KafkaError:
    """The error for a request about a partition whose leader is not known."""
    error = metadata.cluster.error_of(partition.topic)
    if error is not ErrorCode.NONE:
        return KafkaError.of(error, f"topic {partition.topic}: {error.sentence}")
    if metadata.cluster.partition(partition) is None:
        return InvalidMetadataError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
        )
    return InvalidMetadataError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader"
    )


async def _ask_leader(
    client: NetworkClient,
    metadata: Metadata,
    leader: int,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    request: ListOffsetsRequest,
) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
    low = FIRST_VERSION
    if isolation is IsolationLevel.READ_COMMITTED:
        request.isolation_level = isolation
        low = FIRST_VERSION_WITH_ISOLATION
    if OffsetSpec.MAX_TIMESTAMP in timestamps.values():
        low = FIRST_VERSION_WITH_MAX_TIMESTAMP
    for topic, partitions in by_topic(timestamps).items():
        entry = ListOffsetsTopic(name=topic)
        request.topics.append(entry)
        for partition in partitions:
            topic_partition = TopicPartition(topic, partition)
            entry.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=metadata.cluster.leader_epoch(topic_partition),
                    timestamp=timestamps[topic_partition],
                )
            )
    return _results(cast("ListOffsetsResponse", await client.send(leader, request, low=low)))


def _results(response: ListOffsetsResponse) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
    results: dict[TopicPartition, ListOffsetsResult | KafkaError] = {}
    for topic in response.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            error = response_error(p.error_code, f"offsets of {partition}")
            results[partition] = error or ListOffsetsResult(p.offset, p.timestamp, p.leader_epoch)
    return results


FIRST_VERSION_FOR_READERS = 3
"""Brokers allow this request to readers from this version on; before it only to other brokers."""


class EpochQuestion(NamedTuple):
    """The epoch up to which a log was read, and its current leader epoch as known to the client."""

    epoch: int
    leader_epoch: int


class Parting(NamedTuple):
    """The first offset at which a log differs from the records read, and the epoch before it.

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
        "OffsetForLeaderEpochResponse",
        await client.send(leader, request, low=FIRST_VERSION_FOR_READERS),
    )
    return {
        where: response_error(end.error_code, f"validation of {where}") or end
        for topic in response.topics
        for end in topic.partitions
        for where in [TopicPartition(topic.topic, end.partition)]
    }


def parting_before(offset: int, end: EpochEndOffset) -> Parting | None:
    """Where the log differs from the records read up to `offset`; None if it has all of them."""
    if end.end_offset == NO_OFFSET or end.leader_epoch == NO_EPOCH:
        return Parting(None, NO_EPOCH)
    if end.end_offset < offset:
        return Parting(end.end_offset, end.leader_epoch)
    return None


def parting_of(found: DivergingEpoch) -> Parting:
    """Where the log diverges, by a fetch response to the last fetched epoch (KIP-595)."""
    return Parting(None if found.end_offset == NO_OFFSET else found.end_offset, found.epoch)
