"""Building record batches: one record after the other, or from a list in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from ottla.record import kernel
from ottla.record.compression import CompressionType, compress
from ottla.record.control_record import (
    CONTROL_KEY,
    CONTROL_RECORD_VERSION,
    END_MARKER,
    ControlRecordType,
    EndTransactionMarker,
)
from ottla.record.kernel import crc32c
from ottla.record.record import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_OVERHEAD,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    NewRecord,
    RecordHeaders,
)
from ottla.record.record_batch import (
    ATTRIBUTES,
    BATCH_LENGTH,
    BATCH_LENGTH_POSITION,
    BATCH_OVERHEAD,
    CRC,
    CRC_POSITION,
    CRC_START,
    HEADER,
    MAGIC,
    RecordBatch,
)
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from typing_extensions import Buffer


_MAX_RECORD_OVERHEAD = 36
"""The most that a record takes beside its key, value and headers.

It has three varints of its own, one varlong, the attributes, and the sizes of key and value.
"""
_SHORT_RECORD_OVERHEAD = 12
"""The same for a short record early in a batch that is not stretched over many seconds."""
_SHORT = 8000


class HeaderFields(TypedDict, total=False):
    """The fields of a batch's header that its writer chooses; all have a default."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


class BatchBuilder:
    """Collects the records of one batch; `build` makes its bytes.

    The records are kept as they were given, and encoded and compressed at the end in one go, as
    the kernel is fast at that. The given bytes must not change before `build`.
    """

    __slots__ = ("_base_timestamp", "_records", "compression", "header", "level", "size_in_bytes")

    def __init__(
        self,
        compression: CompressionType = CompressionType.NONE,
        *,
        level: int | None = None,
        **header: Unpack[HeaderFields],
    ) -> None:
        self.compression = compression
        self.level = level
        self.header = header
        self.size_in_bytes = BATCH_OVERHEAD
        self._records: list[NewRecord] = []
        self._base_timestamp = 0

    @property
    def record_count(self) -> int:
        return len(self._records)

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: RecordHeaders = ()
    ) -> int:
        """Add a record and return its offset delta."""
        offset_delta = len(self._records)
        if not offset_delta:
            self._base_timestamp = timestamp_ms
        size = (0 if key is None else len(key)) + (0 if value is None else len(value))
        if (
            size < _SHORT
            and not headers
            and offset_delta < _SHORT
            and -_SHORT < timestamp_ms - self._base_timestamp < _SHORT
        ):
            size += _SHORT_RECORD_OVERHEAD
        else:
            size += _MAX_RECORD_OVERHEAD + _size_of_headers(headers)
        self.size_in_bytes += size
        self._records.append((timestamp_ms, key, value, headers))
        return offset_delta

    def build(self) -> bytes:
        """The bytes of the batch. The builder stays as it is."""
        return build_batch(self._records, self.compression, level=self.level, **self.header)


def build_batch(
    records: Sequence[NewRecord],
    compression: CompressionType = CompressionType.NONE,
    *,
    level: int | None = None,
    **header: Unpack[HeaderFields],
) -> bytes:
    """A batch of `(timestamp_ms, key, value, headers)` tuples."""
    payload, base_timestamp, max_timestamp = kernel.encode_records(records)
    timestamps = (base_timestamp, max_timestamp)
    return build_batch_of_payload(
        payload, timestamps, len(records), compression, level=level, **header
    )


def build_batch_of_values(
    values: Sequence[bytes | None],
    timestamp_ms: int,
    compression: CompressionType = CompressionType.NONE,
    **header: Unpack[HeaderFields],
) -> bytes:
    """A batch of records that have nothing but a value, all of the same time: the fastest way."""
    payload = kernel.encode_values(values)
    timestamps = (timestamp_ms, timestamp_ms)
    return build_batch_of_payload(payload, timestamps, len(values), compression, **header)


