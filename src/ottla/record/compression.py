"""The codecs of record batches: compress, and decompress within a limit.

Each codec's library is imported when the codec is first used. Compressed data come from a peer, so
the caller says how many bytes they may become: more raise `DecompressionLimitError` before memory
is spent on them, even if the input is small or declares another size.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.record.record import CorruptRecordError, DecompressionLimitError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024

# Snappy as snappy-java frames it ("xerial" is the name of its author): a magic, two versions, then
# blocks of at most 32 KiB of input, each behind its compressed size.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

# Bytes after a finished gzip or lz4 frame are fed in pieces: the libraries copy the unused rest of
# their input at the end of each frame, and a batch may consist of thousands of tiny frames.
_PIECE_BYTES = 16 * 1024
_FIRST_READ_BYTES = 64 * 1024
_MAX_FRAMES = 4096
_GZIP_WBITS = 31
# Java's lz4 writer takes its fast compressor for the default level of compression.lz4.level.
_LZ4_DEFAULT_LEVEL = 9
_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAX_HEADER_BYTES = 18
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RUN_BLOCK, _ZSTD_COMPRESSED_BLOCK = 1, 2
_ZSTD_MIN_WINDOW_BYTES = 8 * 1024 * 1024
_ZSTD_MAX_WINDOW_BYTES = 128 * 1024 * 1024


class CompressionType(IntEnum):
    """The codec in bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> CompressionType:
        """The codec that `compression.type` calls `name`."""
        for codec in cls:
            if codec.label == name:
                return codec
        names = ", ".join(codec.label for codec in cls)
        raise ConfigError(f"compression type {name!r} is not one of {names}")

    @property
    def label(self) -> str:
        """Its name as configurations and tools write it."""
        return self.name.lower()


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the framing that Kafka's writers use; without a level the codec's usual one."""
    if codec is CompressionType.NONE:
        return bytes(data)
    return _COMPRESS[codec](data, level)


def decompress(
    codec: CompressionType, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """The bytes that were compressed into `data`.

    CorruptRecordError if it is malformed, DecompressionLimitError above `max_bytes`.
    """
    if codec is CompressionType.NONE:
        return bytes(data)
    pieces = list(_DECOMPRESS[codec](memoryview(data), _Output(codec, max_bytes, max_bytes + 1)))
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


def decompress_in_pieces(
    codec: CompressionType, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Buffer]:
    """The same bytes in pieces, so that few of them are in memory at a time.

    A piece has 64 KiB at most, except a block of snappy.
    """
    if codec is CompressionType.NONE:
        return iter((data,))
    return _DECOMPRESS[codec](memoryview(data), _Output(codec, max_bytes, _FIRST_READ_BYTES))


class _Output:
    """How much has been decompressed: never more than `max_bytes`, or `room` in one piece."""

    def __init__(self, codec: CompressionType, max_bytes: int, room: int) -> None:
        self.codec = codec
        self.max_bytes = max_bytes
        self.left = max_bytes
        self.room = room
        self.frame_count = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it may be one piece."""
        return self.room > self.max_bytes

    def begin_frame(self) -> None:
        self.frame_count += 1
        if self.frame_count > _MAX_FRAMES:
            raise self.malformed(f"more than {_MAX_FRAMES} frames")

    def reserve(self, size: int) -> None:
        if size > self.left:
            raise self.too_large()

    def take(self, piece: Buffer, size: int) -> Buffer:
        """Count a piece that was made."""
        self.reserve(size)
        self.left -= size
        return piece

    def too_large(self) -> DecompressionLimitError:
        return DecompressionLimitError(
            f"{self.codec.label} data that decompress to more than the limit of "
            f"{self.max_bytes} bytes"
        )

    def malformed(self, what: object) -> CorruptRecordError:
        return CorruptRecordError(f"malformed {self.codec.label} data: {what}")


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)


def _decompress_gzip(data: memoryview, out: _Output) -> Iterator[Buffer]:
    position = 0
    # The first frame gets everything: there is rarely another.
    size = len(data) if out.is_whole else _PIECE_BYTES
    try:
        while position < len(data) or not out.frame_count:
            out.begin_frame()
            frame = zlib.decompressobj(_GZIP_WBITS)
            while not frame.eof:
                piece: Buffer = frame.unconsumed_tail
                if not piece:
                    piece = data[position : position + size]
                    position += len(piece)
                    size = _PIECE_BYTES
                made = frame.decompress(piece, min(out.left + 1, out.room))
                if not piece and not made:
                    raise out.malformed("they end in the middle of a frame")
                yield out.take(made, len(made))
            position -= len(frame.unused_data)
    except zlib.error as error:
        raise out.malformed(error) from None


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, out: _Output) -> Iterator[Buffer]:
    # librdkafka and others write one raw block without a frame.
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _decompress_snappy_block(data, out)
        return
    position = len(_XERIAL_HEADER)
    if data[:position] != _XERIAL_HEADER:
        raise out.malformed("their header is not that of version 1")
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        start, position = position + 4, position + 4 + size
        if position > len(data):
            raise out.malformed(f"a block of {size} bytes in the last {len(data) - start} bytes")
        yield _decompress_snappy_block(data[start:position], out)


