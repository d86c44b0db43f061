"""Reading batches: hand-made bytes, and everything that can be wrong with them."""

import pytest
from handmade import TWO_RECORDS, sealed

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.memory_records import batches, in_pieces
from ottla.record.record_batch import (
    BATCH_OVERHEAD,
    CorruptRecordError,
    Record,
    RecordBatch,
    assign_offset,
    set_log_append_time,
)

HELLO = Record(100, 1_700_000_000_000, None, b"hello", ())
TOMBSTONE = Record(101, 1_699_999_999_995, b"k", None, (("h", b"x"), ("n", None)))


def test_header_fields_are_those_of_the_bytes():
    """Each field is read from its place."""
    batch = RecordBatch(b"junk" + TWO_RECORDS, 4)

    assert batch.base_offset == 100
    assert batch.batch_length == 76
    assert batch.size_in_bytes == 88
    assert batch.partition_leader_epoch == 7
    assert batch.magic == 2
    assert batch.compression is CompressionType.NONE
    assert batch.base_timestamp == batch.max_timestamp == 1_700_000_000_000
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.last_offset, batch.next_offset, batch.last_sequence) == (101, 102, -1)
    assert batch.record_count == 2
    assert batch.view == TWO_RECORDS


def test_records_are_those_of_the_bytes():
    """Null is not empty, timestamps may go back, headers may be null."""
    batch = RecordBatch(TWO_RECORDS)
    batch.verify()

    assert list(batch.records()) == [HELLO, TOMBSTONE]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read(kind):
    """A batch is a view on whatever the bytes are in."""
    batch = RecordBatch(kind(TWO_RECORDS))

    assert [record.value for record in batch.records()] == [b"hello", None]


def test_flags_are_read_from_the_attributes():
    """Bits 3 to 6, each on its own."""
    flags = {
        8: "is_log_append_time",
        16: "is_transactional",
        32: "is_control",
    }
    for bit, name in flags.items():
        batch = RecordBatch(sealed(b"", 0, attributes=bit))
        assert [flag for flag in flags.values() if getattr(batch, flag)] == [name]
    assert RecordBatch(sealed(b"", 0, attributes=64)).delete_horizon_ms == 1000
    assert RecordBatch(sealed(b"", 0)).delete_horizon_ms is None


def test_last_sequence_wraps():
    """After 2^31-1 comes 0."""
    batch = RecordBatch(sealed(b"", 3, producer_id=1, base_sequence=2**31 - 2))

    assert batch.last_sequence == 0


def test_log_append_time_replaces_the_timestamps():
    """All records have the broker's time, and the CRC is right again."""
    data = bytearray(TWO_RECORDS)
    set_log_append_time(data, 0, 1_800_000_000_000)
    batch = RecordBatch(data)
    batch.verify()

    assert batch.is_log_append_time
    assert {record.timestamp_ms for record in batch.records()} == {1_800_000_000_000}


def test_assign_offset_leaves_the_crc_right():
    """Base offset and leader epoch lie outside of what the CRC covers."""
    data = bytearray(b"junk" + TWO_RECORDS)
    assign_offset(memoryview(data), 4, 5_000_000_000, 9)
    batch = RecordBatch(data, 4)
    batch.verify()

    assert (batch.base_offset, batch.partition_leader_epoch) == (5_000_000_000, 9)
    assert [record.offset for record in batch.records()] == [5_000_000_000, 5_000_000_001]


def test_batches_stop_before_a_cut_one():
    """A fetch response may end anywhere in its last batch."""
    for size in range(len(TWO_RECORDS)):
        found = list(batches(b"x" + TWO_RECORDS + TWO_RECORDS[:size], 1))
        assert [batch.position for batch in found] == [1]
    assert len(list(batches(TWO_RECORDS * 3))) == 3


