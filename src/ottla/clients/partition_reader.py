"""Reads ranges of partitions as raw record batches: for Spark, and for tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.answers import only
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings, retry_backoff
from ottla.clients.consumer.completed_fetch import AbortedTransactions, split_batches
from ottla.clients.consumer.position_validator import LogTruncationError, TopicRecreatedError
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import (
    NetworkClient,
    RequestKind,
    check_code,
    connection_id,
    response_error,
)
from ottla.clients.retrying import Retrying, may_pass
from ottla.clients.topic_offsets import (
    EpochQuestion,
    Parting,
    ask_leaders,
    epoch_ends,
    parting_before,
    parting_of,
)
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import HIGHEST_VERSION, NodeConnection
from ottla.protocol.fetch import (
    FIRST_VERSION_OF_CONSUMERS,
    FIRST_VERSION_WITH_FETCHED_EPOCH,
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import (
    DEBUGGING_REPLICA_ID,
    NO_EPOCH,
    NO_UUID,
    IsolationLevel,
    NamedTuple,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.protocol.leader_epoch import EpochEndOffset
    from ottla.record.record_batch import RecordBatch
    from ottla.runtime import Runtime

logger = logging.getLogger(__name__)


class UnreadRange(NamedTuple):
    """The range of a partition that is left to read; `end` is exclusive.

    `epoch` is the leader epoch of the last batch before the start, if that was read, and
    `topic_id` the id of the topic that it was read from.
    """

    partition: TopicPartition
    start: int
    end: int
    isolation: IsolationLevel
    epoch: int = NO_EPOCH
    topic_id: UUID = NO_UUID


class Chunk(NamedTuple):
    """The result of one fetch: views of whole batches, the next offset, the last batch's epoch.

    And the id of the topic, NO_UUID where brokers have none.
    """

    views: list[memoryview]
    next_offset: int
    epoch: int
    topic_id: UUID = NO_UUID

    def rest_of(self, left: UnreadRange) -> UnreadRange:
        """The range that is left behind this chunk."""
        return left._replace(start=self.next_offset, epoch=self.epoch, topic_id=self.topic_id)


class ReadUpTo(NamedTuple):
    """An offset before which everything was read, and the leader epoch of the log that was read:
    that of its leader then, or of the last record before the offset."""

    offset: int
    epoch: int


class Truncation(NamedTuple):
    """The first offset at which a log differs from the records read, None if that is not known;
    and the epoch of the leader that reported it."""

    offset: int | None
    leader_epoch: int


OUTDATED: Final = {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_LEADER_EPOCH}
"""Errors of a broker that may no longer lead, and of those who asked it by old metadata."""

SCAN_FETCH_BYTES: Final = 4 * 1024 * 1024
"""The max.partition.fetch.bytes of a reader of a partition from one end to the other."""


class PartitionReader(ClosedOnExit):
    """A blocking reader of record batches as stored in the log, one fetch ahead.

        with PartitionReader("localhost:9092") as reader:
            for view in reader.read(TopicPartition("pages", 0), 0, 1000):
                ...

    Settings are those of a consumer; max.partition.fetch.bytes is the size of one fetch. Several
    threads may read at the same time. It must be used only in the process that created it.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self._config = ConsumerConfig.parse(merge_settings(bootstrap_servers, settings, keywords))
        self._io = IoThread(f"{self._config.client_id}-reader")
        self._core = self._io.begin_with(self._build())

    def read(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        isolation: str = "read_uncommitted",
        topic_id: UUID = NO_UUID,
    ) -> Iterator[memoryview]:
        """The batches with the records from `start_offset` up to, and without, `end_offset`.

        Each view holds one or more whole batches. The first one may begin, and the last one end,
        outside the range: batches are not cut. Control batches are left out, and for
        read_committed those of aborted transactions. Raises OFFSET_OUT_OF_RANGE if the log does
        not reach back to the start, LogTruncationError if a new leader's log differs from the
        records read (KIP-320), TopicRecreatedError if the topic was deleted and created again
        meanwhile, or since it had `topic_id`, and KafkaTimeoutError if default.api.timeout.ms pass
        without anything new.
        """
        level = IsolationLevel.of(isolation)
        where = TopicPartition(*topic_partition)
        left = UnreadRange(where, start_offset, end_offset, level, topic_id=topic_id)
        limit_ms = self._config.default_api_timeout_ms + self._config.request_timeout_ms + MARGIN_MS
        future = self._io.submit(self._core.fetch(left)) if start_offset < end_offset else None
        while future is not None:
            chunk = self._io.wait(future, limit_ms)
            left = chunk.rest_of(left)
            future = self._io.submit(self._core.fetch(left)) if left.start < end_offset else None
            try:
                yield from chunk.views
            except GeneratorExit:
                if future is not None:
                    future.cancel()
                raise

    def truncations(
        self, positions: Mapping[TopicPartition, ReadUpTo]
    ) -> dict[TopicPartition, Truncation]:
        """The logs that no longer have the records read up to the positions (KIP-320).

        If a leader does not know the epoch at all, it is asked for up to default.api.timeout.ms, as
        it may no longer lead. Brokers before Kafka 2.3 cannot tell, and then none is found.
        """
        if not positions:
            return {}
        limit_ms = self._config.default_api_timeout_ms + self._config.request_timeout_ms + MARGIN_MS
        return self._io.wait(self._io.submit(self._core.truncations(positions)), limit_ms)

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        self._io.close(self._core.close)

    async def _build(self) -> RangeFetcher:
        return RangeFetcher(self._io.runtime, self._config)


