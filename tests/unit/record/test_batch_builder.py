"""Building batches: the header, the size that is promised, and what recompression keeps."""

import pytest
from handmade import TWO_RECORDS, sealed

from ottla.record.batch_builder import (
    BatchBuilder,
    build_batch,
    build_batch_of_values,
    recompress,
)
from ottla.record.compression import CompressionType
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch, assign_offset

NOW = 1_700_000_000_000
TWO = [
    (NOW, None, b"hello", ()),
    (NOW - 5, b"k", None, (("h", b"x"), ("n", None))),
]


def fields(batch: RecordBatch) -> list[tuple]:
    return [tuple(record[1:]) for record in batch.records()]


def test_build_makes_the_bytes_of_the_format():
    """The hand-made batch, byte for byte."""
    builder = BatchBuilder(base_offset=100)
    deltas = [builder.append(*record) for record in TWO]
    data = bytearray(builder.build())
    assign_offset(data, 0, 100, 7)

    assert deltas == [0, 1]
    assert builder.record_count == 2
    assert data == TWO_RECORDS


def test_build_batch_is_the_builder_in_one_go():
    """A list of records makes the same batch."""
    builder = BatchBuilder(CompressionType.LZ4)
    for record in TWO:
        builder.append(*record)

    assert build_batch(TWO, CompressionType.LZ4) == builder.build()


def test_build_batch_of_values_is_a_batch_without_the_rest():
    """Values that share a timestamp need no tuples."""
    values = [b"a", None, b""]

    assert build_batch_of_values(values, NOW, producer_id=5, base_sequence=0) == build_batch(
        [(NOW, None, value, ()) for value in values], producer_id=5, base_sequence=0
    )


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_build_compresses_the_records_section(codec):
    """Whatever the codec, the header stays readable and the records come back."""
    records = [(NOW + index, b"key", b"value" * 20, ()) for index in range(500)]
    batch = RecordBatch(build_batch(records, codec))
    batch.verify()

    assert batch.compression is codec
    assert (batch.record_count, batch.last_offset_delta) == (500, 499)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 499)
    assert fields(batch) == records


def test_build_uses_the_level():
    """The builder passes the level on to the codec."""
    records = [(NOW, None, b"%d" % (index * 7919), ()) for index in range(2000)]
    fast, small = (len(build_batch(records, CompressionType.GZIP, level=level)) for level in (1, 9))

    assert fast > small


def test_build_writes_producer_and_flags():
    """The fields of an idempotent, transactional producer (KIP-98)."""
    batch = RecordBatch(
        build_batch(
            TWO, producer_id=4000, producer_epoch=3, base_sequence=17, is_transactional=True
        )
    )
    batch.verify()

    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 3, 17)
    assert batch.is_transactional
    assert not batch.is_control
    assert RecordBatch(build_batch(TWO, is_control=True)).is_control


@pytest.mark.parametrize(
    "record",
    [
        (NOW, None, None, ()),
        (NOW + 7999, b"k" * 3999, b"v" * 4000, ()),
        (NOW + 8000, b"k", b"v", ()),
        (-(2**61), b"k", b"v" * 3_000_000, ()),
        (NOW, b"k" * 10_000, None, tuple(("\U0001f600" * 9, b"x" * size) for size in range(99))),
    ],
    ids=["empty", "short", "later", "far", "headers"],
)
def test_size_in_bytes_is_never_too_small(record):
    """What the builder says before it builds is enough, and not far above."""
    builder = BatchBuilder()
    for _ in range(300):
        builder.append(NOW, b"k", b"v")
    before = len(builder.build())
    builder.append(*record)

    assert builder.size_in_bytes >= len(builder.build())
    assert BatchBuilder().size_in_bytes == BATCH_OVERHEAD == before - 300 * 9 - 237 + 1


def test_recompress_keeps_everything_but_the_codec():
    """Header and records stay, even records that could not be written again as they are."""
    odd = bytes.fromhex("12 00 00 00 01 01 02 06 41ff42 01")  # a header key that is not UTF-8
    original = RecordBatch(
        sealed(odd, 1, base_offset=9, leader_epoch=4, attributes=8, producer_id=5, base_sequence=6)
    )
    compressed = RecordBatch(recompress(original, CompressionType.ZSTD))
    compressed.verify()

    assert compressed.compression is CompressionType.ZSTD
    assert compressed.is_log_append_time
    assert bytes(compressed.payload()) == odd
    assert recompress(compressed, CompressionType.NONE) == original.view
