"""A connection to a broker that speaks the protocol of Kafka 0.7, and the messages in its answers.

That protocol has no answer to a produce. Where one is wanted (acks), a request for offsets is sent
behind it: brokers answer in order, and close the connection where they do not take a message set,
so that its answer says that the messages are in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from ottla.clients.legacy.message import Message, MessageAndOffset, MessageSet
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.network.node_connection import ConnectionSettings
from ottla.network.response_reader import ResponseReader
from ottla.protocol.fetch import PartitionData
from ottla.protocol.first_design import (
    ToAppend,
    ToFind,
    ToRead,
    decode_answer,
    decode_multi_answer,
    decode_offsets_answer,
    encode_fetch,
    encode_offsets,
    encode_produce,
)
from ottla.record.compression import CompressionType, compress
from ottla.record.legacy_positional import LENGTH, encode_positional, positional_messages
from ottla.runtime import Buffer, Runtime
from ottla.runtime.network import StreamOptions
from ottla.runtime.scheduler import pause, within
from ottla.structs import LATEST_TIMESTAMP, Node, TopicPartition

T = TypeVar("T")
MAGIC_WITH_CODEC: Final = 1
CODECS: Final = (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY)
POLL_PAUSE_MS: Final = 50
"""Brokers of 0.7 do not wait for messages: who wants to wait asks again so often."""
REQUEST_BYTES: Final = 8 * 1024 * 1024
REQUEST_SETS: Final = 500


class FirstDesignLink:
    """A connection to one broker, opened when it is needed and reopened after it broke."""

    def __init__(self, runtime: Runtime, node: Node, settings: ConnectionSettings) -> None:
        self.node = node
        self._runtime = runtime
        self._settings = settings
        self._opening = asyncio.Lock()
        self._channel: FirstDesignChannel | None = None
        self._is_closed = False

    async def fetch(
        self, wanted: Mapping[TopicPartition, tuple[int, int]], max_wait_ms: int, min_bytes: int
    ) -> dict[TopicPartition, PartitionData]:
        """Fetch partitions, given by id and maximum bytes, asking again for as long as it waits."""
        until_ms = self._runtime.clock.monotonic_ms() + max_wait_ms
        while True:
            found = await self._fetch(wanted)
            size = sum(len(data.records) for data in found.values())
            has_error = any(data.error_code for data in found.values())
            left_ms = until_ms - self._runtime.clock.monotonic_ms()
            if size >= min_bytes or has_error or left_ms <= 0:
                return found
            await pause(self._runtime.scheduler, min(POLL_PAUSE_MS, left_ms))

    async def _fetch(
        self, wanted: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, PartitionData]:
        places = [
            ToRead(topic, number_of(partition), position, size)
            for (topic, partition), (position, size) in wanted.items()
        ]
        error, body = await self._ask(encode_fetch(places))
        if len(places) == 1:
            answers = [(error, body)]
        else:
            answers = self._decoded(partial(decode_multi_answer, body, len(places)))
        return {
            partition: PartitionData(
                partition_index=partition.partition, error_code=int(error), records=data
            )
            for partition, (error, data) in zip(wanted, answers, strict=True)
        }

    async def offsets_before(
        self, partition: TopicPartition, time_ms: int, max_offsets: int
    ) -> list[int]:
        """The ids at which files begin that were last written to before a time, newest first."""
        wanted = ToFind(partition.topic, number_of(partition.partition), time_ms, max_offsets)
        error, body = await self._ask(encode_offsets(wanted))
        failure = response_error(int(error), f"offsets of {partition}")
        if failure is not None:
            raise failure
        return self._decoded(partial(decode_offsets_answer, body))

    async def produce(
        self,
        sets: Mapping[TopicPartition, Sequence[Message]],
        codec_of: Callable[[str], CompressionType],
        acks: int,
    ) -> None:
        """Send message sets; with acks, return when the broker has them.

        Raises: KafkaError: NETWORK_EXCEPTION where the broker has closed the connection, as it
        does after a request that it refuses; INVALID_RECORD for a message that 0.7 cannot keep.
        """
        encoded = [
            ToAppend(topic, number_of(number), encode_set(messages, codec_of(topic)))
            for (topic, number), messages in sets.items()
        ]
        for part in in_requests(encoded):
            channel = await self._open()
            channel.send(encode_produce(part))
            if acks:
                topic, number, _ = part[0]
                wanted = ToFind(topic, max(0, number), LATEST_TIMESTAMP, 1)
                await self._answer(channel, encode_offsets(wanted))

    def close(self) -> None:
        self._is_closed = True
        if self._channel is not None:
            self._channel.close("the client is closed")

    async def _ask(self, request: bytes) -> tuple[ErrorCode, memoryview]:
        """Ask, with one more try on a new connection if the old one is broken."""
        was_open = self._channel is not None and not self._channel.close_reason
        try:
            return await self._answer(await self._open(), request)
        except KafkaError as error:
            if not was_open or error.error is not ErrorCode.NETWORK_EXCEPTION:
                raise
            return await self._answer(await self._open(), request)

    async def _answer(
        self, channel: FirstDesignChannel, request: bytes
    ) -> tuple[ErrorCode, memoryview]:
        timeout_ms = self._settings.request_timeout_ms
        try:
            answer = await within(
                self._runtime.scheduler, timeout_ms, channel.ask(request), f"{self.node} answers"
            )
        except KafkaError as error:
            channel.close(f"no answer: {error.message}")
            raise
        return self._decoded(partial(decode_answer, answer))

    def _decoded(self, decode: Callable[[], T]) -> T:
        """What an answer says; one that says nothing is an error of the network."""
        try:
            return decode()
        except RemoteProtocolError as error:
            if self._channel is not None:
                self._channel.close(error.message)
            raise _network_error(
                f"{self.node} does not speak as 0.7 does: {error.message}"
            ) from None

    async def _open(self) -> FirstDesignChannel:
        async with self._opening:
            channel = self._channel
            if channel is None or channel.close_reason:
                if self._is_closed:
                    raise _network_error(f"the connection to {self.node} was closed")
                channel = self._channel = await self._connect()
            return channel

    async def _connect(self) -> FirstDesignChannel:
        settings, node = self._settings, self.node
        options = StreamOptions(settings.send_buffer_bytes, settings.receive_buffer_bytes)
        connecting = self._runtime.network.connect(
            lambda: FirstDesignChannel(str(node)), node.host, node.port, options
        )
        timeout_ms = settings.socket_connection_setup_timeout_ms
        try:
            _, channel = await within(
                self._runtime.scheduler, timeout_ms, connecting, f"no connection to {node}"
            )
        except OSError as error:
            raise _network_error(f"cannot connect to {node}: {error}") from error
        return channel


class FirstDesignChannel(asyncio.BufferedProtocol):
    """One stream to a broker of 0.7: answers come in the order of the requests that have one."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.close_reason = ""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader()
        self._waiting: deque[asyncio.Future[memoryview]] = deque()

    def send(self, request: bytes) -> None:
        """Send a request that has no answer."""
        if self.close_reason:
            raise self._closed_error()
        cast("asyncio.Transport", self._transport).write(request)

    def ask(self, request: bytes) -> asyncio.Future[memoryview]:
        """Send a request; the future is its answer without the size."""
        self.send(request)
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def close(self, reason: str) -> None:
        """Close; requests that wait for an answer fail."""
        if self.close_reason:
            return
        self.close_reason = reason
        if self._transport is not None:
            self._transport.close()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(self._closed_error())

    def _closed_error(self) -> KafkaError:
        return _network_error(f"the connection to {self.peer} is closed: {self.close_reason}")

    # For asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc) if exc else "the broker has closed it; its log says why")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
        except RemoteProtocolError as error:
            self.close(error.message)
            return
        for frame in frames:
            if not self._waiting:
                self.close("an answer to no request")
                return
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(frame)


