"""A batch of records of one partition, from queueing until its outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ottla.clients.callbacks import tell
from ottla.compiled import mypyc_attr
from ottla.errors import ErrorCode, KafkaError
from ottla.record import kernel
from ottla.record.batch_builder import HeaderFields, build_batch, build_batch_of_section
from ottla.record.compression import CompressionType, compress
from ottla.record.record import HEADER_OVERHEAD
from ottla.runtime.app_loop import resolve
from ottla.runtime.io_thread import Event, Lock, get_ident
from ottla.structs import (
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NO_UUID,
    NamedTuple,
    TopicPartition,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RecordMetadata(NamedTuple):
    """Where a record was written. `offset` is -1 if the broker does not report it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]
"""Called in the I/O thread, in the order of sending per partition, with metadata or an error."""


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers: the arguments of `build_batch`."""

MAX_SEQUENCE = 2**31


LEAST_TO_COMPRESS_AHEAD: Final = 8 * 1024
"""Smaller batches are compressed in less time than it takes to ask another thread for it."""


class CompressedSection(NamedTuple):
    """The records of a batch in a codec, and their first and their latest time."""

    codec: CompressionType
    section: bytes
    times_ms: tuple[int, int]


class BatchFormat(NamedTuple):
    """The settings that all batches of a producer have in common."""

    codec: CompressionType
    level: int | None
    is_transactional: bool
    most_bytes: int
    """A batch that a codec has made larger than this is sent without one, which keeps to it."""


class SenderThread:
    """The thread in which a producer sends, and calls the callbacks of its records.

    What only this thread can bring about is not waited for in it.
    """

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id = 0
        """That of no thread, until the sender has its first turn."""

    @property
    def is_current(self) -> bool:
        return get_ident() == self.id


@mypyc_attr(allow_interpreted_subclasses=True)  # tests split one while it is waited for
class ProducerBatch:
    """Holds records as tuples until they are sent, when all are encoded at once.

    It is open (growing, under the accumulator's lock), then closed (being sent, by the I/O thread
    alone), then done, once: with a base offset, or an error, or split into `parts`.
    """

    __slots__ = (
        "_finished",
        "_lock",
        "_section",
        "_was_compressed",
        "attempts",
        "base_offset",
        "callbacks",
        "created_ms",
        "encoded",
        "error",
        "is_done",
        "is_in_flight",
        "last_error",
        "log_append_time_ms",
        "maybe_appended",
        "order",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "records",
        "reserved",
        "retry_at_ms",
        "sender",
        "sequence",
        "size",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, created_ms: int, reserved: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = NO_UUID  # to which it was sent, where the client knows it
        self.created_ms = created_ms
        self.reserved = reserved  # bytes of buffer.memory
        self.records: list[NewRecord] = []
        self.size = 0  # estimate, before compression
        self.attempts = 0
        self.retry_at_ms = 0
        self.order: tuple[int, ...] = ()  # its position among all batches that were sent
        self.is_in_flight = False
        self.last_error: KafkaError | None = None  # of the last attempt that failed
        self.maybe_appended = False  # an attempt had an uncertain outcome
        self.encoded: bytes | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH
        self.sequence = NO_SEQUENCE
        self.is_done = False
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.error: KafkaError | None = None
        self.record_errors: dict[int, str] = {}
        self.parts: list[tuple[int, ProducerBatch]] = []
        self.callbacks: list[tuple[RecordFuture, OnDelivery]] = []
        self.sender: SenderThread | None = None
        self._finished: Event | None = None
        self._section: CompressedSection | None = None
        self._was_compressed = False
        self._lock = Lock()

    def set_sequence(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Give the batch its sequence number (KIP-98); it must be encoded again."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        self.encoded = None

    def encode(self, form: BatchFormat) -> None:
        """Build the bytes that are sent."""
        self.encoded = self._build(form)
        if len(self.encoded) > form.most_bytes and form.codec is not CompressionType.NONE:
            self.encoded = self._build(form._replace(codec=CompressionType.NONE, level=None))

    def compress(self, form: BatchFormat) -> None:
        """Do the long part of `encode` ahead, in any thread, of a batch that takes no more."""
        try:
            payload, times = self._payload()
            section = compress(form.codec, payload, form.level)
            self._section = CompressedSection(form.codec, section, times)
        finally:
            self._was_compressed = True

    def _payload(self) -> tuple[Buffer, tuple[int, int]]:
        """The encoded records, and their first and their latest time."""
        payload, base_ms, max_ms = kernel.encode_records(cast(Any, self.records))
        return payload, (base_ms, max_ms)

    def takes_long(self, form: BatchFormat) -> bool:
        """Whether `compress` is worth its way to another thread and back."""
        if form.codec is CompressionType.NONE or self.size < LEAST_TO_COMPRESS_AHEAD:
            return False
        return self.encoded is None and not self._was_compressed

    def _has_section(self, form: BatchFormat) -> bool:
        return self._section is not None and self._section.codec is form.codec

    def _build_of_section(self, form: BatchFormat) -> bytes:
        assert self._section is not None, f"{self} was not compressed"
        codec, section, times = self._section
        header = self.header(form)
        return build_batch_of_section(section, times, self.record_count, codec, **header)

    def _build(self, form: BatchFormat) -> bytes:
        if self._has_section(form):
            return self._build_of_section(form)
        header = self.header(form)
        return build_batch(cast(Any, self.records), form.codec, level=form.level, **header)

    def header(self, form: BatchFormat) -> HeaderFields:
        """The fields by which a broker recognises the batch."""
        return HeaderFields(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
            is_transactional=form.is_transactional,
        )

    @property
    def has_sequence(self) -> bool:
        return self.sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence number after that of the last record; it wraps to 0."""
        return (self.sequence + self.record_count) % MAX_SEQUENCE

    @property
    def record_count(self) -> int:
        return len(self.records)

    def complete(self, base_offset: int, log_append_time_ms: int = NO_TIMESTAMP) -> None:
        """The records were written, the first one at `base_offset`."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(self, error: KafkaError, record_errors: dict[int, str] | None = None) -> None:
        """The records were not written; `record_errors` names those at fault by index (KIP-467)."""
        self.error = error
        self.record_errors = record_errors or {}
        self._finish()

    def split(self, max_size: int, now_ms: int) -> list[ProducerBatch]:
        """Split into batches of at most half the size and, if possible, at most `max_size`.

        Records keep their sequence numbers, so order and idempotence are as before.
        """
        limit = min(max_size, max(self.size // 2, 1))
        shares = _share_out(self.records, limit)
        parts = []
        start = 0
        for share in shares:
            part = ProducerBatch(self.topic_partition, self.created_ms, 0)
            part.records = share
            part.size = sum(map(record_size, share))
            part.retry_at_ms = now_ms
            part.sender = self.sender
            part.order = (*self.order, start)
            if self.has_sequence:
                sequence = (self.sequence + start) % MAX_SEQUENCE
                part.set_sequence(self.producer_id, self.producer_epoch, sequence)
            parts.append((start, part))
            start += len(share)
        parts[0][1].reserved, self.reserved = self.reserved, 0
        with self._lock:
            self.parts = parts
            callbacks, self.callbacks = self.callbacks, []
            self._wake_waiters()
        for future, on_delivery in callbacks:
            future.add_on_delivery(on_delivery)
        return [part for _, part in parts]

    def part_of(self, index: int) -> tuple[ProducerBatch, int]:
        """After a split: where record number `index` is now."""
        start, part = next(found for found in reversed(self.parts) if found[0] <= index)
        return part, index - start

    @property
    def is_settled(self) -> bool:
        """Whether the batch is done, or all parts that it was split into are."""
        return self.is_done or (bool(self.parts) and all(part.is_settled for _, part in self.parts))

    def pieces(self, count: int, start: int = 0) -> Iterator[tuple[int, ProducerBatch, int]]:
        """The batches that its `count` records are in, also after splits.

        Of each the number of its first record, counted from `start`, and how many there are.
        """
        if not self.parts:
            yield start, self, count
            return
        ends = [*(each for each, _ in self.parts[1:]), count]
        for (first, part), end in zip(self.parts, ends, strict=True):
            yield from part.pieces(end - first, start + first)

    def wait(self, timeout: float | None) -> bool:
        """Block until the batch and all its parts are done; False after `timeout` seconds.

        RuntimeError in a callback of the producer, where that would never be.
        """
        with self._lock:
            if self._finished is None:
                self._finished = Event()
                if self.is_done or self.parts:
                    self._finished.set()
        is_over = self._finished.is_set()
        if not is_over and timeout != 0 and self.sender is not None and self.sender.is_current:
            raise RuntimeError(f"{self}: a callback of its producer must not wait for it")
        if not self._finished.wait(timeout):
            return False
        return all(part.wait(timeout) for _, part in self.parts)

    def failure(self) -> KafkaError | None:
        """Why the batch, or one of its parts, failed; None if it has not failed (yet)."""
        if self.error is not None:
            return self.error
        failures = (part.failure() for _, part in self.parts)
        return next((error for error in failures if error is not None), None)

    async def settled(self) -> None:
        """Wait, in any event loop, until the batch and all its parts are done."""
        while not self.is_settled:
            if self.parts:
                for _, part in self.parts:
                    await part.settled()
                continue
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            first = RecordFuture(self, 0, 0, 0, 0)
            if self.add_callback(first, partial(_resolve_when_delivered, over)):
                await over

    def add_callback(self, future: RecordFuture, on_delivery: OnDelivery) -> bool:
        """Have `on_delivery` called when the batch is done; False if it is done, or split."""
        with self._lock:
            if self.is_done or self.parts:
                return False
            self.callbacks.append((future, on_delivery))
            return True

    def error_of(self, index: int) -> KafkaError | None:
        """Why record number `index` failed, possibly because of another record of the batch."""
        if self.error is None or not self.record_errors:
            return self.error
        text = self.record_errors.get(index)
        if text is None:
            return KafkaError(self.error.error, "another record of the same batch was refused")
        return KafkaError(ErrorCode.INVALID_RECORD, text)

    def offset_of(self, index: int) -> int:
        return NO_OFFSET if self.base_offset == NO_OFFSET else self.base_offset + index

    def _finish(self) -> None:
        with self._lock:
            self.is_done = True
            callbacks, self.callbacks = self.callbacks, []
            self._wake_waiters()
        self.records = []
        self.encoded = self._section = None
        for future, on_delivery in callbacks:
            future.call(on_delivery)

    def _wake_waiters(self) -> None:
        if self._finished is not None:
            self._finished.set()

    def __str__(self) -> str:
        return f"the batch for {self.topic_partition}"


def _resolve_when_delivered(over: asyncio.Future[None], *_: object) -> None:
    resolve(over)


RECORD_OVERHEAD = 21  # the most that the varints and attributes of a record take up
UTF8_MAX_BYTES = 4


def record_size(record: NewRecord) -> int:
    """An upper estimate of the bytes that a record takes up in a batch, before compression."""
    _, key, value, headers = record
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size + headers_size(headers) if headers else size


def headers_size(headers: Headers) -> int:
    """An upper estimate of the bytes that headers take up."""
    return sum(
        HEADER_OVERHEAD + len(name) * UTF8_MAX_BYTES + len(content or b"")
        for name, content in headers
    )


def _share_out(records: list[NewRecord], limit: int) -> list[list[NewRecord]]:
    """Divide records into runs of at most `limit` bytes, each of at least one record."""
    shares: list[list[NewRecord]] = []
    room = 0
    for record in records:
        size = record_size(record)
        if size > room:
            shares.append([])
            room = limit
        room -= size
        shares[-1].append(record)
    return shares


class RecordFuture:
    """The outcome of one `send`, with the methods of a concurrent.futures.Future.

    It is a place in a batch: the outcome of the batch is recorded once, there, and a million of
    these cost no more than their slots. It cannot be cancelled, as the record is already queued.
    """

    __slots__ = ("_batch", "_index", "_key_size", "_timestamp_ms", "_value_size")

    def __init__(
        self, batch: ProducerBatch, index: int, timestamp_ms: int, key_size: int, value_size: int
    ) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to `timeout` seconds; raises the record's KafkaError, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait up to `timeout` seconds; the record's error, or None when it was written."""
        if not self.done() and not self._batch.wait(timeout):
            raise TimeoutError(f"no response for {self._batch} within {timeout} s")
        self._follow()
        return self._batch.error_of(self._index)

    def done(self) -> bool:
        self._follow()
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """The same in a coroutine, of any event loop; the record is sent if it is cancelled."""
        if not self.done():
            yield from self.settled().__await__()
        return self.result(0)

    async def settled(self) -> None:
        """Wait, in any event loop, until the outcome is known."""
        while not self.done():
            await self._batch.settled()

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(self)` when the outcome is known: in the I/O thread, or now if it is."""
        self.add_on_delivery(lambda metadata, error: callback(self))

    def add_on_delivery(self, on_delivery: OnDelivery) -> None:
        """Like `add_done_callback`, for a callback that takes metadata and error."""
        while not self._batch.add_callback(self, on_delivery):
            if self.done():
                self.call(on_delivery)
                return

    def call(self, on_delivery: OnDelivery) -> None:
        """Pass the outcome to `on_delivery`; exceptions are logged, so that others are called."""
        batch = self._batch
        error = None if batch.error is None else batch.error_of(self._index)
        metadata = None if error else self._metadata()
        tell("the delivery callback %r", on_delivery, on_delivery, metadata, error)

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done()

    def _follow(self) -> None:
        """Refer to the part that now holds the record, if its batch was split."""
        while self._batch.parts:
            self._batch, self._index = self._batch.part_of(self._index)

    def _metadata(self) -> RecordMetadata:
        batch = self._batch
        topic, partition = batch.topic_partition
        appended_ms = batch.log_append_time_ms
        timestamp_ms = self._timestamp_ms if appended_ms == NO_TIMESTAMP else appended_ms
        offset = batch.offset_of(self._index)
        return RecordMetadata(
            topic, partition, offset, timestamp_ms, self._key_size, self._value_size
        )

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<RecordFuture {self._batch.topic_partition} #{self._index} {state}>"
