"""The batches in a buffer, one after another, in any format: of a fetch response, or of a file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.record.legacy_batch import LegacyBatch
from ottla.record.record import LOG_OVERHEAD, CorruptRecordError
from ottla.record.record_batch import MAGIC, MAGIC_POSITION, MIN_BATCH_LENGTH, RecordBatch, as_view

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MIN_MESSAGE_LENGTH = 14
_OFFSET_AND_LENGTH = struct.Struct(">qi")


def batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """The batches from `position` on, up to one that is cut off by the buffer's end.

    Each message of an older format comes as a batch of its own, a `LegacyBatch`. Raises
    CorruptRecordError at a length that cannot be one, since nothing can be found behind it.
    """
    view = as_view(buffer)
    end = len(view)
    while position + LOG_OVERHEAD <= end:
        base_offset, batch_length = _OFFSET_AND_LENGTH.unpack_from(view, position)
        if batch_length < MIN_BATCH_LENGTH and not _is_short_message(view, position, batch_length):
            raise CorruptRecordError(
                f"the batch at offset {base_offset}: batch length {batch_length} is below "
                f"{MIN_BATCH_LENGTH}"
            )
        if position + LOG_OVERHEAD + batch_length > end:
            return
        if view[position + MAGIC_POSITION] < MAGIC:
            yield LegacyBatch(view, position)
        else:
            yield RecordBatch(view, position)
        position += LOG_OVERHEAD + batch_length


def in_pieces(buffer: Buffer, most: int) -> Iterator[memoryview]:
    """The buffer in pieces of at most so many batches; the last has what no whole batch can be."""
    view = as_view(buffer)
    start = position = count = 0
    while position + LOG_OVERHEAD <= len(view):
        length = _OFFSET_AND_LENGTH.unpack_from(view, position)[1]
        if length < 0 or position + LOG_OVERHEAD + length > len(view):
            break
        if count == most:
            yield view[start:position]
            start, count = position, 0
        position += LOG_OVERHEAD + length
        count += 1
    if start < len(view):
        yield view[start:]


def batch_at(buffer: Buffer, position: int = 0) -> RecordBatch:
    """The batch at a position, in any format; one in an older format must be complete."""
    view = as_view(buffer)
    if position + MAGIC_POSITION < len(view) and view[position + MAGIC_POSITION] < MAGIC:
        return LegacyBatch(view, position)
    return RecordBatch(view, position)


def _is_short_message(view: memoryview, position: int, length: int) -> bool:
    """Whether a length too small for a batch may be that of a message of an older format."""
    if length < _MIN_MESSAGE_LENGTH:
        return False
    magic_position = position + MAGIC_POSITION
    return magic_position >= len(view) or view[magic_position] < MAGIC
