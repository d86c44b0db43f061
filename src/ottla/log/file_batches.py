"""Walking over the record batches of a segment file: headers only, or whole batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final

from ottla.record.record_batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    CorruptRecordError,
    RecordBatch,
    batches,
)
from ottla.runtime import File

MAGIC: Final = 2
HEADER_READ_BYTES: Final = 4096
BATCH_READ_BYTES: Final = 1 << 20

_OLD_MESSAGE: Final = Struct(">8xiIb")
_OLD_CRC_START: Final = 16
_OLD_MIN_LENGTH: Final = 14


def read_headers(
    file: File, position: int, end: int, chunk_bytes: int = HEADER_READ_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Position and header of each batch from `position`, where one begins, to `end`.

    The bytes of a `RecordBatch` from here end with what was read: it has its header and no more.
    Raises CorruptRecordError where no batch can be.
    """
    chunk, start = b"", position
    while position < end:
        if position - start + BATCH_OVERHEAD > len(chunk):
            chunk, start = file.pread(min(chunk_bytes, end - position), position), position
        batch = RecordBatch(chunk, position - start)
        if batch.magic != MAGIC or not BATCH_OVERHEAD <= batch.size_in_bytes <= end - position:
            raise CorruptRecordError(
                f"no batch can begin at position {position} of {file.path}: it would have "
                f"magic {batch.magic} and {batch.size_in_bytes} of {end - position} bytes"
            )
        yield position, batch
        position += batch.size_in_bytes


def read_batches(
    file: File, position: int, end: int, chunk_bytes: int = BATCH_READ_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Position and bytes of each batch from `position` to `end`, CRC checked.

    Raises CorruptRecordError, naming the reason, where a batch is cut off or not valid.
    """
    while position < end:
        chunk = file.pread(min(chunk_bytes, end - position), position)
        consumed = 0
        for batch in batches(chunk):
            batch.verify()
            yield position + consumed, batch
            consumed += batch.size_in_bytes
        if consumed == 0:
            chunk_bytes = _size_of_first(chunk, end - position)
        position += consumed


def read_batch(file: File, position: int, header: RecordBatch) -> RecordBatch:
    """The whole batch of which only the header was read; its CRC is checked."""
    batch = RecordBatch(file.pread(header.size_in_bytes, position))
    batch.verify()
    return batch


def is_old_message(file: File, position: int, end: int) -> bool:
    """Whether a valid message of the formats before 0.11 (magic 0 or 1) is at a position."""
    head = file.pread(_OLD_CRC_START + 1, position)
    if len(head) < _OLD_MESSAGE.size:
        return False
    length, crc, magic = _OLD_MESSAGE.unpack_from(head)
    if magic not in (0, 1) or not _OLD_MIN_LENGTH <= length <= end - position - LOG_OVERHEAD:
        return False
    body = file.pread(LOG_OVERHEAD + length - _OLD_CRC_START, position + _OLD_CRC_START)
    return bool(zlib.crc32(body) == crc)


def _size_of_first(chunk: bytes, left: int) -> int:
    """How much must be read for the first batch of a chunk that does not hold all of it."""
    if len(chunk) < BATCH_OVERHEAD:
        raise CorruptRecordError(f"{left} bytes are too few for the header of a batch")
    header = RecordBatch(chunk)
    if header.magic != MAGIC:
        raise CorruptRecordError(f"magic {header.magic} is not {MAGIC}")
    if header.size_in_bytes > left:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset}: of its {header.size_in_bytes} bytes only "
            f"{left} are there"
        )
    return header.size_in_bytes
