"""Any records survive the way through message sets, in both directions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import KafkaError
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set, down_convert, modernised, to_batch
from ottla.record.memory_records import batches
from ottla.record.record import Record
from ottla.record.record_batch import RecordBatch

WHOLE = 1 << 30
codecs = st.sampled_from([codec for codec in CompressionType if codec is not CompressionType.ZSTD])
magics = st.sampled_from([0, 1])
fields = st.none() | st.binary(max_size=100)
timestamps = st.integers(-1, 2**60)
bodies = st.lists(st.tuples(timestamps, fields, fields), min_size=1, max_size=20)


@st.composite
def stored_records(draw: st.DrawFn) -> list[Record]:
    """Records with growing offsets, which need not follow each other."""
    offset = draw(st.integers(0, 2**40))
    found = []
    for timestamp, key, value in draw(bodies):
        found.append(Record(offset, timestamp, key, value, ()))
        offset += draw(st.integers(1, 1000))
    return found


def as_magic(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [record._replace(timestamp_ms=-1) for record in records]


def read(data) -> list[Record]:
    found: list[Record] = []
    for batch in batches(data):
        batch.verify()
        found += batch.records()
    return found


@given(stored_records(), magics, codecs)
def test_message_sets_come_back(records, magic, codec):
    """From our builder through our reader, and from there as batches."""
    data = build_message_set(records, magic, codec)

    assert read(data) == as_magic(records, magic)
    made = modernised(batches(data))
    assert [r for new in made for r in read(new.view)] == as_magic(records, magic)


@given(bodies, magics, codecs)
def test_produced_sets_become_batches_and_sets_again(rows, magic, codec):
    """What an old producer sent, an old consumer gets."""
    records = [Record(offset, *row, ()) for offset, row in enumerate(rows)]
    stored = to_batch(memoryview(build_message_set(records, magic, codec)))
    assert stored is not None
    assert RecordBatch(stored).compression is codec
    sent = down_convert(memoryview(stored), magic, 0, WHOLE)

    assert read(stored) == as_magic(records, magic)
    assert read(sent.data) == as_magic(records, magic)


@given(bodies, magics, codecs, st.integers(0, 20))
def test_batches_are_converted_from_any_offset(rows, magic, codec, start):
    """Nothing from the wanted offset on is missing or changed."""
    stored = build_batch([(*row, ()) for row in rows], codec, base_offset=5)
    sent = down_convert(memoryview(stored), magic, start, WHOLE)

    records = [Record(5 + number, *row, ()) for number, row in enumerate(rows)]
    wanted = [record for record in as_magic(records, magic) if record.offset >= start]
    assert [record for record in read(sent.data) if record.offset >= start] == wanted


@given(st.binary(max_size=300), magics)
def test_any_bytes_are_refused_in_order(data, magic):
    """A producer may send anything, and gets an error that has a code."""
    for candidate in (data, data[:16] + bytes([magic]) + data[17:]):
        try:
            to_batch(memoryview(candidate))
        except KafkaError:
            continue


@given(bodies, magics, codecs, st.data())
def test_damaged_sets_are_refused_or_mean_the_same(rows, magic, codec, data):
    """A flipped bit anywhere but in an offset is found."""
    records = [Record(offset, *row, ()) for offset, row in enumerate(rows)]
    damaged = bytearray(build_message_set(records, magic, codec))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        made = to_batch(memoryview(damaged))
    except KafkaError:
        return
    assert read(made) == as_magic(records, magic)
