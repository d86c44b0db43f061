"""Message sets to batches and back: what is kept, what is lost, what is refused."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from breadth import some
from message_sets import NOW, message, wrapper

from ottla.errors import ErrorCode, KafkaError
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.conversion import (
    down_convert,
    modernised,
    needs_down_conversion,
    to_batch,
    up_convert,
)
from ottla.record.memory_records import batch_at, batches
from ottla.record.record_batch import RECORDS_IN_A_SLICE, RecordBatch, set_log_append_time

NONE, GZIP, ZSTD = CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD
WHOLE = 1 << 20


def batch(first: int, count: int, codec: CompressionType = NONE, **header) -> bytes:
    """A stored batch with headers in its records, which the old formats cannot have."""
    records = [
        (NOW + n, b"k", b"value %d" % n, (("header", b"h"),)) for n in range(first, first + count)
    ]
    return build_batch(records, codec, base_offset=first, **header)


def marker(offset: int) -> bytes:
    """The end of a transaction."""
    key = struct.pack(">hh", 0, 1)
    return build_batch(
        [(NOW, key, bytes(6), ())],
        base_offset=offset,
        is_control=True,
        is_transactional=True,
        producer_id=7,
        producer_epoch=0,
    )


def down(*parts: bytes, magic: int = 1, start: int = 0, max_bytes: int = WHOLE):
    return down_convert(memoryview(b"".join(parts)), magic, start, max_bytes)


def rows(data) -> list[tuple[int, int, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.value) for b in batches(data) for r in b.records()]


def expected(first: int, count: int, magic: int = 1) -> list[tuple[int, int, bytes]]:
    return [(n, NOW + n if magic else -1, b"value %d" % n) for n in range(first, first + count)]


# -- up


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_becomes_one_batch(magic):
    """The batch has offsets from 0 whatever the producer wrote, ready to be stamped."""
    data = b"".join(message(n * 3, b"k", b"%d" % n, magic=magic) for n in range(5))
    made = to_batch(memoryview(data))
    assert made is not None
    made_batch = RecordBatch(made)
    made_batch.verify()

    time = NOW if magic else -1
    assert made_batch.max_timestamp == time
    assert rows(made) == [(n, time, b"%d" % n) for n in range(5)]


def test_compressed_message_set_stays_compressed():
    """The wrapper is gone, its codec is that of the batch."""
    inner = b"".join(message(n, b"k", b"%d" % n) for n in range(3))
    made = to_batch(memoryview(wrapper(0, inner)))
    assert made is not None

    assert RecordBatch(made).compression is GZIP
    assert rows(made) == [(n, NOW, b"%d" % n) for n in range(3)]


def test_empty_message_set_is_no_batch():
    """Old clients send them; Produce answers without one."""
    with pytest.raises(KafkaError, match="INVALID_RECORD: a message set without a message"):
        to_batch(memoryview(b""))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (message(0, b"k", b"v")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (message(0, b"k", b"v") + b"x", ErrorCode.CORRUPT_MESSAGE),
        (message(0, b"k", b"v") + bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (message(0, b"k", b"v") + batch(1, 1), ErrorCode.CORRUPT_MESSAGE),
        (message(0, b"k", b"v")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (wrapper(0, wrapper(0, message(0, b"k", b"v"))), ErrorCode.CORRUPT_MESSAGE),
        (wrapper(0, message(0, None, bytes(65 << 20))), ErrorCode.CORRUPT_MESSAGE),
        (message(0, b"k", b"v", attributes=8), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_bad_message_sets_are_refused(data, error):
    """Nothing of such a set is taken: cut off, mixed, damaged, nested, a bomb, a lie."""
    with pytest.raises(KafkaError) as caught:
        to_batch(memoryview(data))
    assert caught.value.error is error


def test_every_truncation_of_a_message_set_is_refused():
    """A producer must not be told that its last message was taken."""
    data = b"".join(message(n, b"k", b"v", magic=n % 2) for n in range(3))
    whole = {0, *set_borders(data)}
    assert len(whole) == 4

    for size in range(len(data)):
        if size not in whole:
            with pytest.raises(KafkaError):
                to_batch(memoryview(data[:size]))


def set_borders(data: bytes) -> list[int]:
    borders, position = [], 0
    for entry in batches(data):
        position += entry.size_in_bytes
        borders.append(position)
    return borders


@pytest.mark.parametrize("attributes", [1, 1 | 8])
def test_stored_message_sets_keep_their_offsets(attributes):
    """Stored sets keep holes between offsets, the codec, and the time that the broker had set."""
    inner = b"".join(message(n, None, b"%d" % n, timestamp=NOW - n) for n in (0, 1, 5))
    stored = batch_at(wrapper(105, inner, attributes=attributes, timestamp=NOW))
    made = up_convert([stored])
    made.verify()

    assert (made.base_offset, made.last_offset, made.record_count) == (100, 105, 3)
    assert (made.compression, made.is_log_append_time) == (GZIP, stored.is_log_append_time)
    assert (made.max_timestamp, made.producer_id, made.base_sequence) == (NOW, -1, -1)
    assert rows(made.view) == rows(stored.view)


def test_old_messages_are_packed_together():
    """A batch for each message would have more head than body; batches of today are not touched."""
    old = [message(n, b"k", b"v" * 100, timestamp=NOW + n) for n in range(2000)]
    appended = [message(2000 + n, b"k", b"v", attributes=8, timestamp=NOW + n) for n in range(2)]
    new = batch(2002, 2)
    last = message(2004, None, None, magic=0)
    data = b"".join((*old, *appended, new, last))
    made = list(modernised(batches(data)))
    for one in made:
        one.verify()

    assert [row for one in made for row in rows(one.view)] == rows(data)
    assert [one.record_count for one in made[-4:]] == [1, 1, 2, 1]
    assert bytes(made[-2].view) == new
    assert len(made) < 10
    assert sum(one.size_in_bytes for one in made) < len(data)


# -- down


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP, CompressionType.SNAPPY, CompressionType.LZ4])
def test_batches_become_message_sets(magic, codec):
    """Offsets and codec stay, headers go, and for magic 0 the timestamps."""
    made = down(batch(3, 4, codec), batch(7, 3, codec), magic=magic)

    assert {b.magic for b in batches(made.data)} == {magic}
    assert {b.compression for b in batches(made.data)} == {codec}
    assert rows(made.data) == expected(3, 7, magic)
    assert made.next_offset == 10


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_offsets_that_compaction_removed_stay_away(codec):
    """A compressed set has the same holes inside."""
    inner = b"".join(message(n, b"k", b"%d" % n, timestamp=NOW) for n in (10, 11, 15))
    stored = inner if codec is NONE else wrapper(15, inner)
    offsets = [offset for offset, _, _ in rows(stored)]
    made = down(stored, magic=0)

    assert offsets == [10, 11, 15]
    assert rows(made.data) == [(n, -1, b"%d" % n) for n in offsets]


def test_append_time_goes_along():
    """Each message has it as its timestamp, with the bit that says whose it is."""
    for codec in (NONE, GZIP):
        stored = bytearray(batch(0, 3, codec))
        set_log_append_time(stored, 0, NOW + 99)
        made = down(bytes(stored))

        assert all(b.is_log_append_time for b in batches(made.data))
        assert [time for _, time, _ in rows(made.data)] == [NOW + 99] * 3


def test_messages_before_the_wanted_one_are_left_out():
    """Where they stand alone; a compressed set is one thing."""
    assert rows(down(batch(0, 5), start=3).data) == expected(3, 2)
    assert rows(down(batch(0, 5, GZIP), start=3).data) == expected(0, 5)


def test_markers_are_left_out():
    """The reader goes on behind a marker."""
    made = down(batch(0, 2), marker(2), batch(3, 1))
    assert rows(made.data) == expected(0, 2) + expected(3, 1)

    only = down(marker(2), marker(3), start=2)
    assert not only.data
    assert only.next_offset == 4


def test_what_is_old_enough_stays_as_it_is():
    """A mixed log: magic 1 is converted for readers of magic 0 only."""
    old = message(0, b"k", b"value 0", magic=0)
    older = message(1, b"k", b"value 1", timestamp=NOW + 1)
    data = (old, older, batch(2, 1))

    for_magic_1 = down(*data, magic=1)
    assert bytes(for_magic_1.data).startswith(old + older)
    assert [b.magic for b in batches(for_magic_1.data)] == [0, 1, 1]
    for_magic_0 = down(*data, magic=0)
    assert [b.magic for b in batches(for_magic_0.data)] == [0, 0, 0]
    assert rows(for_magic_0.data) == expected(0, 3, 0)


def test_zstd_cannot_be_converted():
    """The answer ends before such a batch, or is an error if it is the first."""
    assert down(batch(0, 2, ZSTD)).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    made = down(batch(0, 2), batch(2, 2, ZSTD))
    assert made.error is ErrorCode.NONE
    assert rows(made.data) == expected(0, 2)


def test_damage_is_not_given_a_new_checksum():
    """A stored batch whose CRC is wrong must not become a message whose CRC is right."""
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1

    assert down(bytes(damaged)).error is ErrorCode.CORRUPT_MESSAGE
    assert rows(down(batch(0, 1), bytes(damaged)).data) == expected(0, 1)


def test_first_message_comes_whole_and_no_more_than_asked_for():
    """Then the limit counts, message by message."""
    for max_bytes in (0, 1, 40):
        assert rows(down(batch(0, 5), max_bytes=max_bytes).data) == expected(0, 1)
    size = len(down(batch(0, 5)).data) // 5
    assert rows(down(batch(0, 5), max_bytes=3 * size).data) == expected(0, 3)


def test_need_of_conversion_is_seen_in_the_headers():
    """A reader of magic 1 takes messages of magic 0 as well."""
    old, new = message(0, None, b"v", magic=0), batch(1, 1)

    assert not needs_down_conversion(memoryview(old), 0)
    assert needs_down_conversion(memoryview(message(0, None, b"v")), 0)
    assert needs_down_conversion(memoryview(old + new), 1)
    assert needs_down_conversion(memoryview(bytes(30)), 1)


@pytest.mark.parametrize("codec", some([*CompressionType][:4]))
def test_small_batch_of_very_many_records_takes_the_memory_of_its_bytes(codec):
    """Old readers get such a batch in sets of some records, and begin within it again."""
    batch = bytes(build_batch([(NOW, None, b"", ())] * 100_000, codec))
    peaks = []
    for _ in range(3):  # other threads of the process may take memory at the same time
        tracemalloc.start()
        try:
            found = down(batch, start=90_000)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    offsets = [record.offset for each in batches(found.data) for record in each.records()]
    assert offsets[-10_000:] == list(range(90_000, 100_000))
    assert len(offsets) < 10_000 + RECORDS_IN_A_SLICE
    assert min(peaks) < 4 * len(batch) + len(found.data) + 2**20