def _network_error(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.NETWORK_EXCEPTION, message)


def number_of(partition: int) -> int:
    """The number that a broker gives to a partition, of one that is named with its broker."""
    return getattr(partition, "number", partition)


def encode_set(messages: Sequence[Message], codec: CompressionType) -> bytes:
    """Messages as entries; with a codec they are one message, which wraps them compressed.

    Raises:
        KafkaError: INVALID_RECORD for a message with a key, or without a payload: 0.7 has no place
            for either; UNSUPPORTED_COMPRESSION_TYPE for a codec of later.
    """
    if codec not in CODECS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"0.7 has gzip and snappy, and no {codec.label}"
        )
    entries = []
    for message in messages:
        if message.payload is None or message.key is not None:
            what = "no payload" if message.payload is None else "a key"
            raise KafkaError(ErrorCode.INVALID_RECORD, f"a message with {what}: 0.7 has none such")
        entries.append(encode_positional(message.payload, MAGIC_WITH_CODEC))
    data = b"".join(entries)
    if codec is CompressionType.NONE or not entries:
        return data
    return encode_positional(compress(codec, data), MAGIC_WITH_CODEC, codec)


def in_requests(sets: Sequence[ToAppend]) -> Iterator[list[ToAppend]]:
    """Message sets in requests that are not too large for a broker, each with one at least."""
    part: list[ToAppend] = []
    size = 0
    for each in sets:
        size += len(each.messages)
        if part and (size > REQUEST_BYTES or len(part) == REQUEST_SETS):
            yield part
            part, size = [], len(each.messages)
        part.append(each)
    if part:
        yield part