class RangeFetcher:
    """The core of a reader: each call of `fetch` returns one chunk that makes progress."""

    def __init__(self, runtime: Runtime, config: ConsumerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._client = NetworkClient(runtime, config)
        self._metadata = Metadata(self._client, allow_auto_topic_creation=False)
        self._backoff = retry_backoff(config, runtime)
        self._retrying = Retrying(self._metadata, self._backoff, runtime.scheduler)

    async def truncations(
        self, positions: Mapping[TopicPartition, ReadUpTo]
    ) -> dict[TopicPartition, Truncation]:
        """Ask the leaders, with retries after errors that may pass."""
        answers = await self._retrying.for_each(
            positions,
            partial(self._ask_for_ends, positions),
            Deadline(self._runtime.clock, self._config.default_api_timeout_ms),
        )
        found = {}
        for where, answer in answers.items():
            parting = parting_by(answer, positions[where].offset)
            if parting is not None:
                leader_epoch = self._metadata.cluster.leader_epoch(where)
                found[where] = Truncation(parting.offset, leader_epoch)
        return found

    async def _ask_for_ends(
        self,
        positions: Mapping[TopicPartition, ReadUpTo],
        pending: list[TopicPartition],
        deadline: Deadline,
    ) -> dict[TopicPartition, EpochEndOffset | KafkaError]:
        self._metadata.want(each.topic for each in pending)
        cluster = self._metadata.cluster
        if any(cluster.partition(each) is None for each in pending):
            cluster = await self._metadata.update(deadline)

        async def ask(
            leader: int, led: list[TopicPartition]
        ) -> dict[TopicPartition, EpochEndOffset | KafkaError]:
            questions = {}
            for each in led:
                epoch, leader_epoch = positions[each].epoch, cluster.leader_epoch(each)
                # A leader of an older epoch does not know the later ones.
                known = leader_epoch if leader_epoch == NO_EPOCH else max(leader_epoch, epoch)
                questions[each] = EpochQuestion(epoch, known)
            ends = await epoch_ends(self._client, leader, questions)
            if any(is_unknown_epoch(end) for end in ends.values()):
                self._metadata.request_update()
            return ends

        return await ask_leaders(self._metadata, pending, ask)

    async def fetch(self, left: UnreadRange) -> Chunk:
        """The next batches of a range; waits and retries for up to default.api.timeout.ms."""
        deadline = Deadline(self._runtime.clock, self._config.default_api_timeout_ms)
        failures, failure = 0, None
        while True:
            try:
                chunk = await self._fetch_once(left, deadline)
                if chunk.next_offset > left.start:
                    return chunk
                left = chunk.rest_of(left)
                failures, failure = 0, None
                await pause(self._runtime.scheduler, self._config.retry_backoff_ms)
            except KafkaError as error:
                is_outdated = isinstance(error, TopicRecreatedError) or error.error in OUTDATED
                is_over = deadline.has_passed or not (error.retriable or is_outdated)
                # The first such error may come from a broker that has lost the partition, or does
                # not know that it no longer leads; or the id from before the topic was made. The
                # metadata are refreshed below. A second one is final.
                if is_over or (failures and not may_pass(error)):
                    raise
                failures, failure = failures + 1, error
                logger.debug("fetch of %s: %s", left.partition, error)
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._runtime.scheduler, delay_ms)
                if is_outdated or error.error.refresh_metadata:
                    await self._metadata.update(deadline)
            if deadline.has_passed:
                why = "" if failure is None else f" ({failure.message})"
                nothing = f"nothing at offset {left.start} of {left.partition}{why}"
                raise deadline.timeout(nothing) from failure

    def close(self) -> None:
        self._metadata.close()
        self._client.close()

    async def _fetch_once(self, left: UnreadRange, deadline: Deadline) -> Chunk:
        leader = await self._metadata.leader(left.partition, deadline)
        connection = await self._client.ready(connection_id(leader, RequestKind.FETCH))
        topic_id = self._metadata.cluster.topics[left.partition.topic].topic_id
        if NO_UUID not in (left.topic_id, topic_id) and left.topic_id != topic_id:
            raise TopicRecreatedError(left.partition, left.start)
        version = connection.version_of(
            FetchRequest,
            FIRST_VERSION_OF_CONSUMERS,
            LAST_VERSION_WITH_NAMES if topic_id == NO_UUID else HIGHEST_VERSION,
        )
        config = self._config
        wanted = FetchPartition(
            partition=left.partition.partition,
            current_leader_epoch=self._metadata.cluster.leader_epoch(left.partition),
            fetch_offset=left.start,
            partition_max_bytes=config.max_partition_fetch_bytes,
        )
        if version >= FIRST_VERSION_WITH_FETCHED_EPOCH:
            wanted.last_fetched_epoch = left.epoch
        topic = FetchTopic(topic=left.partition.topic, topic_id=topic_id, partitions=[wanted])
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=left.isolation,
            topics=[topic],
        )
        response = await _fetched(self._client, connection, request, version)
        check_code(response.error_code, f"fetch of {left.partition}")
        data = only(
            [
                data
                for topic in response.responses
                for data in topic.partitions
                if data.partition_index == left.partition.partition
                and (topic.topic or left.partition.topic) == left.partition.topic
                and topic.topic_id in (NO_UUID, topic_id)
            ],
            left.partition,
        )
        return chunk_of(left, data)._replace(topic_id=topic_id)


