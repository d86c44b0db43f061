"""Reads ranges of partitions by few fetches, without a group, and each of them bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.clients.network_client import NetworkClient, check_code
from ottla.clients.partition_reader import (
    Chunk,
    UnreadRange,
    chunk_of,
    fetched_by_names,
    topics_to_fetch,
)
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.record.memory_records import batches
from ottla.record.record_batch import MAGIC, RecordBatch
from ottla.structs import IsolationLevel, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.clients.metadata import Cluster

PARTITION_BYTES: Final = 256 * 1024
RESPONSE_BYTES: Final = 8 * 1024 * 1024
"""A broker exceeds either by one batch, so that even a large record arrives."""


class FoundRecord(NamedTuple):
    """A record and its place; the topic is known from the context."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Span(NamedTuple):
    """Offsets of a partition from `start` up to, and without, `end`."""

    start: int
    end: int


class RecordSource:
    """Fetches from the leaders that a view of the cluster names."""

    def __init__(
        self,
        client: NetworkClient,
        cluster: Callable[[], Cluster],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._isolation = isolation

    async def fetch(
        self,
        spans: Mapping[TopicPartition, Span],
        max_wait_ms: int = 0,
        partition_bytes: int = PARTITION_BYTES,
    ) -> dict[TopicPartition, Chunk | KafkaError]:
        """The first batches of each span, by one request to each leader at the same time.

        A chunk may be empty, where others have filled the response. Brokers answer when there is
        anything, at the latest after `max_wait_ms`.
        """
        found: dict[TopicPartition, Chunk | KafkaError] = {}
        by_leader: dict[int, dict[TopicPartition, Span]] = {}
        cluster = self._cluster()
        for partition, span in spans.items():
            leader = cluster.leader(partition)
            if leader in cluster.nodes:
                by_leader.setdefault(leader, {})[partition] = span
            else:
                found[partition] = InvalidMetadataError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader"
                )
        asked = (self._ask(*each, max_wait_ms, partition_bytes) for each in by_leader.items())
        for answer in await asyncio.gather(*asked):
            found |= answer
        return found

    async def _ask(
        self,
        leader: int,
        spans: Mapping[TopicPartition, Span],
        max_wait_ms: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, Chunk | KafkaError]:
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1 if max_wait_ms else 0,
            max_bytes=RESPONSE_BYTES,
            isolation_level=self._isolation,
            topics=topics_to_fetch(
                {partition: span.start for partition, span in spans.items()}, partition_bytes
            ),
        )
        try:
            response = await fetched_by_names(self._client, leader, request)
            check_code(response.error_code, "fetch of records")
            return self._chunks(spans, response)
        except KafkaError as error:
            return dict.fromkeys(spans, error)

    def _chunks(
        self, spans: Mapping[TopicPartition, Span], response: FetchResponse
    ) -> dict[TopicPartition, Chunk | KafkaError]:
        found: dict[TopicPartition, Chunk | KafkaError] = {}
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                left = UnreadRange(partition, *spans[partition], self._isolation)
                try:
                    found[partition] = chunk_of(left, data)
                except KafkaError as error:
                    found[partition] = error
        return found


def batches_of(chunk: Chunk) -> Iterator[RecordBatch]:
    """The batches of a chunk."""
    for view in chunk.views:
        yield from batches(view)


class ReadPart(NamedTuple):
    """The records of a chunk that may be wanted, and facts of all that were in the span."""

    records: list[FoundRecord]
    number: int
    """How many records there were."""
    times: list[tuple[int, int]]
    """The first, or oldest, timestamp of each batch, and its newest."""
    is_ordered: bool = True
    """Whether the timestamps are in order, as far as the records were read one by one."""


def read_part(
    partition: int,
    chunk: Chunk,
    span: Span,
    may_have: Callable[[bytes | memoryview], bool] | None = None,
) -> ReadPart:
    """Read the records of a chunk within a span; KafkaError for a batch that cannot be read.

    Batches of whose bytes `may_have` is false are not taken apart: their records are only counted.
    """
    records: list[FoundRecord] = []
    times, count, is_ordered = [], 0, True
    for batch in batches_of(chunk):
        if may_have is not None and _is_passed_over(batch, span, may_have):
            count += batch.record_count
            times.append((batch.base_timestamp, batch.max_timestamp))
            continue
        some = records_of(partition, batch, span)
        if some:
            own = [each.timestamp_ms for each in some]
            is_ordered = is_ordered and own == sorted(own)
            times.append((min(own), max(own)))
            count += len(some)
            records += some
    return ReadPart(records, count, times, is_ordered)


def _is_passed_over(
    batch: RecordBatch, span: Span, may_have: Callable[[bytes | memoryview], bool]
) -> bool:
    """Whether no record of a batch is wanted; one that reaches beyond the span is looked at."""
    if batch.magic != MAGIC or batch.base_offset < span.start or batch.next_offset > span.end:
        return False
    return not may_have(batch.payload())


def records_of(partition: int, batch: RecordBatch, span: Span) -> list[FoundRecord]:
    """The records of a batch within a span."""
    start, end = span
    new = tuple.__new__
    return [
        new(FoundRecord, (partition, offset, time_ms, key, value, headers))
        for offset, time_ms, key, value, headers in batch.records()
        if start <= offset < end
    ]


def size_of(chunk: Chunk) -> int:
    """The bytes of a chunk's batches, as they came."""
    return sum(len(view) for view in chunk.views)