class PositionalMessageAndOffset(MessageAndOffset):
    """A message, its id, and the id after it, where reading continues.

    Of the messages in a compressed set only the last one leads behind the set: a reader that stops
    in the middle of it reads all of it again.
    """

    _following: int

    @classmethod
    def of(cls, payload: bytes, position: int, following: int) -> PositionalMessageAndOffset:
        made = cls(Message(payload), position)
        made._following = following
        return made

    @property
    def next_offset(self) -> int:
        return self._following


class PositionalMessageSet(MessageSet):
    """The entries of an answer, from the id that was asked for; the last may be cut off."""

    def __init__(self, data: Buffer, offset: int, error: KafkaError | None = None) -> None:
        self.offset = offset
        self.error = error
        self._data = memoryview(data)
        self.size_in_bytes = len(self._data)
        self._whole_bytes: int | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + self.valid_bytes

    @property
    def valid_bytes(self) -> int:
        if self._whole_bytes is None:
            position = 0
            while (end := self._end_of(position)) is not None:
                position = end
            self._whole_bytes = position
        return self._whole_bytes

    @property
    def needed_bytes(self) -> int:
        """How many bytes the first message has, where something came, and not all of it; else 0."""
        if self.valid_bytes or not self.size_in_bytes:
            return 0
        if self.size_in_bytes < LENGTH.size:
            return LENGTH.size
        size: int = LENGTH.size + max(0, LENGTH.unpack_from(self._data)[0])
        return size if size > self.size_in_bytes else 0

    def _end_of(self, position: int) -> int | None:
        if position + LENGTH.size > len(self._data):
            return None
        end: int = position + LENGTH.size + LENGTH.unpack_from(self._data, position)[0]
        return end if position < end <= len(self._data) else None

    def __iter__(self) -> Iterator[MessageAndOffset]:
        if self.error is not None:
            raise self.error
        if self.needed_bytes:
            raise KafkaError.of(
                ErrorCode.INVALID_FETCH_SIZE,
                f"the message at {self.offset} has {self.needed_bytes} bytes, and "
                f"{self.size_in_bytes} were fetched",
            )
        for entry in positional_messages(self._data, self.offset):
            inside = entry.inner()
            for message in inside[:-1]:
                yield PositionalMessageAndOffset.of(message.payload, entry.position, entry.position)
            yield PositionalMessageAndOffset.of(
                inside[-1].payload, entry.position, entry.next_position
            )
