"""The streams of a connector: blocking iterators, each for one thread of the application."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.clients.legacy.message import Decoder, Message, MessageAndMetadata
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.io_thread import Condition
from ottla.structs import TopicPartition


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


class OwnedPartitions(dict[TopicPartition, OwnedPartition]):
    """The partitions that are fetched; no stream has a chunk of another one."""

    def consumed(self) -> dict[TopicPartition, int]:
        """How far each partition was consumed, where that is known."""
        return {
            partition: owned.consumed_offset
            for partition, owned in self.items()
            if owned.consumed_offset is not None
        }

    def drop(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Let their streams lose these; returns how far they were consumed."""
        dropped = OwnedPartitions({tp: self.pop(tp) for tp in partitions if tp in self})
        for owned in dropped.values():
            owned.stream.lose(owned)
        return dropped.consumed()


class MessageChunk:
    """Messages of one partition that have arrived together; `position` is the next one's.

    `following` has the offset where reading goes on behind each, where that is not the next number.
    """

    __slots__ = ("following", "partition", "position", "records")

    def __init__(
        self,
        partition: OwnedPartition,
        records: Sequence[ConsumerRecord],
        following: Sequence[int] | None,
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


StreamOf = Callable[[str, int], KafkaStream]
