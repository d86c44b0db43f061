"""Message sets of kafka-python and aiokafka are read here, and ours there, in every codec."""

from __future__ import annotations

import struct

import aiokafka.record.legacy_records as aiokafka_records
import kafka.record.legacy_records as kafka_python_records
import lz4.frame
import pytest

from ottla.record.compression import CompressionType, decompress
from ottla.record.conversion import build_message_set
from ottla.record.legacy_lz4 import compress_lz4, mend_lz4, xxh32_short
from ottla.record.memory_records import batches
from ottla.record.record import Record

NOW = 1_700_000_000_000
RECORDS = [
    Record(40 + number, NOW + number, key, value, ())
    for number, (key, value) in enumerate(
        [(None, b"value"), (b"", b""), (b"key" * 3000, None)]
        + [(b"key-%d" % number, b"value " * number) for number in range(200)]
    )
]
OLD_CODECS = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
# Both need a library of their own for the wrong checksum of magic 0, or do not know of it.
LIBRARY_CODECS = [
    (magic, codec)
    for magic in (0, 1)
    for codec in OLD_CODECS
    if (magic, codec) != (0, CompressionType.LZ4)
]


@pytest.fixture(params=[kafka_python_records, aiokafka_records], ids=["kafka-python", "aiokafka"])
def client(request):
    """A client's module with its reader and its builder of message sets."""
    return request.param


def expected(magic: int) -> list[Record]:
    return RECORDS if magic else [record._replace(timestamp_ms=-1) for record in RECORDS]


def with_offset(data: bytes, codec: CompressionType) -> bytes:
    """A set as the broker stores it: producers leave the offset of a wrapper at 0."""
    if codec is CompressionType.NONE:
        return data
    return struct.pack(">q", RECORDS[-1].offset) + data[8:]


@pytest.mark.parametrize(("magic", "codec"), LIBRARY_CODECS)
def test_their_message_sets_are_read(client, magic, codec):
    """Keys, values, timestamps, and offsets of both kinds."""
    builder = client.LegacyRecordBatchBuilder(magic, codec, 10_000_000)
    is_relative = magic == 1 and codec is not CompressionType.NONE
    for record in RECORDS:
        offset = record.offset - RECORDS[0].offset if is_relative else record.offset
        builder.append(offset, record.timestamp_ms, record.key, record.value)
    data = with_offset(bytes(builder.build()), codec)

    found = []
    for batch in batches(data):
        batch.verify()
        assert batch.compression is codec
        found += batch.records()
    assert found == expected(magic)


@pytest.mark.parametrize(("magic", "codec"), LIBRARY_CODECS)
def test_they_read_our_message_sets(client, magic, codec):
    """Offset, timestamp, key and value of every message."""
    data = build_message_set(RECORDS, magic, codec)

    found = []
    for batch in batches(data):
        theirs = client.LegacyRecordBatch(bytes(batch.view), magic)
        assert theirs.validate_crc()
        found += [
            Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, ())
            for r in theirs
        ]
    assert found == expected(magic)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_our_message_sets_come_back(magic, codec):
    """In every codec of both formats."""
    data = build_message_set(RECORDS, magic, codec)

    assert [r for batch in batches(data) for r in batch.records()] == expected(magic)


def test_append_time_is_kept_in_the_attributes():
    """The attribute shows the reader that the time is the broker's."""
    for codec in (CompressionType.NONE, CompressionType.GZIP):
        data = build_message_set(RECORDS, 1, codec, is_log_append_time=True)
        assert all(batch.is_log_append_time for batch in batches(data))


@pytest.mark.parametrize(
    ("data", "hash_"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32_has_the_published_values(data, hash_):
    """Those of the algorithm's own documents."""
    assert xxh32_short(data) == hash_


@pytest.mark.parametrize("store_size", [False, True])
def test_headers_of_lz4_frames_get_the_checksum_of_the_library(store_size):
    """The checksum is right with and without the field for the size, whatever was there before."""
    frame = lz4.frame.compress(b"data" * 1000, store_size=store_size)
    position = 14 if store_size else 6
    spoilt = frame[:position] + bytes([frame[position] ^ 0xFF]) + frame[position + 1 :]

    assert mend_lz4(spoilt) == frame
    assert mend_lz4(frame) == frame


def test_wrong_checksum_covers_the_magic_number_too():
    """Readers of today refuse such a frame unless it is mended."""
    frame = compress_lz4(b"data" * 1000, wrong_checksum=True)

    assert frame[6] == xxh32_short(frame[:6]) >> 8 & 0xFF
    assert frame[4] & 0x08 == 0
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    assert decompress(CompressionType.LZ4, mend_lz4(frame)) == b"data" * 1000


@pytest.mark.parametrize("size", range(7))
def test_frame_that_is_cut_off_is_left_to_the_decompressor(size):
    """Nothing is written behind its end."""
    frame = compress_lz4(b"data", wrong_checksum=True)[:size]

    assert mend_lz4(frame) == frame
