"""The parts of reading and writing that generated codecs call: varints, tagged sections, UUIDs.

Readers get the position where to read and give back the position after it. They may run past the
end of the data by slicing, which raises nothing; the position is compared with the end at last,
and nothing is ever allocated for more elements than there are bytes left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from uuid import UUID

from ottla.protocol.types import BYTES_LIKE, MAX_STRING_BYTES, Buffer, RecordsData

MAX_UVARINT: Final = 0xFFFFFFFF
# Kafka 4.4's limits of one array and of one tagged section, however many bytes follow.
MAX_ELEMENTS: Final = 1_000_000
MAX_TAGGED_FIELDS: Final = 10_000
# Records up to this size are copied beside their neighbours: cheaper than one more part to send.
SMALL_RECORDS_BYTES: Final = 1024
LISTS: Final = (list, tuple)


class RefusedError(ValueError):
    """A value that the protocol has no place for; the text gives the rule and the value."""


def refuse_length(length: int) -> RefusedError:
    if length == -1:
        return RefusedError("null where a value is needed")
    return RefusedError(f"length {length} is negative")


class TooLargeError(RefusedError):
    """A message of more bytes, or of more elements in its arrays, than it may have."""


def refuse_count(count: int, left_bytes: int, left: int = 0) -> RefusedError:
    if count < 0:
        return refuse_length(count)
    if count > MAX_ELEMENTS:
        return RefusedError(f"{count} elements announced, but at most {MAX_ELEMENTS} are read")
    if left < 0:
        return TooLargeError(
            f"{count} elements announced, but only {max(0, count + left)} more are read"
        )
    return RefusedError(f"{count} elements announced, but only {left_bytes} bytes follow")


def refuse_end(position: int, end: int) -> RefusedError:
    if position > end:
        return RefusedError(f"it ends {position - end} bytes too early")
    return RefusedError(f"{end - position} bytes too many")


def uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`: at most 5 bytes, below 2**32."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise RefusedError("a varint is longer than 5 bytes")
    if value > MAX_UVARINT:
        raise RefusedError(f"the varint {value} is larger than 32 bits")
    return value, position


def long_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The varint of several bytes; its `first` byte is just before `position`.

    It stands for a length plus one, so 0 would be a null written in more bytes than it needs.
    """
    second = data[position]
    if 0 < second < 0x80:
        return first - 0x80 + (second << 7), position + 1
    value, position = uvarint(data, position - 1)
    if not value:
        raise RefusedError("null in a varint of several bytes")
    return value, position


def long_count(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The `long_uvarint` of the count plus one of an array, which has a limit of its own."""
    count, position = long_uvarint(data, position, first)
    if count > MAX_ELEMENTS + 1:
        raise refuse_count(count - 1, len(data) - position)
    return count, position


def long_string_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The `long_uvarint` of the length plus one of a string, which Kafka limits."""
    length, position = long_uvarint(data, position, first)
    if length > MAX_STRING_BYTES + 1:
        raise RefusedError(f"a string of {length - 1} bytes is longer than {MAX_STRING_BYTES}")
    return length, position


def tag_count(
    data: Buffer, position: int, count: int, end: int, left: int = MAX_TAGGED_FIELDS
) -> tuple[int, int]:
    """How many tagged fields follow; `count` is the byte just before `position`.

    They count as elements; the message may have `left` more of these.
    """
    if count > 0x7F:
        count, position = uvarint(data, position - 1)
        if count > MAX_TAGGED_FIELDS:
            raise RefusedError(
                f"{count} tagged fields announced, but at most {MAX_TAGGED_FIELDS} are read"
            )
    if count * 2 > end - position or count > left:
        raise refuse_count(count, end - position, left - count)
    return count, position


def tag_header(data: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Tag, position of the payload, position after it."""
    tag, position = uvarint(data, position)
    size, position = uvarint(data, position)
    if size > end - position:
        raise RefusedError(f"tag {tag} has {size} bytes, but only {end - position} follow")
    return tag, position, position + size


def skip_tags(
    data: Buffer, position: int, count: int, end: int, left: int = MAX_TAGGED_FIELDS
) -> tuple[int, int]:
    """The rest of the elements, and the position after a section without a known tag."""
    count, position = tag_count(data, position, count, end, left)
    for _ in range(count):
        _, _, position = tag_header(data, position, end)
    return left - count, position


def refuse_tag_size(tag: int, position: int, stop: int) -> RefusedError:
    return RefusedError(f"tag {tag} is {abs(stop - position)} bytes off its announced size")


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """A UUID from its bytes; cached, since topic ids come again with each request."""
    return UUID(bytes=raw)


def uvarint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length_bytes(length: int) -> bytes:
    """The compact form of the length plus one of a string, which Kafka limits."""
    if length > MAX_STRING_BYTES + 1:
        raise RefusedError(f"a string of {length - 1} bytes is longer than {MAX_STRING_BYTES}")
    return uvarint_bytes(length)


def records_size(records: RecordsData) -> int:
    """How many bytes the records have: bytes-like, a file region, or a list of these."""
    if isinstance(records, BYTES_LIKE):
        return len(records)
    if isinstance(records, LISTS):
        return sum(map(records_size, records))
    return int(records.size)


def append_records(out: bytearray, parts: list[object], records: RecordsData) -> bytearray:
    """Send `records` after `out` without copying them; all that follows goes to the result.

    `parts` gets the parts that are complete, in order.
    """
    if isinstance(records, LISTS):
        for part in records:
            out = append_records(out, parts, part)
        return out
    if isinstance(records, BYTES_LIKE) and len(records) <= SMALL_RECORDS_BYTES:
        out += records
        return out
    if out:
        parts.append(out)
    parts.append(records)
    return bytearray()
