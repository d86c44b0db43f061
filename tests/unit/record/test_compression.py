"""Every codec: what we write, what others write, and what is meant to do harm."""

import gzip
import resource
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.errors import ConfigError
from ottla.record.compression import (
    MAX_DECOMPRESSED_BYTES,
    CompressionType,
    compress,
    decompress,
    decompress_in_pieces,
)
from ottla.record.record import CorruptRecordError

CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
TEXT = b"".join(b'{"id": %d, "page": "/index.html"}' % number for number in range(5000))
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


PIECE_BYTES = 64 * 1024


def joined(codec, data, max_bytes=MAX_DECOMPRESSED_BYTES):
    """The pieces in one, after a look at their sizes: a block of snappy alone may be larger."""
    pieces = [bytes(piece) for piece in decompress_in_pieces(codec, data, max_bytes)]
    if codec not in (CompressionType.NONE, CompressionType.SNAPPY):
        assert all(len(piece) <= PIECE_BYTES for piece in pieces)
    return b"".join(pieces)


@pytest.fixture(params=[decompress, joined], ids=["whole", "in pieces"])
def unpack(request):
    """Either way of decompressing."""
    return request.param


def zstd_stream(data: bytes, **parameters: int) -> bytes:
    """As Java writes it: in a stream, so that the frame does not say how large the content is."""
    stream = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(**parameters)
    ).compressobj()
    return stream.compress(data) + stream.flush()


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def test_names_are_those_of_compression_type():
    """The names are Kafka's; what is not one of them is refused with the list."""
    assert [CompressionType.of(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [
        *CompressionType
    ]
    with pytest.raises(ConfigError, match="'LZ4' is not one of none, gzip, snappy, lz4, zstd"):
        CompressionType.of("LZ4")


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one byte", "text"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_codec_returns_what_went_in(unpack, codec, data, kind):
    """Any buffer can be compressed and decompressed, and the exact size is enough as the limit."""
    compressed = compress(codec, kind(data))

    assert unpack(codec, kind(compressed), len(data)) == data
    if codec is not CompressionType.NONE and data is TEXT:
        assert len(compressed) < len(data) / 3


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_a_limit_is_kept(unpack, codec):
    """One byte too many is refused, by name of the codec and of the limit."""
    with pytest.raises(CorruptRecordError, match=f"{codec.label} data .* limit of 169999 bytes"):
        unpack(codec, compress(codec, b"abcde" * 34_000), 169_999)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_cut_data_are_refused(unpack, codec):
    """Wherever a frame is cut, it is not taken for a whole one."""
    compressed = compress(codec, TEXT[:3000])

    for size in range(len(compressed)):
        if codec is CompressionType.SNAPPY and size == len(XERIAL):
            continue  # a stream of no blocks
        with pytest.raises(CorruptRecordError):
            unpack(codec, compressed[:size], len(TEXT))


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        (CompressionType.GZIP, gzip.compress),
        (CompressionType.LZ4, lz4.frame.compress),
        (CompressionType.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
        (CompressionType.LZ4, lambda data: lz4.frame.compress(data, content_checksum=True)),
        (CompressionType.LZ4, lambda data: lz4.frame.compress(data, block_linked=True)),
        (CompressionType.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
        (CompressionType.ZSTD, zstd_stream),
    ],
    ids=["gzip", "lz4", "lz4 unsized", "lz4 checksum", "lz4 linked", "zstd", "zstd unsized"],
)
def test_frames_in_a_row_are_one_content(unpack, codec, frame):
    """Data may come in several frames, some of them empty; each may be written by another tool."""
    data = frame(TEXT[:70_000]) + frame(b"") + frame(TEXT[70_000:])

    assert unpack(codec, data, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordError, match="limit"):
        unpack(codec, data, len(TEXT) - 1)
    with pytest.raises(CorruptRecordError, match="malformed"):
        unpack(codec, data + b"garbage", len(TEXT))


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_endless_empty_frames_are_refused(unpack, codec):
    """A batch of nothing but empty frames costs time and makes nothing."""
    with pytest.raises(CorruptRecordError, match="more than 4096 frames"):
        unpack(codec, compress(codec, b"") * 5000, 100)


def test_snappy_is_written_in_the_framing_of_java():
    """Blocks of 32 KiB, each behind its compressed size, after the magic and two versions."""
    compressed = compress(CompressionType.SNAPPY, TEXT)
    first_size = int.from_bytes(compressed[16:20], "big")

    assert compressed.startswith(XERIAL)
    block = compressed[20 : 20 + first_size]
    assert bytes(cramjam.snappy.decompress_raw(block)) == TEXT[: 32 * 1024]


def test_snappy_without_a_frame_is_read(unpack):
    """librdkafka writes one raw block."""
    assert unpack(CompressionType.SNAPPY, snappy_raw(TEXT), len(TEXT)) == TEXT


def test_snappy_block_size_that_lies_is_refused(unpack):
    """A block cannot be longer than what is left."""
    data = XERIAL + (1000).to_bytes(4, "big") + snappy_raw(b"abc")

    with pytest.raises(CorruptRecordError, match="a block of 1000 bytes"):
        unpack(CompressionType.SNAPPY, data, 1000)


def test_lz4_blocks_are_independent():
    """Java refuses frames whose blocks build on one another."""
    compressed = compress(CompressionType.LZ4, TEXT)

    assert lz4.frame.get_frame_info(compressed)["block_linked"] is False


@pytest.mark.parametrize(
    ("codec", "fast", "small"),
    [
        (CompressionType.GZIP, 1, 9),
        (CompressionType.LZ4, 9, 12),
        (CompressionType.ZSTD, 1, 19),
    ],
)
def test_levels_are_used(unpack, codec, fast, small):
    """More work makes less data. Level 9 of lz4, Kafka's default, is the fast compressor."""
    sizes = [len(compress(codec, TEXT, level)) for level in (fast, small)]

    assert sizes[0] > sizes[1]
    assert unpack(codec, compress(codec, TEXT, small), len(TEXT)) == TEXT


ZEROS = bytes(1 << 20)


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    return b"".join(deflate.compress(ZEROS) for _ in range(100)) + deflate.flush()


def zstd_bomb() -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(ZEROS) for _ in range(100)) + stream.flush()


def lz4_bomb() -> bytes:
    stream = lz4.frame.LZ4FrameCompressor()
    parts = [stream.begin(), *(stream.compress(ZEROS) for _ in range(100)), stream.flush()]
    return b"".join(parts)


def zstd_declared(size: int) -> bytes:
    """One run block in a single-segment frame that declares any content size."""
    return bytes.fromhex("28b52ffde0") + size.to_bytes(8, "little") + bytes.fromhex("03000078")


BOMBS = {
    "gzip": (CompressionType.GZIP, gzip_bomb, "limit"),
    "lz4": (CompressionType.LZ4, lz4_bomb, "limit"),
    "zstd undeclared": (CompressionType.ZSTD, zstd_bomb, "limit"),
    "zstd declared": (
        CompressionType.ZSTD,
        lambda: zstandard.ZstdCompressor().compress(bytes(100 << 20)),
        "limit",
    ),
    "zstd declared 2^63": (CompressionType.ZSTD, lambda: zstd_declared(1 << 63), "malformed"),
    "zstd window of 2 GiB": (
        CompressionType.ZSTD,
        lambda: zstd_stream(b"abc" * 10, window_log=31, compression_level=1),
        "malformed",
    ),
    "snappy 2^32": (CompressionType.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00", "limit"),
    "snappy 2^32 in a frame": (
        CompressionType.SNAPPY,
        lambda: XERIAL + (6).to_bytes(4, "big") + b"\xff\xff\xff\xff\x0f\x00",
        "limit",
    ),
    "lz4 declared 2^40": (
        CompressionType.LZ4,
        lambda: bytes.fromhex("04224d186840") + (1 << 40).to_bytes(8, "little") + b"\x00" * 8,
        "lz4",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(unpack, name):
    """However much it would become, memory grows by no more than about the limit."""
    codec, make, why = BOMBS[name]
    bomb = make()
    limit = 16 << 20
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(CorruptRecordError, match=why):
        unpack(codec, bomb, limit)

    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < 3 * limit // 1024


def test_zstd_content_size_that_lies_is_refused(unpack):
    """Blocks cannot make more than they can, whatever the header says."""
    with pytest.raises(CorruptRecordError, match="declared to be 1000000"):
        unpack(CompressionType.ZSTD, zstd_declared(1_000_000), 1 << 30)