def build_batch_of_payload(
    payload: Buffer,
    timestamps: tuple[int, int],
    record_count: int,
    compression: CompressionType = CompressionType.NONE,
    *,
    level: int | None = None,
    **header: Unpack[HeaderFields],
) -> bytes:
    """A batch around encoded records; `timestamps` are the base and the maximum."""
    if compression is not CompressionType.NONE:
        payload = compress(compression, payload, level)
    return _seal(payload, timestamps, record_count, compression, header)


def build_batch_of_section(
    section: Buffer,
    timestamps: tuple[int, int],
    record_count: int,
    compression: CompressionType,
    **header: Unpack[HeaderFields],
) -> bytes:
    """A batch around a records section that is compressed already, as another batch has it."""
    return _seal(section, timestamps, record_count, compression, header)


def recompress(
    batch: RecordBatch, compression: CompressionType, *, level: int | None = None
) -> bytes:
    """The same batch in another codec; the bytes of its records do not change."""
    payload: Buffer = batch.payload()
    if compression is not CompressionType.NONE:
        payload = compress(compression, payload, level)
    head = bytearray(batch.view[:BATCH_OVERHEAD])
    attributes = batch.attributes & ~COMPRESSION_MASK | compression
    length = BATCH_OVERHEAD - LOG_OVERHEAD + len(memoryview(payload))
    BATCH_LENGTH.pack_into(head, BATCH_LENGTH_POSITION, length)
    ATTRIBUTES.pack_into(head, CRC_START, attributes)
    return _with_crc(head, payload)


def with_records(
    batch: RecordBatch, payload: Buffer, record_count: int, base_timestamp: int, max_timestamp: int
) -> bytes:
    """The same batch with fewer records, given as the bytes of an uncompressed records section.

    Offsets, sequence numbers and all else stay as they are (KIP-98: producer state is read from
    the headers of batches). `batch.attributes` may have been changed.
    """
    attributes = batch.attributes
    if not record_count:
        attributes &= ~COMPRESSION_MASK
    elif attributes & COMPRESSION_MASK:
        payload = compress(batch.compression, payload)
    head = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        head,
        0,
        batch.base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(memoryview(payload)),
        batch.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    return _with_crc(head, payload)


def _seal(
    payload: Buffer,
    timestamps: tuple[int, int],
    record_count: int,
    compression: CompressionType,
    header: HeaderFields,
) -> bytes:
    attributes = (
        compression
        | (TRANSACTIONAL_FLAG if header.get("is_transactional") else 0)
        | (CONTROL_FLAG if header.get("is_control") else 0)
    )
    head = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        head,
        0,
        header.get("base_offset", 0),
        BATCH_OVERHEAD - LOG_OVERHEAD + len(memoryview(payload)),
        NO_EPOCH,
        MAGIC,
        0,
        attributes,
        record_count - 1,
        *timestamps,
        header.get("producer_id", NO_PRODUCER_ID),
        header.get("producer_epoch", NO_EPOCH),
        header.get("base_sequence", NO_SEQUENCE),
        record_count,
    )
    return _with_crc(head, payload)


def _with_crc(head: bytearray, payload: Buffer) -> bytes:
    crc = crc32c(payload, crc32c(memoryview(head)[CRC_START:]))
    CRC.pack_into(head, CRC_POSITION, crc)
    return b"".join((head, payload))


def _size_of_headers(headers: RecordHeaders) -> int:
    return sum(
        HEADER_OVERHEAD + 4 * len(key) + (0 if value is None else len(value))
        for key, value in headers
    )


def build_end_transaction_marker(
    marker: EndTransactionMarker, timestamp_ms: int, producer_id: int, producer_epoch: int
) -> bytes:
    """The control batch that commits or aborts the transaction of a producer."""
    if marker.type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise ValueError(f"{marker.type.name} does not end a transaction")
    key = CONTROL_KEY.pack(CONTROL_RECORD_VERSION, marker.type)
    value = END_MARKER.pack(CONTROL_RECORD_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(timestamp_ms, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