def topics_to_fetch(
    offsets: Mapping[TopicPartition, int], partition_bytes: int
) -> list[FetchTopic]:
    """The topics of a request, by their names, for so much of each partition from an offset on."""
    return [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(
                    partition=each,
                    fetch_offset=offsets[TopicPartition(name, each)],
                    partition_max_bytes=partition_bytes,
                )
                for each in partitions
            ],
        )
        for name, partitions in by_topic(offsets).items()
    ]


async def fetched_by_names(
    client: NetworkClient, broker_id: int, request: FetchRequest
) -> FetchResponse:
    """The answer of a broker to a request whose topics have names alone."""
    connection = await client.ready(connection_id(broker_id, RequestKind.FETCH))
    low, high = FIRST_VERSION_OF_CONSUMERS, LAST_VERSION_WITH_NAMES
    version = connection.version_of(FetchRequest, low, high)
    return await _fetched(client, connection, request, version)


async def _fetched(
    client: NetworkClient, connection: NodeConnection, request: FetchRequest, version: int
) -> FetchResponse:
    limit_ms = client.config.request_timeout_ms + request.max_wait_ms
    return cast("FetchResponse", await client.send_on(connection, request, version, limit_ms))


class ReplicaData(NamedTuple):
    """The batches that one replica has from an offset on, and its high watermark."""

    batches: list[RecordBatch]
    high_watermark: int


Replicas = Mapping[int, Mapping[TopicPartition, int]]
"""Brokers by id, each with the partitions to read from it and their offsets."""


