"""Reads ranges of partitions as raw record batches: for Spark, and for tools."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from ottla.clients.client_settings import Servers, merge_settings
from ottla.clients.closing import ClosedOnExit
from ottla.clients.consumer.completed_fetch import AbortedTransactions, split_batches
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import (
    NetworkClient,
    Purpose,
    connection_id,
    response_error,
)
from ottla.clients.retrying import may_pass
from ottla.clients.topic_offsets import IsolationLevel
from ottla.config.consumer_config import ConsumerConfig
from ottla.errors import KafkaError
from ottla.network.timing import Backoff, Deadline, pause
from ottla.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Runtime
from ottla.runtime.io_thread import IoThread
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

FIRST_VERSION = 4
LAST_VERSION_WITH_NAMES = 12
MARGIN_MS = 5000


class OffsetRange(NamedTuple):
    """What is left to read of a partition: `end` is not part of it."""

    partition: TopicPartition
    start: int
    end: int
    isolation: IsolationLevel


class Chunk(NamedTuple):
    """The answer to one fetch: views of whole batches, and where to go on."""

    views: list[memoryview]
    next_offset: int


class PartitionReader(ClosedOnExit):
    """A blocking reader of record batches as the log has them, one fetch ahead.

        with PartitionReader("localhost:9092") as reader:
            for view in reader.read(TopicPartition("pages", 0), 0, 1000):
                ...

    Settings are those of a consumer; max.partition.fetch.bytes is the size of one fetch. Several
    threads may read at the same time. It belongs to the process that made it.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self._config = ConsumerConfig.parse(merge_settings(bootstrap_servers, settings, keywords))
        self._is_closed = False
        self._io = IoThread(f"{self._config.client_id}-reader")
        self._core = self._io.begin_with(self._build())

    def read(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        isolation: str = "read_uncommitted",
    ) -> Iterator[memoryview]:
        """The batches with the records from `start_offset` up to, and without, `end_offset`.

        Each view holds one or more whole batches. The first one may begin, and the last one end,
        outside the range: batches are not cut. Control batches are left out, and for
        read_committed those of aborted transactions. Raises OFFSET_OUT_OF_RANGE if the log does
        not reach back to the start, and KafkaTimeoutError if default.api.timeout.ms pass without
        anything new.
        """
        level = IsolationLevel.of(isolation)
        left = OffsetRange(TopicPartition(*topic_partition), start_offset, end_offset, level)
        limit_ms = self._config.default_api_timeout_ms + self._config.request_timeout_ms + MARGIN_MS
        future = self._io.submit(self._core.fetch(left)) if start_offset < end_offset else None
        while future is not None:
            chunk = self._io.wait(future, limit_ms)
            left = left._replace(start=chunk.next_offset)
            future = self._io.submit(self._core.fetch(left)) if left.start < end_offset else None
            try:
                yield from chunk.views
            except GeneratorExit:
                if future is not None:
                    future.cancel()
                raise

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._io.post(self._core.close)
            self._io.close()

    async def _build(self) -> RangeFetcher:
        return RangeFetcher(self._io.runtime, self._config)


class RangeFetcher:
    """The core of a reader: one answer with something in it for each call of `fetch`."""

    def __init__(self, runtime: Runtime, config: ConsumerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._client = NetworkClient(runtime, config)
        self._metadata = Metadata(self._client, allow_auto_topic_creation=False)
        self._backoff = Backoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, runtime.random.random
        )

    async def fetch(self, left: OffsetRange) -> Chunk:
        """The next batches of a range; waits, and tries again, until default.api.timeout.ms."""
        deadline = Deadline(self._runtime.clock, self._config.default_api_timeout_ms)
        failures = 0
        while True:
            try:
                chunk = await self._fetch_once(left, deadline)
                if chunk.next_offset > left.start:
                    return chunk
                failures = 0
            except KafkaError as error:
                is_over = deadline.has_passed or not error.retriable
                # A broker that has lost the partition says so once; then the metadata know better.
                if is_over or (failures and not may_pass(error)):
                    raise
                failures += 1
                logger.debug("fetch of %s: %s", left.partition, error)
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._runtime.scheduler, delay_ms)
                if error.error.refresh_metadata:
                    await self._metadata.update(deadline)
            if deadline.has_passed:
                raise deadline.timeout(f"nothing at offset {left.start} of {left.partition}")

    def close(self) -> None:
        self._metadata.close()
        self._client.close()

    async def _fetch_once(self, left: OffsetRange, deadline: Deadline) -> Chunk:
        leader = await self._metadata.leader(left.partition, deadline)
        connection = await self._client.ready(connection_id(leader, Purpose.FETCH))
        topic_id = self._metadata.cluster.topics[left.partition.topic].topic_id
        if topic_id == NO_UUID:
            version = connection.version_of(FetchRequest, FIRST_VERSION, LAST_VERSION_WITH_NAMES)
        else:
            version = connection.version_of(FetchRequest, FIRST_VERSION)
        config = self._config
        topic = FetchTopic(
            topic=left.partition.topic,
            partitions=[
                FetchPartition(
                    partition=left.partition.partition,
                    fetch_offset=left.start,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            ],
        )
        if version > LAST_VERSION_WITH_NAMES:
            topic.topic_id = topic_id
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=left.isolation,
            topics=[topic],
        )
        limit_ms = config.request_timeout_ms + config.fetch_max_wait_ms
        response = cast(
            FetchResponse, await self._client.send_on(connection, request, version, limit_ms)
        )
        error = response_error(response.error_code, f"fetch of {left.partition}")
        if error is not None:
            raise error
        ((data,),) = (topic.partitions for topic in response.responses)
        return chunk_of(left, data)


def chunk_of(left: OffsetRange, data: PartitionData) -> Chunk:
    """The wanted batches of an answer, as views that are as long as possible."""
    what = f"offset {left.start} of {left.partition}"
    refused = response_error(data.error_code, what)
    if refused is not None:
        raise refused
    found, malformed = split_batches(data.records or b"")
    if malformed is not None and not found:
        raise malformed
    aborted = None
    if left.isolation is IsolationLevel.READ_COMMITTED:
        entries = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        aborted = AbortedTransactions(entries)
    runs: list[list[RecordBatch]] = [[]]
    next_offset = left.start
    for batch in found:
        if batch.base_offset >= left.end:
            next_offset = left.end
            break
        next_offset = max(next_offset, batch.next_offset)
        is_hidden = aborted is not None and aborted.hides(batch)
        if batch.is_control or is_hidden or batch.last_offset < left.start:
            runs.append([])
        else:
            runs[-1].append(batch)
    return Chunk([view_of(run) for run in runs if run], next_offset)


def view_of(run: list[RecordBatch]) -> memoryview:
    """The bytes of batches that stand one behind the other."""
    first, last = run[0], run[-1]
    return first.buffer[first.position : last.position + last.size_in_bytes]
