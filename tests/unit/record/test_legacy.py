"""Message sets of magic 0 and 1, read from bytes made by hand, and what is refused."""

from __future__ import annotations

import pytest
from message_sets import NOW, message, wrapper

from ottla.record.legacy_batch import LegacyBatch
from ottla.record.memory_records import batch_at, batches
from ottla.record.record_batch import CorruptRecordError, Record, RecordBatch


def records(data: bytes) -> list[Record]:
    return [record for batch in batches(data) for record in batch.records()]


def test_messages_of_magic_0_have_no_timestamp():
    """A null key, an empty value and a tombstone."""
    parts = [
        message(5, None, b"v", magic=0),
        message(6, b"k", b"", magic=0),
        message(9, b"k", None, magic=0),
    ]

    assert records(b"".join(parts)) == [
        Record(5, -1, None, b"v", ()),
        Record(6, -1, b"k", b"", ()),
        Record(9, -1, b"k", None, ()),
    ]


def test_message_of_magic_1_has_its_timestamp():
    """Whether the producer or the broker has set it is bit 3 of the attributes."""
    created, appended = batches(message(5, b"k", b"v") + message(6, b"k", b"v", attributes=8))

    assert created.max_timestamp == NOW
    assert not created.is_log_append_time
    assert appended.is_log_append_time
    assert next(appended.records()).timestamp_ms == NOW


def test_a_message_looks_like_a_batch():
    """A message has the fields that a log asks for, and none of a producer."""
    batch = batch_at(b"rest" + message(7, b"key", b"value"), 4)
    batch.verify()

    assert isinstance(batch, LegacyBatch)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (7, 7, 8)
    assert (batch.magic, batch.record_count, batch.last_offset_delta) == (1, 1, 0)
    assert (batch.producer_id, batch.base_sequence, batch.partition_leader_epoch) == (-1, -1, -1)
    assert not batch.is_control
    assert not batch.is_transactional
    assert bytes(batch.view) == message(7, b"key", b"value")


def test_unused_attributes_of_magic_0_mean_nothing():
    """Bit 3 was not yet the timestamp type, and no bit was a marker's."""
    batch = batch_at(message(0, b"k", b"v", magic=0, attributes=0x78))
    batch.verify()

    assert not batch.is_log_append_time
    assert not batch.is_control


def test_offsets_inside_magic_1_count_from_the_first():
    """The wrapper has the last offset; the set may have holes from compaction."""
    inner = b"".join(message(n, None, b"%d" % n, timestamp=NOW + n) for n in (0, 1, 4))
    batch = batch_at(wrapper(104, inner, timestamp=NOW + 4))
    batch.verify()

    assert [(r.offset, r.timestamp_ms) for r in batch.records()] == [
        (100, NOW),
        (101, NOW + 1),
        (104, NOW + 4),
    ]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 104, 3)
    assert batch.max_timestamp == NOW + 4


def test_offsets_inside_magic_0_are_the_offsets():
    """Brokers before 0.10 wrote them anew into every message."""
    inner = message(100, None, b"a", magic=0) + message(101, None, b"b", magic=0)
    batch = batch_at(wrapper(101, inner, magic=0))

    assert [r.offset for r in batch.records()] == [100, 101]


def test_append_time_of_the_wrapper_is_that_of_all_inside():
    """The broker did not touch the messages inside."""
    inner = message(0, None, b"a", timestamp=1) + message(1, None, b"b", timestamp=2)
    batch = batch_at(wrapper(1, inner, attributes=1 | 8, timestamp=NOW))

    assert [r.timestamp_ms for r in batch.records()] == [NOW, NOW]


def test_old_messages_and_batches_follow_each_other():
    """A segment that was written before and after an upgrade has both."""
    from ottla.record.batch_builder import build_batch

    new = build_batch([(NOW, b"k", b"new", ())], base_offset=3)
    data = message(1, None, b"a", magic=0) + message(2, None, b"b") + new

    assert [batch.magic for batch in batches(data)] == [0, 1, 2]
    assert [record.value for record in records(data)] == [b"a", b"b", b"new"]
    assert isinstance(batch_at(data[-len(new) :]), RecordBatch)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (wrapper(1, wrapper(1, message(1, None, b"a"))), "inside a compressed message set"),
        (wrapper(1, message(1, None, b"a", magic=0)), "magic 0 inside"),
        (wrapper(1, b""), "without a message"),
        (wrapper(1, message(1, None, b"a")[:-1]), "inside, the message at offset 1: size"),
        (wrapper(1, message(1, None, b"a") + b"abc"), "3 bytes are too few"),
        (message(1, None, b"no gzip", attributes=1), "malformed gzip"),
        (message(1, None, None, attributes=1), "nothing that it has compressed"),
    ],
)
def test_bad_compressed_sets_are_refused(data, why):
    """Nested, mixed, empty, cut off or not compressed at all."""
    batch = batch_at(data)

    with pytest.raises(CorruptRecordError, match=why):
        batch.records()
    with pytest.raises(CorruptRecordError, match=why):
        _ = batch.base_offset


def test_unknown_codec_is_refused():
    """Zstandard came after these formats."""
    batch = batch_at(message(1, None, b"v", attributes=4))

    with pytest.raises(CorruptRecordError, match="codec 4"):
        batch.verify()


def test_set_that_decompresses_to_too_much_is_refused():
    """However small it is on the wire."""
    data = wrapper(0, message(0, None, bytes(1_000_000)))
    assert len(data) < 2000

    with pytest.raises(CorruptRecordError, match="more than the limit of 1000 bytes"):
        batch_at(data).records(max_bytes=1000)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_cut_anywhere_ends_the_set(magic):
    """It is what readers of the old protocol get at the end of every answer."""
    first, second = message(0, b"k", b"v", magic=magic), message(1, b"k", b"v", magic=magic)

    for size in range(len(first), len(first) + len(second)):
        assert len(list(batches((first + second)[:size]))) == 1
    for size in range(len(first)):
        with pytest.raises(CorruptRecordError):
            LegacyBatch(first[:size]).verify()


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_is_found(magic):
    """Where it lies outside of the offset, which no CRC covers."""
    whole = message(0, b"key", b"value", magic=magic)

    for bit in range(8 * 8, 8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            LegacyBatch(damaged).verify()


@pytest.mark.parametrize("length", [-2, 5, 2**31 - 1])
def test_lengths_that_lie_are_refused(length):
    """A right CRC does not help."""
    import struct
    import zlib

    body = struct.pack(">bb", 0, 0) + struct.pack(">i", length) + struct.pack(">i", 1) + b"v"
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body

    with pytest.raises(CorruptRecordError):
        batch_at(data).verify()


def test_bytes_behind_the_value_are_refused():
    """A message ends with its value."""
    import struct
    import zlib

    body = message(0, None, b"v", magic=0)[16:] + b"more"
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body

    with pytest.raises(CorruptRecordError, match="4 bytes follow its value"):
        batch_at(data).verify()