@pytest.mark.parametrize("most", [1, 2, 3, 100])
@pytest.mark.parametrize("tail", [b"", b"\0" * 7, TWO_RECORDS[:-1], b"\0" * 8 + b"\xff" * 90])
@pytest.mark.parametrize("count", range(5))
def test_pieces_are_all_of_a_buffer_with_so_many_batches_each(count, tail, most):
    """What is no whole batch stands behind the last, for the one who reads it."""
    data = TWO_RECORDS * count + tail
    pieces = list(in_pieces(data, most))

    assert b"".join(pieces) == data
    assert all(pieces)
    assert all(len(piece) == most * len(TWO_RECORDS) for piece in pieces[:-1])
    assert len(pieces) == max(-(-count // most), bool(tail))


def test_batches_stop_at_an_impossible_length():
    """Nothing can be found behind a length that is none."""
    data = sealed(b"", 0, batch_length=48)

    with pytest.raises(CorruptRecordError, match="offset 0: batch length 48 is below 49"):
        list(batches(data))


def test_a_buffer_without_a_header_is_refused():
    """There must be 61 bytes for a header."""
    with pytest.raises(CorruptRecordError, match="60 bytes are too few"):
        RecordBatch(TWO_RECORDS[:60])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (sealed(b"", 1, magic=1), "magic 1 is not 2"),
        (sealed(b"", 1, batch_length=10), "batch length 10 is below 49"),
        (sealed(b"", 1, batch_length=-1), "batch length -1 is below 49"),
        (sealed(b"", 1, batch_length=50), "of its 62 bytes only 61 are there"),
        (sealed(b"", -1, last_offset_delta=0), "-1 records do not fit"),
        (sealed(b"", 2, last_offset_delta=0), "2 records do not fit last offset delta 0"),
        (sealed(b"", 0, last_offset_delta=-2), "0 records do not fit last offset delta -2"),
    ],
)
def test_verify_names_what_is_wrong(data, why):
    """The text says which batch, what, and what it should be."""
    with pytest.raises(CorruptRecordError, match=f"the batch at offset 0: .*{why}") as caught:
        RecordBatch(data).verify()

    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


def test_verify_finds_every_flipped_bit():
    """What is inside the CRC cannot change unseen; of the rest, length and magic cannot."""
    outside = {*range(8), *range(12, 16)}
    for bit in range(8 * len(TWO_RECORDS)):
        data = bytearray(TWO_RECORDS)
        data[bit // 8] ^= 1 << bit % 8
        if bit // 8 in outside:
            RecordBatch(data).verify()
        else:
            with pytest.raises(CorruptRecordError):
                RecordBatch(data).verify()


def test_a_compacted_batch_may_have_gaps():
    """Compaction leaves the offsets of the records that stay, and at last an empty batch."""
    records = bytes.fromhex("0c 00 00 04 01 01 00")
    batch = RecordBatch(sealed(records, 1, base_offset=10, last_offset_delta=7))
    batch.verify()

    assert [record.offset for record in batch.records()] == [12]
    assert batch.next_offset == 18
    empty = RecordBatch(sealed(b"", 0, last_offset_delta=7, attributes=1))
    empty.verify()
    assert list(empty.records()) == []


def test_an_unknown_codec_is_refused():
    """Codecs 5 to 7 do not exist."""
    batch = RecordBatch(sealed(b"\x00", 1, attributes=5))

    with pytest.raises(CorruptRecordError, match="unknown codec 5"):
        list(batch.records())


def test_records_decompress_within_the_limit():
    """The caller's limit holds, and the text says which batch it was."""
    batch = RecordBatch(build_batch([(0, None, bytes(100_000), ())], CompressionType.ZSTD))

    assert len(next(batch.records(max_bytes=101_000)).value) == 100_000
    with pytest.raises(CorruptRecordError, match=r"offset 0: zstd .* limit of 99999"):
        batch.records(max_bytes=99_999)


def test_a_batch_that_is_not_all_there_is_refused():
    """Reading records without verify first does not read beyond the buffer."""
    for size in range(BATCH_OVERHEAD, len(TWO_RECORDS)):
        with pytest.raises(CorruptRecordError):
            RecordBatch(TWO_RECORDS[:size]).records()
