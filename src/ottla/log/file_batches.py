"""The record batches of a segment file, one after another: headers only, or whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ottla.record.memory_records import batch_at, batches
from ottla.record.record import LOG_OVERHEAD
from ottla.record.record_batch import (
    BATCH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    CorruptRecordError,
    RecordBatch,
)
from ottla.runtime import File

HEADER_READ_BYTES: Final = 4096
BATCH_READ_BYTES: Final = 1 << 20

_LENGTH: Final = Struct(">8xi")


def read_headers(
    file: File, position: int, end: int, chunk_bytes: int = HEADER_READ_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Position and header of each batch from `position`, where one begins, to `end`.

    These batches may be cut off behind their headers: only the header can be relied on. A message
    of an older format is a batch of its own, and whole. Raises CorruptRecordError where no batch
    can be.
    """
    chunk, start = b"", position
    while position < end:
        index = position - start
        if index + BATCH_OVERHEAD > len(chunk):
            chunk, start = file.pread(min(chunk_bytes, end - position), position), position
            index = 0
        if index + MAGIC_POSITION < len(chunk) and chunk[index + MAGIC_POSITION] < MAGIC:
            batch = _old_message(file, position, end, chunk, index)
            yield position, batch
            position += batch.size_in_bytes
            continue
        batch = RecordBatch(chunk, index)
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
    """The whole batch of a header that was read; its CRC is checked."""
    batch = batch_at(file.pread(header.size_in_bytes, position))
    batch.verify()
    return batch


def _old_message(file: File, position: int, end: int, chunk: bytes, index: int) -> RecordBatch:
    """The message of an older format at a position; at least its header is in `chunk`.

    It is read as a whole: it is small, and its header does not describe its records.
    """
    size = LOG_OVERHEAD + int(_LENGTH.unpack_from(chunk, index)[0])
    if index + size <= len(chunk):
        return batch_at(chunk, index)
    if size > end - position:
        raise CorruptRecordError(
            f"no message can begin at position {position} of {file.path}: it would have {size} of "
            f"{end - position} bytes"
        )
    return batch_at(file.pread(size, position))


def _size_of_first(chunk: bytes, left: int) -> int:
    """How much must be read for the first batch of a chunk that does not hold all of it."""
    if len(chunk) > MAGIC_POSITION and chunk[MAGIC_POSITION] < MAGIC:
        size = LOG_OVERHEAD + int(_LENGTH.unpack_from(chunk)[0])
        if size > left:
            raise CorruptRecordError(f"of the {size} bytes of a message only {left} are there")
        return size
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
