"""LZ4 frames as messages of magic 0 carry them: with a wrong checksum in the frame's header.

The first writer computed it over the frame's magic number as well. Readers of that time accept
nothing else, so it is still written so for them; magic 1 and batches have the right one (KIP-57).
Neither has the field for the size of the content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer


_FLAGS_POSITION: Final = 4
_CONTENT_SIZE_FLAG: Final = 0x08
_DICTIONARY_FLAG: Final = 0x01
_DESCRIPTOR_BYTES: Final = 2  # flags and block size

_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK: Final = 0xFFFFFFFF
_STRIPE_BYTES: Final = 16


def compress_lz4(data: Buffer, *, wrong_checksum: bool) -> bytes:
    """One frame of independent blocks."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    if not wrong_checksum:
        return frame
    return _with_checksum(frame, _checksum_position(frame), 0)


def mend_lz4(data: Buffer) -> bytes:
    """The frame with the right checksum in its header; unchanged if it is too short."""
    frame = bytes(data)
    if len(frame) <= _FLAGS_POSITION:
        return frame
    position = _checksum_position(frame)
    return frame if position >= len(frame) else _with_checksum(frame, position, _FLAGS_POSITION)


def _checksum_position(frame: bytes) -> int:
    flags = frame[_FLAGS_POSITION]
    size = _DESCRIPTOR_BYTES
    size += 8 if flags & _CONTENT_SIZE_FLAG else 0
    size += 4 if flags & _DICTIONARY_FLAG else 0
    return _FLAGS_POSITION + size


def _with_checksum(frame: bytes, position: int, start: int) -> bytes:
    checksum = xxh32_short(frame[start:position]) >> 8 & 0xFF
    return b"".join((frame[:position], checksum.to_bytes(1, "big"), frame[position + 1 :]))


def xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0, for the few bytes of a frame's header."""
    one, two, three, four, five = _PRIMES
    position = 0
    if len(data) >= _STRIPE_BYTES:
        lanes = [one + two & _MASK, two, 0, -one & _MASK]
        while position + _STRIPE_BYTES <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * two & _MASK, 13) * one & _MASK
                position += 4
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        mixed = sum(_rotate(lane, turn) for lane, turn in turns) & _MASK
    else:
        mixed = five
    mixed = mixed + len(data) & _MASK
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        mixed = _rotate(mixed + word * three & _MASK, 17) * four & _MASK
        position += 4
    for byte in data[position:]:
        mixed = _rotate(mixed + byte * five & _MASK, 11) * one & _MASK
    mixed = (mixed ^ mixed >> 15) * two & _MASK
    mixed = (mixed ^ mixed >> 13) * three & _MASK
    return mixed ^ mixed >> 16


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
