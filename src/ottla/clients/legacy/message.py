"""Messages of the 0.7 design, and the encoders and decoders between them and data."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from ottla.clients.consumer.completed_fetch import split_batches
from ottla.clients.producer.partitioner import key_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Buffer
from ottla.structs import NamedTuple


class Message(NamedTuple):
    """The bytes of one message; it has a key only if a modern producer wrote one."""

    payload: bytes | None
    key: bytes | None = None
    timestamp_ms: int = -1

    @property
    def size(self) -> int:
        """The number of bytes of key and payload."""
        return len(self.payload or b"") + len(self.key or b"")

    @property
    def checksum(self) -> int:
        """The CRC-32 of the payload, which 0.7 wrote in front of it."""
        return zlib.crc32(self.payload or b"")


class MessageAndOffset(NamedTuple):
    """A message and its offset in the partition; continue reading at `next_offset`."""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        return self.offset + 1


class MessageAndMetadata(NamedTuple):
    """An item of a stream: the decoded message and its place."""

    message: Any
    topic: str
    partition: int
    offset: int
    key: bytes | None = None


class MessageSet:
    """The messages of one partition in a fetch response, decoded when they are read.

    Reading raises the KafkaError of the response, if it has one. `next_offset` is where to
    continue: after the last whole batch, even if that has no messages.
    """

    def __init__(self, data: Buffer, offset: int, error: KafkaError | None = None) -> None:
        self.offset = offset
        self.error = error
        self.size_in_bytes = len(memoryview(data))
        self._batches, self._end = split_batches(data)

    @property
    def error_code(self) -> int:
        return int(ErrorCode.NONE if self.error is None else self.error.error)

    @property
    def next_offset(self) -> int:
        last = self._batches[-1].next_offset if self._batches else self.offset
        return max(last, self.offset)

    @property
    def valid_bytes(self) -> int:
        """The number of bytes in whole batches, without an incomplete one at the end."""
        return sum(batch.size_in_bytes for batch in self._batches)

    def __iter__(self) -> Iterator[MessageAndOffset]:
        if self.error is not None:
            raise self.error
        for batch in self._batches:
            if batch.last_offset >= self.offset and not batch.is_control:
                yield from self._messages(batch)
        if self._end is not None:
            raise self._end

    def _messages(self, batch: RecordBatch) -> Iterator[MessageAndOffset]:
        batch.verify()
        for offset, timestamp_ms, key, value, _ in batch.records():
            if offset >= self.offset:
                yield MessageAndOffset(Message(value, key, timestamp_ms), offset)


class Encoder(Protocol):
    """Turns the application's data into messages: the setting serializer.class."""

    def to_message(self, event: Any) -> Message: ...


class Decoder(Protocol):
    """Turns messages of a stream into the application's data."""

    def to_event(self, message: Message) -> Any: ...


class DefaultEncoder:
    """Passes messages as they are; bytes become the payload of a message."""

    def to_message(self, event: Message | bytes | None) -> Message:
        if isinstance(event, Message):
            return event
        if event is None or isinstance(event, bytes):
            return Message(event)
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{event!r} is a {type(event).__name__}; without serializer.class it must be "
            "a Message or bytes",
        )


class StringEncoder:
    """Text as UTF-8."""

    def to_message(self, event: str) -> Message:
        return Message(event.encode())


class DefaultDecoder:
    """The message itself."""

    def to_event(self, message: Message) -> Message:
        return message


class StringDecoder:
    """UTF-8 as text; None stays None."""

    def to_event(self, message: Message) -> str | None:
        return None if message.payload is None else message.payload.decode()


class Partitioner(Protocol):
    """Chooses a partition for a key: the setting partitioner.class.

    The result is an index into the topic's list of (broker, partition), sorted by both; the broker
    is the preferred leader of the partition.
    """

    def partition(self, key: Any, num_partitions: int) -> int: ...


class DefaultPartitioner:
    """Chooses by a hash of the key that is the same in every process.

    Numbers are their own hash. Text and bytes are hashed as Kafka's modern clients hash keys.
    """

    def partition(self, key: Any, num_partitions: int) -> int:
        if isinstance(key, int):
            return abs(key) % num_partitions
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"key {key!r} is a {type(key).__name__}; without partitioner.class it must be "
                "a number, a text or bytes",
            )
        return key_hash(key) % num_partitions
