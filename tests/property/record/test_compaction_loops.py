"""The compiled loops of compaction do what the plain ones do, and both what a dictionary says."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import pytest
from breadth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.record import kernel, plain_compaction
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.plain_compaction import ENTRY_BYTES, shift_timestamps
from ottla.record.record import CorruptRecordError
from ottla.record.record_batch import RecordBatch

common = settings(derandomize=True, max_examples=examples(200), deadline=None, database=None)
SECRET = bytes(range(16))
# Every second record has no key. A time and a key together are drawn faster than each by itself.
KEYS = [b"key-%d" % number * (number + 1) for number in range(10)]
times_and_keys = st.sampled_from(list(product(range(51), [*KEYS, *[None] * len(KEYS)])))
values = st.none() | st.binary(max_size=20)
records = st.tuples(times_and_keys, values).map(lambda parts: (*parts[0], parts[1], ()))
batches_of_records = st.lists(st.lists(records, min_size=1, max_size=8), min_size=1, max_size=6)


def loops() -> list[ModuleType]:
    """The plain loops, and the compiled ones where they have been compiled."""
    if not kernel.COMPILED:
        return [plain_compaction]
    from ottla.record import native_compaction

    return [plain_compaction, native_compaction]


def as_batches(lists: list) -> list[RecordBatch]:
    offset, built = 0, []
    for records in lists:
        built.append(RecordBatch(build_batch(records, base_offset=offset)))
        offset = built[-1].next_offset
    return built


def note_all(module: ModuleType, table: bytearray, room: int, built: list[RecordBatch], start: int):
    """Note batches until the table is full: how many keys it has then, and up to where it goes."""
    count = end = 0
    for batch in built:
        added, end = module.note_keys(table, SECRET, room - count, batch, batch.payload(), start)
        count += added
        if end < batch.next_offset:
            break
    return count, end


@common
@given(lists=batches_of_records, room=st.integers(1, 12), start=st.integers(0, 20))
def test_note_keys_is_a_dictionary_of_last_offsets(lists, room, start):
    """Up to where the table was full, it knows the last offset of each key."""
    built = as_batches(lists)
    for module in loops():
        table = bytearray(ENTRY_BYTES * (room + 1))
        count, end = note_all(module, table, room, built, start)
        expected = {
            record.key: record.offset
            for batch in built
            for record in batch.records()
            if record.key is not None and start <= record.offset < end
        }
        assert count == len(expected) <= room
        assert end == built[-1].next_offset or count == room
        for number in range(10):
            key = b"key-%d" % number * (number + 1)
            assert module.last_offset(table, SECRET, key) == expected.get(key, -1)


@common
@given(
    lists=batches_of_records,
    room=st.integers(1, 12),
    keep_tombstones=st.booleans(),
    codec=st.sampled_from(CompressionType),
)
def test_keep_records_leaves_what_a_dictionary_would(lists, room, keep_tombstones, codec):
    """The last record of each key, in its own bytes, and all that lies behind the table."""
    built = as_batches(lists)
    for module in loops():
        table = bytearray(ENTRY_BYTES * (room + 1))
        _, end = note_all(module, table, room, built, 0)
        for batch, records in zip(built, lists, strict=True):
            packed = RecordBatch(build_batch(records, codec, base_offset=batch.base_offset))
            payload = packed.payload()
            kept = module.keep_records(table, SECRET, end, packed, payload, keep_tombstones)
            expected = [
                record
                for record in batch.records()
                if record.offset >= end
                or (
                    record.key is not None
                    and (record.value is not None or keep_tombstones)
                    and module.last_offset(table, SECRET, record.key) <= record.offset
                )
            ]
            header = RecordBatch(batch.buffer)
            header.record_count = len(expected)
            found = list(kernel.decode_records(header, kept.payload)) if expected else []
            assert found == expected
            assert kept.record_count == len(expected)
            assert (kept.payload is payload) == (len(expected) == batch.record_count)
            assert kept.has_tombstone == any(record.value is None for record in expected)
            if expected:
                assert kept.max_timestamp_ms == max(record.timestamp_ms for record in expected)
            gone = [record for record in batch.records() if record not in expected]
            assert kept.null_key_count == sum(record.key is None for record in gone)


@common
@given(
    lists=batches_of_records, position=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255)
)
def test_damaged_records_are_refused_or_read(lists, position, byte):
    """Any byte may be wrong: every loop says so in the same words, or reads the same."""
    batch = as_batches(lists)[0]
    payload = bytearray(batch.payload())
    payload[int(position * len(payload))] = byte
    outcomes = []
    for module in loops():
        table = bytearray(ENTRY_BYTES * 20)
        try:
            noted = module.note_keys(table, SECRET, 19, batch, payload, 0)
            kept = module.keep_records(table, SECRET, noted[1], batch, payload, True)
            outcomes.append((noted, kept._replace(payload=bytes(kept.payload))))
        except CorruptRecordError as error:
            outcomes.append(error.message)

    assert all(outcome == outcomes[0] for outcome in outcomes)


@common
@given(
    records=batches_of_records.map(lambda lists: lists[0]), difference=st.integers(-(2**40), 2**40)
)
def test_shifted_timestamps_are_the_same_ones(records, difference):
    """The records are the same for a base timestamp that differs as much."""
    batch = RecordBatch(build_batch(records))
    shifted = shift_timestamps(batch.payload(), batch.record_count, difference)
    moved = RecordBatch(batch.buffer)
    moved.base_timestamp -= difference

    assert kernel.decode_records(moved, shifted) == list(batch.records())


def test_shift_that_does_not_fit_is_refused():
    """A delta of more than 64 bits cannot be written."""
    batch = RecordBatch(build_batch([(-5, b"k", b"v", ())]))

    assert shift_timestamps(batch.payload(), 1, -(2**63)) is not None
    assert shift_timestamps(batch.payload(), 1, -(2**63) - 1) is None


@pytest.mark.skipif(not kernel.COMPILED, reason="the record kernel has not been compiled here")
def test_compiled_digest_is_siphash():
    """The test vectors of SipHash-2-4-128 for no byte and for one."""
    from ottla.record.native_compaction import key_digest

    assert key_digest(b"", SECRET).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert key_digest(b"\0", SECRET).hex() == "da87c1d86b99af44347659119b22fc45"