def _decompress_snappy_block(block: memoryview, out: _Output) -> Buffer:
    import cramjam

    try:
        out.reserve(cramjam.snappy.decompress_raw_len(block))
        made = cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as error:
        raise out.malformed(error) from None
    return out.take(made, len(made))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    fast = level is None or level == _LZ4_DEFAULT_LEVEL
    # Java refuses frames whose blocks are linked.
    compressed: bytes = lz4.frame.compress(data, 0 if fast else level, block_linked=False)
    return compressed


def _decompress_lz4(data: memoryview, out: _Output) -> Iterator[Buffer]:
    import lz4.frame

    position = 0
    size = len(data) if out.is_whole else _PIECE_BYTES
    try:
        while position < len(data) or not out.frame_count:
            out.begin_frame()
            declared = lz4.frame.get_frame_info(data[position:])["content_size"]
            out.reserve(declared)
            room = declared + 1 if declared else max(_FIRST_READ_BYTES, 4 * size)
            frame = lz4.frame.LZ4FrameDecompressor()
            while not frame.eof:
                piece = data[position : position + size] if frame.needs_input else b""
                made = frame.decompress(piece, min(out.left + 1, room, out.room))
                if not piece and not made and position == len(data) and frame.needs_input:
                    raise out.malformed("they end in the middle of a frame")
                yield out.take(made, len(made))
                position += len(piece) - len(frame.unused_data or b"")
                size, room = _PIECE_BYTES, room * 2
    except RuntimeError as error:
        raise out.malformed(error) from None


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    compressor = zstandard.ZstdCompressor(_ZSTD_DEFAULT_LEVEL if level is None else level)
    return compressor.compress(memoryview(data))


def _decompress_zstd(data: memoryview, out: _Output) -> Iterator[Buffer]:
    import zstandard

    window = min(max(out.max_bytes, _ZSTD_MIN_WINDOW_BYTES), _ZSTD_MAX_WINDOW_BYTES)
    decompressor = zstandard.ZstdDecompressor(max_window_size=window)
    position = 0
    try:
        while position < len(data) or not out.frame_count:
            out.begin_frame()
            start = position
            position, declared, at_most = _measure_zstd_frame(data, position, out)
            if declared:
                out.reserve(at_most)
            frame = data[start:position]
            if out.is_whole:
                made = decompressor.decompress(frame, max(1, min(at_most, out.left)))
                yield out.take(made, len(made))
                continue
            reader = decompressor.stream_reader(frame)
            while made := reader.read(out.room):
                yield out.take(made, len(made))
    except zstandard.ZstdError as error:
        if "full frame" in str(error) and at_most > out.left:
            raise out.too_large() from None
        raise out.malformed(error) from None


def _measure_zstd_frame(data: memoryview, position: int, out: _Output) -> tuple[int, bool, int]:
    """Where the frame ends, whether it declares its content's size, and that or an upper bound.

    Java's writers stream and declare nothing. The library allocates all it is allowed for a frame
    that does not declare its size, and does not report where a frame ends, so the blocks are
    counted here: each holds 128 KiB at most.
    """
    import zstandard

    frame = zstandard.get_frame_parameters(data[position : position + _ZSTD_MAX_HEADER_BYTES])
    position += zstandard.frame_header_size(data[position : position + _ZSTD_MAX_HEADER_BYTES])
    is_last = False
    at_most = 0
    while not is_last:
        if position + 3 > len(data):
            raise out.malformed("they end in the middle of a frame")
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        at_most += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED_BLOCK else size
        position += 3 + (1 if kind == _ZSTD_RUN_BLOCK else size)
    position += 4 if frame.has_checksum else 0
    if position > len(data):
        raise out.malformed("they end in the middle of a frame")
    if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        return position, False, at_most
    if frame.content_size > at_most:
        raise out.malformed(f"{at_most} bytes at most declared to be {frame.content_size}")
    return position, True, frame.content_size


_COMPRESS: dict[CompressionType, Callable[[Buffer, int | None], bytes]] = {
    CompressionType.GZIP: _compress_gzip,
    CompressionType.SNAPPY: _compress_snappy,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[CompressionType, Callable[[memoryview, _Output], Iterator[Buffer]]] = {
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
