"""What holds for every batch: records survive it, and bytes that are none are refused as such."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from breadth import examples
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.record import (
    columns,
    kernel,
    plain_decoding,
    plain_encoding,
    plain_survey,
    record_batch,
)
from ottla.record.batch_builder import BatchBuilder, build_batch
from ottla.record.compression import CompressionType, compress, decompress
from ottla.record.memory_records import batches
from ottla.record.record import CorruptRecordError, encode_varint
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch

common = settings(derandomize=True, max_examples=examples(300), deadline=None, database=None)
needs_compiled_kernel = pytest.mark.skipif(
    not kernel.COMPILED, reason="the record kernel has not been compiled here"
)

codecs = st.sampled_from(CompressionType)
timestamps = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-(2**62), 2**62)
)
data = (
    st.none()
    | st.binary(max_size=200)
    | st.builds(lambda size: b"x" * size, st.integers(0, 20_000))
)
header_keys = st.text(st.characters(codec="utf-8"), max_size=9)
headers = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=9), st.none() | st.binary(max_size=99)
    ),
    max_size=3,
).map(tuple)
records = st.lists(st.tuples(timestamps, data, data, headers), min_size=1, max_size=20)

# Where to change a byte, as a fraction of the whole, and what to.
mutations = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
)


def mutated(original: bytes, changes: list[tuple[float, int]], start: int = 0) -> bytearray:
    """The bytes with some of them changed, from `start` on."""
    changed = bytearray(original)
    for where, byte in changes:
        if start < len(changed):
            changed[start + int(where * (len(changed) - start))] = byte
    return changed


def outcome(function: Callable[[], object]) -> object:
    """What a function returns, or says when it refuses its input."""
    try:
        return function()
    except CorruptRecordError as error:
        return error.message


def as_bytes(value: object) -> object:
    """Buffers of any kind as bytes, also inside of tuples, so that they can be compared."""
    if isinstance(value, tuple):
        return tuple(as_bytes(item) for item in value)
    return bytes(value) if isinstance(value, bytearray) else value


def build_columns(builder: object, batch: RecordBatch, payload: object) -> object:
    """The columns of one batch."""
    builder.append(batch, payload, batch.base_offset + 2, batch.base_offset + 15)
    return as_bytes(builder.finish())


@common
@given(records, codecs)
def test_records_survive_the_batch(items, codec):
    """Whatever the records are, they come back, in any codec, from the room that was promised."""
    builder = BatchBuilder()
    for item in items:
        builder.append(*item)
    assert builder.size_in_bytes >= len(builder.build())
    batch = RecordBatch(build_batch(items, codec, base_offset=9))
    batch.verify()

    assert [tuple(record[1:]) for record in batch.records()] == items
    assert [record.offset for record in batch.records()] == list(range(9, 9 + len(items)))
    assert batch.max_timestamp == max(timestamp for timestamp, *_ in items)


@common
@given(records, mutations, st.booleans())
def test_changed_records_are_read_or_refused(items, changes, with_crc):
    """No change of any byte makes anything else of a batch than records or CorruptRecordError."""
    changed = mutated(build_batch(items), changes)
    if with_crc:
        changed[17:21] = struct.pack(">I", crc32c(changed[21:]))

    def read() -> None:
        for batch in batches(changed):
            batch.verify()
            assert len(list(batch.records())) == batch.record_count

    outcome(read)


@common
@given(st.binary(max_size=300))
def test_any_bytes_are_batches_or_refused(junk):
    """Nothing but CorruptRecordError comes of bytes that are no batch."""
    outcome(lambda: [list(batch.records()) for batch in batches(junk)])
    outcome(lambda: RecordBatch(junk).verify())


@needs_compiled_kernel
@common
@given(records)
def test_kernels_write_the_same(items):
    """Compiled and plain loops make the same bytes."""
    compiled, plain = kernel.encode_records(items), plain_encoding.encode_records(items)
    values = [value for _, _, value, _ in items]

    assert as_bytes(compiled) == as_bytes(plain)
    assert bytes(kernel.encode_values(values)) == bytes(plain_encoding.encode_values(values))


@needs_compiled_kernel
@common
@given(records, mutations | st.just([]), st.sampled_from([0, 23, BATCH_OVERHEAD]))
def test_kernels_read_the_same(items, changes, start):
    """On whole and on damaged bytes compiled and plain loops return, or say, the same."""
    changed = mutated(build_batch(items), changes, start)
    batch, payload = RecordBatch(changed), bytes(changed[BATCH_OVERHEAD:])

    loops = (
        (plain_decoding.decode_records, ()),
        (plain_decoding.decode_consumer_records, ("pages", 5)),
        (plain_survey.survey_records, ()),
    )
    for plain, place in loops:
        compiled = getattr(kernel, plain.__name__)
        expected = outcome(lambda loop=plain, place=place: loop(batch, payload, *place))
        assert outcome(lambda loop=compiled, place=place: loop(batch, payload, *place)) == expected
    for with_headers in (True, False):
        builders = (columns.ColumnBuilder(with_headers), kernel.ColumnBuilder(with_headers))
        expected, found = (
            outcome(lambda builder=builder: build_columns(builder, batch, payload))
            for builder in builders
        )
        assert found == expected


equal_records = st.tuples(
    st.integers(1, 300),
    st.binary(max_size=200) | st.none(),
    st.binary(max_size=200) | st.none(),
    st.lists(st.integers(0, 20_000), min_size=1, max_size=20),
)


@needs_compiled_kernel
@common
@given(equal_records, mutations | st.just([]), st.integers(0, 70))
def test_kernels_survey_equal_records_the_same(equal, changes, start):
    """Of records of the same size, which the plain loop looks at in columns, also damaged ones."""
    count, key, value, deltas = equal
    times = [1_700_000_000_000 + deltas[n % len(deltas)] for n in range(count)]
    whole = build_batch([(time, key, value, ()) for time in times])
    changed = mutated(whole, changes, start)
    batch, plain = RecordBatch(changed), plain_survey.survey_records

    expected = outcome(lambda: plain_decoding.decode_records(batch, changed[BATCH_OVERHEAD:]))
    found = outcome(lambda: plain(batch, changed, BATCH_OVERHEAD))
    if isinstance(expected, str):
        assert isinstance(found, str)  # of two flaws in a record, either may be named
    elif isinstance(found, str):
        assert "its attributes" in found  # readers pass them by
    elif expected:
        times = [record.timestamp_ms for record in expected]
        latest = max(times)
        assert found == (
            min(times),
            latest,
            expected[times.index(latest)].offset,
            sum(record.key is None for record in expected),
        )
    assert outcome(lambda: kernel.survey_records(batch, changed, BATCH_OVERHEAD)) == found


# Records of one shape: how many, the size of their keys, the sizes of their values, which differ by
# a step, how far their timestamps are from the batch's and apart, and how many headers they have.
# Most numbers lie where a varint gets longer.
shapes = st.tuples(
    st.integers(1, 40),
    st.sampled_from([-1, -1, 0, 5, 63, 64]),
    st.sampled_from([-1, 0, 3, 40, 63, 64, 100, 8150, 8191, 8192]),
    st.sampled_from([0, 0, 1, 37]),
    st.sampled_from([0, 0, 0, -1, 63, -64, 64, 8191, 2**20, 2**27, -(2**34), 2**40]),
    st.sampled_from([0, 0, 1, 999]),
    st.sampled_from([0, 0, 0, 1, 64]),
)
# What is odd about a record: which of them all, as a fraction, which of its fields, and how. A
# varint may be written longer than it needs to be, and an offset may be passed over.
oddities = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(range(7)), st.integers(1, 3)),
    max_size=3,
)
# How many small records come before the shapes, so that offsets, too, get longer within them.
before = st.sampled_from([0, 0, 0, 40, 8170])


def padded(value: int, extra: int) -> bytes:
    """A varint with so many bytes more than it needs."""
    data = bytearray(encode_varint(value))
    for _ in range(extra):
        data[-1] |= 0x80
        data.append(0)
    return bytes(data)


def odd_record(fields: tuple[int, int, int, int, int], odd_field: int, extra: int) -> bytes:
    """A record of a timestamp, an offset, the sizes of key and value and a count of headers."""
    extras = [extra if field == odd_field else 0 for field in range(6)]
    time, offset, key, value, header_count = (
        padded(field, extra) for field, extra in zip(fields, extras, strict=False)
    )
    header = padded(1, 0) + b"h" + padded(-1, 0)
    body = b"".join(
        (
            b"\x01" if odd_field == 6 else b"\0",
            *(time, offset),
            *(key, b"k" * fields[2]),
            *(value, b"v" * fields[3]),
            *(header_count, header * fields[4]),
        )
    )
    return padded(len(body), extras[5]) + body


def batch_of_shapes(
    first: int, runs: list[tuple[int, ...]], odd: list[tuple[float, int, int]]
) -> tuple[RecordBatch, bytes]:
    """A batch of `first` small records and then these shapes, and its records section."""
    count = first + sum(run[0] for run in runs)
    odd_at = {int(where * count): (field, extra) for where, field, extra in odd}
    rows = [(0, -1, -1, 0)] * first
    for size, key, value, step, time, time_step, header_count in runs:
        rows += [
            (time + n * time_step, key, value + n * step % 80, header_count) for n in range(size)
        ]
    parts, offset = [], 0
    for index, (time, key, value, header_count) in enumerate(rows):
        field, extra = odd_at.get(index, (-1, 0))
        offset += field == 1 and extra == 3
        parts.append(odd_record((time, offset, key, value, header_count), field, extra % 3))
        offset += 1
    payload = b"".join(parts)
    batch = RecordBatch(build_batch([(1_700_000_000_000, None, None, ())]))
    batch.record_count, batch.last_offset_delta = count, offset - 1
    return batch, payload


def survey_one_by_one(batch: RecordBatch, payload: bytes) -> object:
    """What the plain survey finds without its quick loops."""
    batch.check_count(len(payload))
    survey = plain_survey._Survey(batch, payload)
    survey.quick_end = 0
    return survey.run()


@settings(common, max_examples=examples(150))
@given(
    before,
    st.lists(shapes, min_size=1, max_size=4),
    oddities,
    mutations | st.just([]),
    st.just(1) | st.floats(0, 1),
)
def test_kernels_survey_mixed_shapes_the_same(first, runs, odd, changes, whole):
    """However records of all shapes follow each other, odd or damaged or cut off at the end."""
    batch, records = batch_of_shapes(first, runs, odd)
    payload = bytes(mutated(records, changes))[: round(whole * len(records))]

    expected = outcome(lambda: survey_one_by_one(batch, payload))
    assert outcome(lambda: plain_survey.survey_records(batch, payload)) == expected
    assert outcome(lambda: kernel.survey_records(batch, payload)) == expected


@needs_compiled_kernel
@pytest.mark.parametrize("step_ms", [0, 1, 7])
@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 30_000])
def test_kernels_survey_many_records_the_same(count, step_ms):
    """Where the varints of offsets and times get longer, and with one record that is none."""
    data = bytearray(build_batch([(n * step_ms, None, b"v" * 9, ()) for n in range(count)]))
    batch = RecordBatch(data)
    expected = (0, (count - 1) * step_ms, batch.last_offset if step_ms else 0, count)

    assert kernel.survey_records(batch, data, BATCH_OVERHEAD) == expected
    assert plain_survey.survey_records(batch, data, BATCH_OVERHEAD) == expected
    for position in range(len(data) - 400, len(data), 17):
        changed = bytearray(data)
        changed[position] ^= 3
        found = [
            outcome(lambda loop=loop, bad=changed: loop(batch, bad, BATCH_OVERHEAD))
            for loop in (kernel.survey_records, plain_survey.survey_records)
        ]
        assert found[0] == found[1]


@common
@given(st.binary(max_size=2000), codecs, mutations)
def test_changed_compressed_data_are_refused_or_bounded(original, codec, changes):
    """Damaged data never become more than the limit, and nothing else is raised."""
    changed = mutated(compress(codec, original), changes)

    def read() -> None:
        limit = max(5000, len(changed))
        assert len(decompress(codec, changed, limit)) <= limit

    outcome(read)


@common
@given(codecs, records, st.booleans(), st.integers(1, 4))
def test_slices_of_records_are_the_records(codec, given_records, is_log_append_time, most):
    """Whatever their keys, values and headers are, and wherever a piece of their bytes ends."""
    batch = RecordBatch(bytes(build_batch(given_records, codec)))
    if is_log_append_time:
        batch.attributes |= 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "RECORDS_IN_A_SLICE", most)
        slices = list(batch.record_slices())

    assert [record for some in slices for record in some] == list(batch.records())
    assert all(len(some) <= most for some in slices)


@pytest.mark.parametrize("is_log_append_time", [False, True])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_slices_of_large_records_leave_their_headers_out(codec, is_log_append_time):
    """Old formats have none, and those of one record could take all memory."""
    headers = (("", None),) * 200_000
    given_records = [(7, b"k", None, headers), (9, None, b"v" * 300_000, ()), (8, b"", b"", ())]
    batch = RecordBatch(bytes(build_batch(given_records, codec)))
    if is_log_append_time:
        batch.attributes |= 8

    found = [record for some in batch.record_slices() for record in some]

    assert found == [record._replace(headers=()) for record in batch.records()]


@common
@given(codecs, records, mutations)
def test_slices_of_bytes_that_are_none_end(codec, given_records, changes):
    """The walk ends or says what is wrong, and gives no more records than the header names."""
    batch = RecordBatch(bytes(mutated(build_batch(given_records, codec), changes, BATCH_OVERHEAD)))
    count = 0
    try:
        for some in batch.record_slices():
            count += len(some)
    except CorruptRecordError:
        pass
    assert count <= max(0, batch.record_count)


@common
@given(codecs, records, st.booleans())
def test_times_are_those_of_the_records(codec, given_records, is_log_append_time):
    """Read piece by piece, whatever their keys and values are, and however large."""
    batch = RecordBatch(bytes(build_batch(given_records, codec)))
    if is_log_append_time:
        batch.attributes |= 8
    found = [each for each in batch.times() if each is not None]

    assert found == [(record.timestamp_ms, record.offset) for record in batch.records()]


@common
@given(codecs, records, mutations)
def test_times_of_bytes_that_are_none_end(codec, given_records, changes):
    """The walk ends or says what is wrong, and gives no more times than the header has records."""
    batch = RecordBatch(bytes(mutated(build_batch(given_records, codec), changes, BATCH_OVERHEAD)))
    count = 0
    try:
        count = sum(each is not None for each in batch.times())
    except CorruptRecordError:
        pass
    assert count <= batch.record_count
