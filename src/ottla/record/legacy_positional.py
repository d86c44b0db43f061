"""Messages as Kafka 0.7 kept them: found by their position, without offset, key or timestamp.

    length N  4     the bytes that follow
    magic     1     0                          1
    then            CRC-32  4                  attributes  1: bits 0-1 the codec
                    payload N-5                CRC-32      4
                                               payload     N-6

The CRC covers the payload only. The id of a message is the position of its entry in the stream of
its partition, and the next id is 4 + N further. A message with a codec wraps a compressed set of
such entries; those inside have the ids of the wrapper (these are not the magic 0 and 1
of Kafka 0.8 to 0.10, see `legacy`).

Segments are called after the position of their first message: `00000000000.kafka`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType, decompress
from ottla.record.record import CorruptRecordError
from ottla.record.record_batch import as_view
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

LENGTH: Final = Struct(">i")
CRC: Final = Struct(">I")
HEAD_SIZES: Final = (5, 6)  # by magic: how many bytes come before the payload
CODEC_MASK: Final = 0x03
NEWEST_CODEC: Final = CompressionType.SNAPPY


class PositionalMessage(NamedTuple):
    """One entry, its CRC checked; by `codec` the payload is a message or a message set."""

    position: int
    next_position: int
    magic: int
    codec: CompressionType
    crc: int
    payload: bytes

    def inner(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[PositionalMessage]:
        """The messages inside, with the position of the wrapper; itself if it wraps nothing."""
        if self.codec is CompressionType.NONE:
            return [self]
        data = decompress(self.codec, self.payload, max_bytes)
        inside = list(positional_messages(data))
        if not inside or inside[-1].next_position != len(data):
            raise self._corrupt("its compressed message set is empty or ends in a message")
        if any(message.codec is not CompressionType.NONE for message in inside):
            raise self._corrupt("a compressed message set inside a compressed message set")
        return [
            message._replace(position=self.position, next_position=self.next_position)
            for message in inside
        ]

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the message at position {self.position}: {what}")


def positional_messages(buffer: Buffer, first_position: int = 0) -> Iterator[PositionalMessage]:
    """The entries of a segment, or of an answer, up to one that is cut off by the end.

    `first_position` is that of the buffer's beginning in the stream. CorruptRecordError where an
    entry is not valid.
    """
    view = as_view(buffer)
    start = 0
    while start + LENGTH.size <= len(view):
        (length,) = LENGTH.unpack_from(view, start)
        end = start + LENGTH.size + length
        if length < HEAD_SIZES[0]:
            raise _corrupt(first_position + start, f"length {length} is below {HEAD_SIZES[0]}")
        if end > len(view):
            return
        yield _message(view[start + LENGTH.size : end], first_position + start)
        start = end


def _message(body: memoryview, position: int) -> PositionalMessage:
    magic = body[0]
    if magic >= len(HEAD_SIZES):
        raise _corrupt(position, f"magic {magic} is neither 0 nor 1")
    head = HEAD_SIZES[magic]
    if len(body) < head:
        raise _corrupt(position, f"length {len(body)} is below {head}")
    codec = body[1] & CODEC_MASK if magic else CompressionType.NONE
    if codec > NEWEST_CODEC:
        raise _corrupt(position, f"codec {codec} is not known")
    (crc,) = CRC.unpack_from(body, head - CRC.size)
    payload = bytes(body[head:])
    actual = crc32(payload)
    if actual != crc:
        raise _corrupt(position, f"CRC-32 is {actual:#010x} and should be {crc:#010x}")
    following = position + LENGTH.size + len(body)
    return PositionalMessage(position, following, magic, CompressionType(codec), crc, payload)


def encode_positional(
    payload: bytes, magic: int, codec: CompressionType = CompressionType.NONE
) -> bytes:
    """One entry; a payload with a codec is a message set that was compressed with it."""
    attributes = bytes([codec]) if magic else b""
    body = b"".join((bytes([magic]), attributes, CRC.pack(crc32(payload)), payload))
    return LENGTH.pack(len(body)) + body


def _corrupt(position: int, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the message at position {position}: {what}")
