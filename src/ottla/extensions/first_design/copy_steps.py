"""The messages of a topic of the first design as steps of a copy, and the places between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.record.compression import CompressionType, decompress
from ottla.record.legacy_positional import (
    HEAD_SIZES,
    LENGTH,
    PositionalMessage,
    positional_messages,
)
from ottla.record.memory_records import batches
from ottla.record.record import CorruptRecordError
from ottla.runtime import FileRegion
from ottla.structs import NamedTuple

MOST_RECORDS: Final = 500
MOST_RECORD_BYTES: Final = 256 * 1024
MAX_SET_BYTES: Final = 16 * 1024 * 1024
"""A compressed set that becomes more is left out, and told: a few bytes may stand for very many."""


class CopyPlace(NamedTuple):
    """Where copying continues: at a message, behind the first `inside` of those in its set."""

    id: int = 0
    inside: int = 0

    def encode(self) -> bytes:
        return (f"{self.id}/{self.inside}" if self.inside else f"{self.id}").encode()

    @classmethod
    def decode(cls, value: bytes | None) -> CopyPlace | None:
        """The place in a header; None for somebody else's header."""
        first, slash, second = (value or b"").partition(b"/")
        if not first.isdigit() or (slash and not second.isdigit()):
            return None
        return cls(int(first), int(second or 0))


class CopyStep(NamedTuple):
    """A message to be copied, or why one is left out; and where copying continues behind it."""

    place: CopyPlace
    payload: bytes | None = None
    problem: str = ""


def last_place(region: FileRegion, offset: int, header: str) -> tuple[CopyPlace | None, int]:
    """The last place in the headers of some batches, and the offset behind the batches."""
    found: CopyPlace | None = None
    for batch in batches(region.read()):
        offset = batch.next_offset
        for record in () if batch.is_control else batch.records():
            for key, value in record.headers:
                if key == header:
                    found = CopyPlace.decode(value) or found
    return found, offset


def some_of(steps: Iterator[CopyStep]) -> list[CopyStep]:
    """The next steps: as many as one batch may have."""
    found: list[CopyStep] = []
    size = 0
    for step in steps:
        found.append(step)
        size += len(step.payload or b"")
        if len(found) == MOST_RECORDS or size >= MOST_RECORD_BYTES:
            break
    return found


def steps_of(region: FileRegion, place: CopyPlace) -> Iterator[CopyStep]:
    """The messages of a region that begins at a place, up to one that is cut off by its end."""
    data = memoryview(region.read())
    position, skipped = 0, place.inside
    while position + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, position)
        end = position + LENGTH.size + length
        if end > len(data):
            return
        if length < HEAD_SIZES[0]:
            if position:
                return  # those before it are copied first
            raise CorruptRecordError(f"no message begins at {place.id}")
        following = CopyPlace(place.id + end)
        try:
            for entry in positional_messages(data[position:end], place.id + position):
                yield from steps_inside(entry, following, skipped)
        except CorruptRecordError as error:
            yield CopyStep(
                following, problem=f"id {place.id + position} is left out: {error.message}"
            )
        position, skipped = end, 0


def steps_inside(
    entry: PositionalMessage, following: CopyPlace, skipped: int
) -> Iterator[CopyStep]:
    """The message of an entry, or those of its compressed set but the first, which are skipped."""
    if entry.codec is CompressionType.NONE:
        yield CopyStep(following, entry.payload)
        return
    data = decompress(entry.codec, entry.payload, MAX_SET_BYTES)
    last: bytes | None = None
    count = end = 0
    for message in positional_messages(data):
        if message.codec is not CompressionType.NONE:
            break
        if last is not None and count > skipped:
            yield CopyStep(CopyPlace(entry.position, count), last)
        last, end, count = message.payload, message.next_position, count + 1
    is_whole = end == len(data)
    if last is not None and count > skipped:
        yield CopyStep(following if is_whole else CopyPlace(entry.position, count), last)
    if not is_whole:
        raise CorruptRecordError(f"the set at {entry.position} is not one of messages")
    if last is None:
        yield CopyStep(following)
