"""Rows to records, plain and compiled: the same bytes, where Kafka's clients put them."""

from __future__ import annotations

import itertools
import mmap
from array import array

import pyarrow as pa
import pytest

from ottla.clients.producer.partitioner import partition_for_key
from ottla.record import kernel, rows
from ottla.record.batch_builder import build_batch_of_payload
from ottla.record.record_batch import RecordBatch
from ottla.record.rows import BinaryRows, Rows, rows_of

ENCODERS = [rows.RowEncoder, kernel.RowEncoder] if kernel.COMPILED else [rows.RowEncoder]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(params=ENCODERS, ids=lambda encoder: encoder.__module__.rpartition(".")[2])
def encoder_class(request):
    """The plain encoder, and the compiled one where it has been built."""
    return request.param


def records(encoded):
    """What a reader of the batch finds."""
    times = (encoded.base_timestamp_ms, encoded.max_timestamp_ms)
    batch = RecordBatch(build_batch_of_payload(encoded.payload, times, encoded.record_count))
    batch.verify()
    return kernel.decode_records(batch, batch.payload())


def encode(encoder_class, *arguments, partitions=4, batch_size=1 << 20, sticky=(0,), time=5):
    encoder = encoder_class(partitions, batch_size, itertools.cycle(sticky).__next__)
    return [*encoder.append(rows_of(*arguments), time), *encoder.finish()]


def test_rows_become_the_records_they_are(encoder_class):
    """Nulls, empty strings, headers with and without values, and the time of writing."""
    keys = pa.array(["a", None, "é", ""])
    values = pa.array([b"1", b"", None, b"\x00\xff"])
    headers = pa.array(
        [[{"key": "h", "value": b"x"}, {"key": "ü", "value": None}], None, [], None], HEADERS
    )
    [batch] = encode(encoder_class, values, keys, None, headers, partitions=1)

    assert [tuple(record) for record in records(batch)] == [
        (0, 5, b"a", b"1", (("h", b"x"), ("ü", None))),
        (1, 5, None, b"", ()),
        (2, 5, "é".encode(), None, ()),
        (3, 5, b"", b"\x00\xff", ()),
    ]


def test_slice_of_a_column_of_more_than_two_gibibytes_is_read(encoder_class):
    """Its offsets have 64 bits. The memory before it is never touched."""
    data = mmap.mmap(-1, (1 << 31) + 10)
    data[1 << 31 : (1 << 31) + 4] = b"abcd"
    offsets = array("q", [0, (1 << 31), (1 << 31) + 1, (1 << 31) + 1, (1 << 31) + 4])
    validity = pa.py_buffer(bytes([0b10111]))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.large_binary(), 4, buffers)
    [batch] = encode(encoder_class, whole.slice(1), partitions=1)
    assert [each.value for each in records(batch)] == [b"a", b"", None]
    [batch] = encode(encoder_class, whole.slice(1, 1), partitions=1)
    assert [each.value for each in records(batch)] == [b"a"]


def test_slices_and_large_types_are_read_at_their_place(encoder_class):
    """Spark may hand over arrays that begin in the middle of their buffers."""
    values = pa.array([b"0", None, b"22", b"333"]).slice(1)
    keys = pa.array(["x", "y", None, "z"], pa.large_string()).slice(1)
    partitions = pa.array([9, 2, None, 2], pa.int64()).slice(1)
    headers = pa.array([None, None, [{"key": "a", "value": b"1"}], None], HEADERS).slice(1)
    batches = encode(encoder_class, values, keys, partitions, headers, sticky=(3,))

    assert [(b.partition, [tuple(r)[2:] for r in records(b)]) for b in batches] == [
        (2, [(b"y", None, ()), (b"z", b"333", ())]),
        (3, [(None, b"22", (("a", b"1"),))]),
    ]


def test_keys_go_where_kafkas_clients_send_them(encoder_class):
    """Murmur2 for keys of every length; without key one partition after the other gets a batch."""
    keys = pa.array([bytes(range(250 - n, 250)) for n in range(40)])
    batches = encode(encoder_class, keys, keys, partitions=7)

    for batch in batches:
        for record in records(batch):
            assert partition_for_key(record.key, 7) == batch.partition
    assert sum(batch.record_count for batch in batches) == 40

    nulls = encode(encoder_class, pa.array([b"x" * 100] * 10), batch_size=450, sticky=(2, 0, 3))
    counts = [(each.partition, each.record_count) for each in nulls]
    assert counts == [(2, 3), (0, 3), (2, 1), (3, 3)]


def test_batches_end_before_they_are_too_large(encoder_class):
    """Only a record that is too large by itself goes beyond; numbering begins anew."""
    encoder = encoder_class(1, 300, lambda: 0)
    values = rows_of(pa.array([b"a" * 100, b"b" * 100, b"c" * 900, b"d"]))
    batches = [*encoder.append(values, 10), *encoder.append(values, 7), *encoder.finish()]

    found = [[(r.offset, r.timestamp_ms, r.value[:1]) for r in records(b)] for b in batches]
    assert found == [
        [(0, 10, b"a"), (1, 10, b"b")],
        [(0, 10, b"c")],
        [(0, 10, b"d"), (1, 7, b"a"), (2, 7, b"b")],
        [(0, 7, b"c")],
        [(0, 7, b"d")],
    ]
    assert [(b.base_timestamp_ms, b.max_timestamp_ms) for b in batches[1:3]] == [(10, 10), (10, 10)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Rows(1, BinaryRows(None, b"\0" * 8, b"", 4)), None),
        (Rows(1, BinaryRows(None, (0).to_bytes(4, "little") + b"\x09\0\0\0", b"ab")), "of 2 bytes"),
        (rows_of(pa.array([b""]), None, pa.array([4])), "partition 4 of 4"),
    ],
)
def test_what_lies_outside_a_buffer_is_not_read(encoder_class, wrong, said):
    """Offsets are compared with the size of what they point into."""
    with pytest.raises((ValueError, IndexError), match=said):
        encoder_class(4, 100, lambda: 0).append(wrong, 0)


def test_headers_without_key_are_refused(encoder_class):
    """Kafka's records cannot have them."""
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)

    with pytest.raises(ValueError, match="a header without a key"):
        encode(encoder_class, pa.array([b""]), None, None, headers)
