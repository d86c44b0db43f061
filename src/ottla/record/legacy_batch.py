"""Entries of message sets (magic 0 and 1), seen as batches; `legacy` has their layout.

Only this broker's own old segments, clients of before 0.11 and other brokers' logs have any.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType, decompress
from ottla.record.legacy import (
    ENTRY,
    MAGIC_0,
    MAGIC_1,
    MIN_SIZES,
    NEWEST_CODEC,
    TIMESTAMP,
    MessageSetEntry,
    parse_message,
)
from ottla.record.legacy_lz4 import mend_lz4
from ottla.record.record import COMPRESSION_MASK, LOG_APPEND_TIME_FLAG, CorruptRecordError, Record
from ottla.record.record_batch import RECORDS_IN_A_SLICE, RecordBatch, as_view
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Only this broker's own old segments hold compressed sets. Recovery must not take one for damaged
# and cut it off because it is large.
_MAX_EXTENT_BYTES = 1 << 30


class LegacyBatch(RecordBatch):
    """One entry of a message set in a buffer, seen as a batch: of one record, or of those inside.

    All of its bytes are in the buffer. Base offset and count of a compressed set are known only
    from the messages inside: they are worked out when first used, which decompresses them.
    """

    __slots__ = ("_first_and_count", "_last_offset")
    _first_and_count: tuple[int, int] | None
    _last_offset: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = as_view(buffer)
        self.position = position
        left = len(self.buffer) - position
        if left < ENTRY.size:
            raise CorruptRecordError(f"{max(0, left)} bytes are too few for a message")
        (self._last_offset, self.batch_length, self.crc, self.magic, attributes) = (
            ENTRY.unpack_from(self.buffer, position)
        )
        self._first_and_count = None
        self._check_size(left)
        has_timestamp = self.magic == MAGIC_1
        flags = COMPRESSION_MASK | (LOG_APPEND_TIME_FLAG if has_timestamp else 0)
        self.attributes = attributes & flags
        self.max_timestamp = self.base_timestamp = NO_TIMESTAMP
        if has_timestamp:
            (timestamp_ms,) = TIMESTAMP.unpack_from(self.buffer, position + ENTRY.size)
            self.max_timestamp = self.base_timestamp = timestamp_ms
        self.partition_leader_epoch = self.producer_epoch = NO_EPOCH
        self.producer_id = NO_PRODUCER_ID
        self.base_sequence = NO_SEQUENCE

    def _check_size(self, left: int) -> None:
        if self.magic not in (MAGIC_0, MAGIC_1):
            raise self._corrupt(f"magic {self.magic} is neither {MAGIC_0} nor {MAGIC_1}")
        if self.batch_length < MIN_SIZES[self.magic]:
            raise self._corrupt(f"size {self.batch_length} is below {MIN_SIZES[self.magic]}")
        if self.size_in_bytes > left:
            raise self._corrupt(f"of its {self.size_in_bytes} bytes only {left} are there")

    def __repr__(self) -> str:
        return (
            f"<LegacyBatch magic {self.magic}, last offset {self.last_offset}, "
            f"{self.size_in_bytes} bytes>"
        )

    @property
    def compression(self) -> CompressionType:
        codec = self.attributes & COMPRESSION_MASK
        if codec > NEWEST_CODEC:
            raise self._corrupt(f"codec {codec}, which messages of magic {self.magic} cannot have")
        return CompressionType(codec)

    # These fields of a header need the messages to be read, and are never set.

    @property
    def base_offset(self) -> int:  # type: ignore[override]
        return self._extent()[0]

    @property
    def record_count(self) -> int:  # type: ignore[override]
        return self._extent()[1]

    @property
    def last_offset(self) -> int:
        return self._last_offset

    @property
    def next_offset(self) -> int:
        return self._last_offset + 1

    @property
    def last_offset_delta(self) -> int:  # type: ignore[override]
        return self._last_offset - self.base_offset

    def verify(self) -> None:
        """Raise CorruptRecordError unless its CRC, codec and lengths are right.

        Messages inside are checked when they are read.
        """
        _ = self.compression
        self._message()

    def payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """The message set inside, decompressed within `max_bytes`; the entry if it has no codec."""
        return self._decompressed(max_bytes) if self.compression else self.view

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Every record; raises before the first or not at all."""
        if not self.compression:
            message = self._message()
            record = Record(message.offset, message.timestamp_ms, message.key, message.value, ())
            return iter((record,))
        return iter(self._inner_records(max_bytes))

    def record_slices(self) -> Iterator[list[Record]]:
        """Every record, some at a time; all of a set is decompressed at once."""
        records = self.records()
        while some := list(islice(records, RECORDS_IN_A_SLICE)):
            yield some

    def times(self) -> Iterator[tuple[int, int] | None]:
        """Timestamp and offset of each record; all of a set is decompressed at once."""
        return ((record.timestamp_ms, record.offset) for record in self.records())

    def _message(self) -> MessageSetEntry:
        return parse_message(self.buffer, self.position)

    def _extent(self) -> tuple[int, int]:
        if self._first_and_count is None:
            if self.compression:
                records = self._inner_records(_MAX_EXTENT_BYTES)
                self._first_and_count = records[0].offset, len(records)
            else:
                self._first_and_count = self._last_offset, 1
        return self._first_and_count

    def _decompressed(self, max_bytes: int) -> bytes:
        value = self._message().value
        if value is None:
            raise self._corrupt("a codec, and nothing that it has compressed")
        codec = self.compression
        if codec is CompressionType.LZ4 and self.magic == MAGIC_0:
            value = mend_lz4(value)
        try:
            return decompress(codec, value, max_bytes)
        except CorruptRecordError as error:
            what = f"the message at offset {self._last_offset}: {error.message}"
            raise type(error)(what) from None

    def _inner_records(self, max_bytes: int) -> list[Record]:
        """The messages inside, with the offsets and timestamps that the wrapper gives them."""
        messages = list(self.messages(max_bytes))
        shift = self._last_offset - messages[-1].offset if self.magic == MAGIC_1 else 0
        append_time_ms = self.max_timestamp if self.is_log_append_time else None
        return [
            Record(
                message.offset + shift,
                message.timestamp_ms if append_time_ms is None else append_time_ms,
                message.key,
                message.value,
                (),
            )
            for message in messages
        ]

    def messages(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[MessageSetEntry]:
        """The messages inside a compressed set, as they are stored; there is at least one."""
        data = self._decompressed(max_bytes)
        if not data:
            raise self._corrupt("a compressed message set without a message")
        position = 0
        while position < len(data):
            try:
                message = parse_message(data, position)
            except CorruptRecordError as error:
                raise self._corrupt(f"inside, {error.message}") from None
            if message.magic != self.magic:
                raise self._corrupt(f"a message of magic {message.magic} inside")
            if message.codec:
                raise self._corrupt("a compressed message set inside a compressed message set")
            yield message
            position += message.size_in_bytes

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the message at offset {self._last_offset}: {what}")
