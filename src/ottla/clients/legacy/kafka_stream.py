"""The streams of a connector: blocking iterators, each for one thread of the application.

Beside them the threads that fetch the partitions of a connector and fill its streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ottla.clients.consumer.completed_fetch import Decoding
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.positions import Positions
from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.clients.legacy.assignment import ConsumerThreadId
from ottla.clients.legacy.message import Decoder, Message, MessageAndMetadata
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import Runtime
from ottla.runtime.io_thread import Condition
from ottla.runtime.timing import Deadline
from ottla.structs import Node, TopicPartition


class ConsumerTimeoutError(KafkaTimeoutError):
    """No message came within consumer.timeout.ms; the stream can still be read."""


class OwnedPartition:
    """A partition whose messages a stream returns, for as long as this consumer owns it.

    `consumed_offset` is the one after the last message that the application got, or where
    reading began; None until that is known.
    """

    __slots__ = ("consumed_offset", "is_lost", "stream")

    def __init__(self, stream: KafkaStream, offset: int | None) -> None:
        self.stream = stream
        self.consumed_offset = offset
        self.is_lost = False


class MessageChunk:
    """Messages of one partition that have arrived together; `position` is the next one's.

    `following` has the offset where reading goes on behind each, where that is not the next number.
    """

    __slots__ = ("following", "partition", "position", "records")

    def __init__(
        self,
        partition: OwnedPartition,
        records: Sequence[ConsumerRecord],
        following: Sequence[int] | None = None,
    ) -> None:
        self.partition = partition
        self.records = records
        self.following = following
        self.position = 0

    def take(self) -> ConsumerRecord:
        """The next message, which counts as consumed."""
        record = self.records[self.position]
        following = record.offset + 1 if self.following is None else self.following[self.position]
        self.partition.consumed_offset = following
        self.position += 1
        return record


class KafkaStream:
    """Yields the messages of its partitions as MessageAndMetadata; waits while there is none.

        for message in stream:
            print(message.topic, message.message)

    It ends when the connector is shut down. A message counts as consumed as soon as it was yielded:
    a commit in the loop's body includes it.
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        timeout_ms: int,
        max_chunks: int,
        on_room: Callable[[KafkaStream], object],
    ) -> None:
        self.name = name
        self._decoder = decoder
        self._timeout_ms = timeout_ms
        self._max_chunks = max_chunks
        self._on_room = on_room
        self._changed = Condition()
        self._chunks: deque[MessageChunk] = deque()
        self._is_full = False
        self._is_closed = False
        self._error: KafkaError | None = None

    def __iter__(self) -> KafkaStream:
        return self

    def __next__(self) -> MessageAndMetadata:
        with self._changed:
            chunk = self._next_chunk()
            record = chunk.take()
            if chunk.position == len(chunk.records):
                self._chunks.popleft()
            has_room = self._is_full and len(self._chunks) < self._max_chunks
            if has_room:
                self._is_full = False
        if has_room:
            self._on_room(self)
        event: Any = self._decoder.to_event(Message(record.value, record.key, record.timestamp_ms))
        return MessageAndMetadata(event, record.topic, record.partition, record.offset, record.key)

    def __repr__(self) -> str:
        return f"<KafkaStream {self.name}>"

    # For the connector, on the event loop

    @property
    def is_full(self) -> bool:
        """Whether the stream must be read before it takes more."""
        return self._is_full

    def put(
        self,
        partition: OwnedPartition,
        records: Sequence[ConsumerRecord],
        following: Sequence[int] | None = None,
    ) -> None:
        """Queue messages of a partition, even if the stream is full."""
        with self._changed:
            if partition.is_lost or self._is_closed:
                return
            self._chunks.append(MessageChunk(partition, records, following))
            self._is_full = len(self._chunks) >= self._max_chunks
            self._changed.notify()

    def lose(self, partition: OwnedPartition) -> None:
        """Yield no more messages of a partition: its `consumed_offset` no longer changes."""
        with self._changed:
            partition.is_lost = True
            self._chunks = deque(c for c in self._chunks if c.partition is not partition)
            self._is_full = len(self._chunks) >= self._max_chunks

    def fail(self, error: KafkaError) -> None:
        """Have the reader get an error, once, after the messages that are queued."""
        with self._changed:
            self._error = error
            self._changed.notify()

    def close(self) -> None:
        """End the iteration."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _next_chunk(self) -> MessageChunk:
        """Wait for the first chunk, and return it."""
        limit_s = None if self._timeout_ms < 0 else self._timeout_ms / 1000
        if not self._changed.wait_for(self._has_news, limit_s):
            raise ConsumerTimeoutError(
                f"no message in {self.name} within consumer.timeout.ms={self._timeout_ms}"
            )
        if self._chunks:
            return self._chunks[0]
        if self._error is not None:
            error, self._error = self._error, None
            raise error.with_traceback(None)
        raise StopIteration

    def _has_news(self) -> bool:
        return bool(self._chunks) or self._error is not None or self._is_closed


logger = logging.getLogger(__name__)

RECORDS_AT_ONCE = 500
RESETS = {"smallest": "earliest", "largest": "latest", "none": "none"}
RECONNECT_BACKOFF_MS = 50

StreamOf = Callable[[str, int], KafkaStream]


def fetch_settings(config: ZooKeeperConsumerConfig, brokers: Iterable[Node]) -> ConsumerConfig:
    """The connector's settings in the form of the modern consumer's, for its fetcher."""
    return ConsumerConfig(
        bootstrap_servers=tuple(map(address, brokers)),
        client_id=config.client_id,
        request_timeout_ms=config.socket_timeout_ms,
        receive_buffer_bytes=config.socket_buffersize,
        max_partition_fetch_bytes=config.fetch_size,
        fetch_min_bytes=config.min_fetch_bytes,
        fetch_max_wait_ms=config.max_fetch_wait_ms,
        retry_backoff_ms=config.backoff_increment_ms,
        retry_backoff_max_ms=config.backoff_increment_ms,
        reconnect_backoff_ms=min(RECONNECT_BACKOFF_MS, config.backoff_increment_ms),
        auto_offset_reset=RESETS[config.autooffset_reset],
        allow_auto_create_topics=False,
    )


def address(node: Node) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


class StreamFetcher:
    """Keeps one fetch in flight to each broker that leads an owned partition.

    Invariant: `owned` are the partitions that are fetched; no stream has a chunk of another one.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ZooKeeperConsumerConfig,
        brokers: Mapping[int, Node],
        stream_of: StreamOf,
    ) -> None:
        self.owned: dict[TopicPartition, OwnedPartition] = {}
        self._runtime = runtime
        self._stream_of = stream_of
        settings = fetch_settings(config, brokers.values())
        self._client = NetworkClient(runtime, settings)
        self._metadata = Metadata(
            self._client, allow_auto_topic_creation=False, on_update=self._on_metadata
        )
        self._subscriptions = SubscriptionState()
        self._fetcher = Fetcher(
            self._client, self._metadata, self._subscriptions, settings, Decoding(check_crcs=True)
        )
        self._fetcher.on_arrival = self._on_arrival
        self._positions = Positions(
            self._client, self._metadata, self._subscriptions, settings, None
        )
        self._finding: asyncio.Task[None] | None = None
        self._is_closed = False

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Set the bootstrap addresses, used when no known broker can be reached."""
        if brokers:
            self._client.update_bootstrap([address(node) for node in brokers.values()])

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Fetch these as well."""
        for partition, thread in owners.items():
            stream = self._stream_of(partition.topic, thread.number)
            self.owned[partition] = OwnedPartition(stream, offsets.get(partition))
        self._subscriptions.replace(self.owned)
        for partition in owners:
            if partition in offsets:
                self._subscriptions.state(partition).seek(offsets[partition])
        self._metadata.set_topics({partition.topic for partition in self.owned})
        self._fetch_on()

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching these; returns how far they were consumed, where that is known."""
        offsets = {}
        for partition in partitions:
            owned = self.owned.pop(partition, None)
            if owned is None:
                continue
            owned.stream.lose(owned)
            if owned.consumed_offset is not None:
                offsets[partition] = owned.consumed_offset
        self._subscriptions.replace(self.owned)
        self._metadata.set_topics({partition.topic for partition in self.owned})
        return offsets

    def consumed(self) -> dict[TopicPartition, int]:
        """How far each partition was consumed, where that is known."""
        return {
            partition: owned.consumed_offset
            for partition, owned in self.owned.items()
            if owned.consumed_offset is not None
        }

    def on_room(self, stream: KafkaStream) -> None:
        """A stream that was full has been read: fetch for it again."""
        for partition, owned in self.owned.items():
            if owned.stream is stream:
                self._subscriptions.state(partition).is_paused = False
        self._on_arrival()

    def close(self) -> None:
        self._is_closed = True
        if self._finding is not None:
            self._finding.cancel()
        self._fetcher.close()
        self._metadata.close()
        self._client.close()

    def _on_metadata(self, _: object) -> None:
        self._fetch_on()

    def _fetch_on(self) -> None:
        """Look up missing positions, and fetch the partitions that have one."""
        if self._is_closed:
            return
        if self._finding is None and not self._subscriptions.has_all_positions:
            self._finding = self._runtime.scheduler.spawn(self._find_positions(), "find positions")
        self._fetcher.send_fetches()

    async def _find_positions(self) -> None:
        try:
            await self._learn_topics()
            await self._positions.find()
        except KafkaError as error:
            self._fail(error)
            return
        finally:
            self._finding = None
        for partition, owned in self.owned.items():
            if owned.consumed_offset is None:
                owned.consumed_offset = self._subscriptions.state(partition).position
        self._fetch_on()

    async def _learn_topics(self) -> None:
        """Load the topics' metadata first, so that no fetch fails for lack of a leader."""
        for topic in {partition.topic for partition in self.owned}:
            deadline = Deadline(self._runtime.clock, self._client.config.request_timeout_ms)
            try:
                await self._metadata.topic(topic, deadline)
            except KafkaError as error:
                logger.debug("topic %s cannot be looked up: %s", topic, error)

    def _on_arrival(self) -> None:
        try:
            while not self._is_closed:
                records, _ = self._fetcher.collect(RECORDS_AT_ONCE)
                if not records:
                    break
                self._hand_over(records)
        except KafkaError as error:
            self._fail(error)
        self._fetch_on()

    def _hand_over(self, records: list[ConsumerRecord]) -> None:
        for (topic, number), run in groupby(records, key=lambda r: (r.topic, r.partition)):
            owned = self.owned[TopicPartition(topic, number)]
            owned.stream.put(owned, list(run))
            if owned.stream.is_full:
                self._pause(owned.stream)

    def _pause(self, stream: KafkaStream) -> None:
        for partition, owned in self.owned.items():
            if owned.stream is stream:
                self._subscriptions.state(partition).is_paused = True

    def _fail(self, error: KafkaError) -> None:
        logger.error("the streams cannot be filled: %s", error)
        for stream in {id(owned.stream): owned.stream for owned in self.owned.values()}.values():
            stream.fail(error)