class ReplicaReader(ClosedOnExit):
    """Reads partitions from each of their replicas, leading or not: for tools that compare these.

    Settings are those of a consumer; max.partition.fetch.bytes is how much one fetch brings.
    """

    def __init__(self, bootstrap_servers: Servers, settings: Mapping[str, Any]) -> None:
        self._config = ConsumerConfig.parse(merge_settings(bootstrap_servers, settings, {}))
        self._io = IoThread(f"{self._config.client_id}-replica-reader")
        self._client, self._metadata = self._io.begin_with(self._build())

    def fetch(
        self, replicas: Replicas
    ) -> dict[int, dict[TopicPartition, ReplicaData | KafkaError]]:
        """One fetch from each broker, at the same time; waits up to fetch.max.wait.ms for records.

        A broker that does not answer has an error for each of its partitions.
        """
        limit_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        return self._io.run(self._fetch_all(replicas), 2 * limit_ms + MARGIN_MS)

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        self._io.close(self._close)

    def _close(self) -> None:
        self._metadata.close()
        self._client.close()

    async def _build(self) -> tuple[NetworkClient, Metadata]:
        client = NetworkClient(self._io.runtime, self._config)
        return client, Metadata(client, allow_auto_topic_creation=False)

    async def _fetch_all(
        self, replicas: Replicas
    ) -> dict[int, dict[TopicPartition, ReplicaData | KafkaError]]:
        deadline = Deadline(self._io.runtime.clock, self._config.request_timeout_ms)
        await self._metadata.update(deadline)
        found = await asyncio.gather(*(self._fetch(*each) for each in replicas.items()))
        return dict(zip(replicas, found, strict=True))

    async def _fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ReplicaData | KafkaError]:
        config = self._config
        request = FetchRequest(
            replica_id=DEBUGGING_REPLICA_ID,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            topics=topics_to_fetch(offsets, config.max_partition_fetch_bytes),
        )
        try:
            response = await fetched_by_names(self._client, broker_id, request)
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        return {
            partition: replica_data(partition, data)
            for topic in response.responses
            for data in topic.partitions
            for partition in [TopicPartition(topic.topic, data.partition_index)]
        }


def replica_data(partition: TopicPartition, data: PartitionData) -> ReplicaData | KafkaError:
    """A replica's answer about one partition."""
    refused = response_error(data.error_code, f"partition {partition}")
    if refused is not None:
        return refused
    found, malformed = split_batches(data.records or b"")
    if malformed is not None and not found:
        return malformed
    return ReplicaData(found, data.high_watermark)


def is_unknown_epoch(answer: object) -> bool:
    """Whether a leader does not know the epoch of the request."""
    return isinstance(answer, KafkaError) and answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH


def parting_by(answer: EpochEndOffset | KafkaError, offset: int) -> Parting | None:
    """Where the log differs from the records read up to `offset`, by its leader; or raises."""
    if not isinstance(answer, KafkaError):
        return parting_before(offset, answer)
    if answer.error is ErrorCode.UNSUPPORTED_VERSION:
        return None
    if is_unknown_epoch(answer):
        return Parting(None, NO_EPOCH)  # after all retries: it is another topic of that name
    raise answer


def chunk_of(left: UnreadRange, data: PartitionData) -> Chunk:
    """The wanted batches of a response, as views that are as long as possible."""
    what = f"offset {left.start} of {left.partition}"
    refused = response_error(data.error_code, what)
    if refused is not None:
        raise refused
    if data.diverging_epoch is not None:
        parting = parting_of(data.diverging_epoch)
        if parting.offset is None or parting.offset < left.start:
            raise LogTruncationError(left.partition, left.start, parting.offset)
        # The log has the records, but no such epoch: its last batch was compacted away.
        return Chunk([], left.start, parting.epoch)
    found, malformed = split_batches(data.records or b"")
    if malformed is not None and not found:
        raise malformed
    aborted = None
    if left.isolation is IsolationLevel.READ_COMMITTED:
        entries = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        aborted = AbortedTransactions(entries)
    runs: list[list[RecordBatch]] = [[]]
    next_offset, epoch = left.start, left.epoch
    for batch in found:
        if batch.base_offset >= left.end:
            next_offset = left.end
            break
        next_offset = max(next_offset, batch.next_offset)
        epoch = batch.partition_leader_epoch
        is_hidden = aborted is not None and aborted.hides(batch)
        if batch.is_control or is_hidden or batch.last_offset < left.start:
            runs.append([])
        else:
            runs[-1].append(batch)
    return Chunk([view_of(run) for run in runs if run], next_offset, epoch)


def view_of(run: list[RecordBatch]) -> memoryview:
    """The bytes of adjacent batches, as one view."""
    first, last = run[0], run[-1]
    return first.buffer[first.position : last.position + last.size_in_bytes]
