"""The loops over records, plain and compiled: what they read, and what they refuse."""

import os
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import pytest
from handmade import sealed
from hostile_batches import hostile_varints

from ottla.record import (
    kernel,
    plain_compaction,
    plain_decoding,
    plain_encoding,
    plain_survey,
)
from ottla.record.batch_builder import build_batch, build_batch_of_values
from ottla.record.record import CorruptRecordError, Record, encode_varint
from ottla.record.record_batch import RecordBatch

NOW = 1_700_000_000_000
RECORDS = [
    (NOW, None, None, ()),
    (NOW - 10_000, b"", b"", ()),
    (NOW + 5, b"key", b"v" * 70, (("h", b"x"), ("empty", b""), ("null", None))),
    (NOW, b"k" * 9000, b"v" * 20_000, (("schlüssel", b"y" * 300),)),
    (-1, None, b"no timestamp", ()),
]


def record(body: str) -> bytes:
    """A record of the right length around a body in hex."""
    data = bytes.fromhex(body)
    return encode_varint(len(data)) + data


def test_encode_and_decode_are_inverse(loops):
    """Everything that a record can be comes back."""
    payload, base_timestamp, max_timestamp = loops.encode_records(RECORDS)
    data = sealed(bytes(payload), len(RECORDS), base_timestamp=base_timestamp, base_offset=7)

    assert (base_timestamp, max_timestamp) == (NOW, NOW + 5)
    assert loops.decode_records(RecordBatch(data), memoryview(data)[61:]) == [
        Record(7 + index, *fields) for index, fields in enumerate(RECORDS)
    ]


def test_encode_writes_the_bytes_of_the_format(loops):
    """Byte for byte the record of the description."""
    payload, _, _ = loops.encode_records([(5, b"k", None, (("h", b"x"),)), (4, None, b"", ())])

    assert bytes(payload).hex(" ") == "16 00 00 00 02 6b 01 02 02 68 02 78 0c 00 01 02 01 00 00"


def test_encode_of_nothing_has_no_timestamp(loops):
    """An empty batch has -1 for both."""
    payload, *timestamps = loops.encode_records([])

    assert (bytes(payload), timestamps) == (b"", [-1, -1])


def test_encode_values_is_encode_records_without_the_rest(loops):
    """The short way makes the same bytes."""
    values = [b"a", b"", None, b"b" * 9000]
    payload, _, _ = loops.encode_records([(0, None, value, ()) for value in values])

    assert bytes(loops.encode_values(values)) == bytes(payload)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_encode_takes_any_bytes(loops, kind):
    """Keys, values and header values may be other buffers than bytes."""
    payload, _, _ = loops.encode_records([(0, kind(b"k"), kind(b"v"), [("h", kind(b"x"))])])

    assert bytes(payload) == bytes(loops.encode_records([(0, b"k", b"v", (("h", b"x"),))])[0])
    assert bytes(loops.encode_values([kind(b"v")])) == bytes(loops.encode_values([b"v"]))


@pytest.mark.parametrize(
    "timestamps", [(0, 2**63), (-(2**63) - 1, 0), (2**63 - 1, -2), (-(2**63), 1)]
)
def test_encode_refuses_timestamps_out_of_reach(loops, timestamps):
    """A timestamp, and its distance from the first, must fit into 64 bits."""
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        loops.encode_records([(timestamp, None, b"", ()) for timestamp in timestamps])


def test_encode_takes_timestamps_as_far_as_they_go(loops):
    """The largest differences that fit."""
    payload, *_ = loops.encode_records([(2**63 - 1, None, b"", ()), (0, None, b"", ())])
    data = sealed(bytes(payload), 2, base_timestamp=2**63 - 1)
    records = loops.decode_records(RecordBatch(data), data[61:])

    assert [record.timestamp_ms for record in records] == [2**63 - 1, 0]


@pytest.mark.parametrize("bad", ["text", 5])
def test_encode_refuses_what_is_no_bytes(loops, bad):
    """A value that was not serialized is a mistake of the caller."""
    with pytest.raises(TypeError):
        loops.encode_records([(0, None, bad, ())])


def test_decode_replaces_invalid_utf8_in_header_keys(loops):
    """One bad producer must not stop every reader; Java replaces as well."""
    data = sealed(record("00 00 00 01 01 02 06 41ff42 01"), 1)

    assert loops.decode_records(RecordBatch(data), data[61:])[0].headers == (("A\ufffdB", None),)


MALFORMED = {
    "no length": ("", 1, "says that it has 1 records, in 0 bytes"),
    "count of 2^31-1": ("0c 00 00 00 01 01 00", 2**31 - 1, "2147483647 records, in 7 bytes"),
    "negative count": ("0c 00 00 00 01 01 00", -1, "-1 records"),
    "length beyond the end": ("0e 00 00 00 01 01 00", 1, "record 0 .* length 7 does not fit into"),
    "negative length": ("01 00 00 00 01 01 00", 1, "record 0 .* length -1 does not fit"),
    "length too small": ("0a 00 00 00 01 01 00", 1, "record 0"),
    "length too large": ("0e 00 00 00 01 01 00 00", 1, "record 0 .* length 7 is not what"),
    "overlong varint": ("808080808000 00 00 00 00 01 01 00", 1, "record 0 .* more than 5 bytes"),
    "33 bits": ("ffffffff1f 00 00 00 01 01 00", 1, "record 0 .* fit into 32 bits"),
    "65 bits": ("1e 00 ffffffffffffffffff02 00 01 01 00", 1, "record 0 .* fit into 64 bits"),
    "key too long": ("0e 00 00 00 0a 61 01 00", 1, "size 5 of its key does not fit into the 3"),
    "key of size -2": ("0c 00 00 00 03 01 00", 1, "size -2 of its key"),
    "value too long": ("0c 00 00 00 01 04 00", 1, "size 2 of its value"),
    "header count too large": ("0c 00 00 00 01 01 02", 1, "its 1 headers do not fit into the 0"),
    "negative header count": ("0c 00 00 00 01 01 01", 1, "its -1 headers"),
    "null header key": ("10 00 00 00 01 01 02 01 01", 1, "a header of it has no key"),
    "header key too long": ("12 00 00 00 01 01 02 0a 61 01", 1, "size 5 of its header key"),
    "header value too long": ("12 00 00 00 01 01 02 00 0a 61", 1, "size 5 of its header value"),
    "end within a header": (
        "18 00 00 00 01 01 02 02 68 06 78",
        1,
        "record 0 .* length 12 does not",
    ),
    "key of three bytes' size": ("10 00 00 00 828004 00 00", 1, "size 32769 of its key"),
    "value of three bytes' size": ("10 00 00 00 01 828004 00", 1, "size 32769 of its value"),
    "header key of three bytes' size": ("14 00 00 00 01 01 02 828004 00", 1, "32769 of its header"),
    "header value of three bytes' size": ("14 00 00 00 01 01 02 00 828004", 1, "32769 of its head"),
    "offset delta not increasing": ("0c 00 00 00 01 01 00" * 2, 2, "record 1 .* offset delta 0"),
    "offset delta not increasing behind a gap": (
        "0c 00 00 00 01 01 00" + "0c 00 00 04 01 01 00" * 2,
        3,
        "record 2 .* offset delta 2",
    ),
    "negative offset delta": ("0c 00 00 01 01 01 00", 1, "record 0 .* offset delta -1"),
    "offset delta above the last": ("0c 00 00 02 01 01 00", 1, "record 0 .* offset delta 1"),
    "garbage at the end": ("0c 00 00 00 01 01 00 00", 1, "has 1 bytes of garbage behind its 1"),
    "fewer than it says": ("0c 00 00 00 01 01 00" + "00" * 7, 2, "record 1"),
    "end within a varint": ("0e 00 00 00 01 01 00 80", 2, "2 records, in 8 bytes"),
}


DECODERS = {
    "decode_records": (),
    "decode_consumer_records": ("pages", 5),
    "survey_records": (),
}
"""With the arguments that they take behind the payload."""


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("decoder", DECODERS)
def test_decode_names_what_is_malformed(loops, name, decoder):
    """Batch, record and flaw are in the text, whichever loop comes upon it."""
    records, count, why = MALFORMED[name]
    data = sealed(bytes.fromhex(records), count, base_offset=42)

    with pytest.raises(CorruptRecordError, match=f"batch at offset 42.*{why}|{why}"):
        getattr(loops, decoder)(RecordBatch(data), data[61:], *DECODERS[decoder])


@pytest.mark.parametrize("name", MALFORMED)
def test_column_builder_refuses_what_is_malformed(column_builder, name):
    """Columns are made of nothing that could not be read as records."""
    records, count, why = MALFORMED[name]
    data = sealed(bytes.fromhex(records), count, base_offset=42)

    with pytest.raises(CorruptRecordError, match=why):
        column_builder().append(RecordBatch(data), data[61:], 0, 2**63 - 1)


def test_decode_refuses_offsets_and_timestamps_beyond_64_bits(loops):
    """Sums that no header field could hold."""
    one = bytes.fromhex("0c 00 02 00 01 01 00")
    late = sealed(one, 1, base_timestamp=2**63 - 1)
    high = sealed(one, 1, base_offset=2**63 - 1, last_offset_delta=1)

    with pytest.raises(CorruptRecordError, match="timestamp 9223372036854775808 does not fit"):
        loops.decode_records(RecordBatch(late), late[61:])
    with pytest.raises(CorruptRecordError, match="leads past 64 bits"):
        loops.decode_records(RecordBatch(high), high[61:])


def test_decode_refuses_every_truncation(loops):
    """Wherever the bytes end, what is left is not taken for the batch."""
    payload = bytes(loops.encode_records(RECORDS[:3])[0])
    for size in range(len(payload)):
        data = sealed(payload[:size], 3)
        with pytest.raises(CorruptRecordError):
            loops.decode_records(RecordBatch(data), data[61:])


def test_survey_sums_up_the_records(loops):
    """Smallest and largest timestamp, where the largest is first, and how many keys are null."""
    payload, base_timestamp, _ = loops.encode_records([*RECORDS, (NOW + 5, None, b"", ())])
    data = sealed(bytes(payload), 6, base_timestamp=base_timestamp, base_offset=7)

    assert loops.survey_records(RecordBatch(data), data[61:]) == (-1, NOW + 5, 9, 3)


@pytest.mark.parametrize("name", hostile_varints())
def test_survey_refuses_broken_varints(loops, name):
    """Wherever one stands, and the text says of which record it is."""
    batch = RecordBatch(hostile_varints()[name])

    with pytest.raises(CorruptRecordError, match=r"record 0 of|garbage|says that"):
        loops.survey_records(batch, batch.buffer, 61)


def test_survey_makes_no_records(loops):
    """Very many of the smallest records take no memory, also where the last one is malformed."""
    count = 100_000
    values = [None] * count
    payload = bytes(loops.encode_values(values))
    head = build_batch_of_values([None] * 2, 0)[:61]
    tracemalloc.start()
    try:
        for section, is_whole in ((payload, True), (payload[:-1] + b"\x02", False)):
            batch = RecordBatch(head + section)
            batch.record_count, batch.last_offset_delta = count, count - 1
            batch.batch_length = 49 + len(section)
            if is_whole:
                assert loops.survey_records(batch, section).null_key_count == count
            else:
                with pytest.raises(CorruptRecordError, match=f"record {count - 1} of the batch"):
                    loops.survey_records(batch, section)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 6 * len(payload)


USUAL = {
    "equal sizes": lambda n: (NOW + n // 50, None, b"v" * 100, ()),
    "uneven sizes": lambda n: (NOW + n // 50, b"k" * (n % 90), b"v" * (n * 37 % 180), ()),
    "nulls": lambda n: (NOW, None if n % 3 else b"key", None if n % 2 else b"value", ()),
    "headers": lambda n: (NOW, b"key", b"v" * (n % 90), (("h", b"x" * (n % 7)), ("null", None))),
    "times of months": lambda n: (NOW + n * n * 999 % 10**10, b"key", b"v" * (n % 90), ()),
    "falling times": lambda n: (NOW - n, None, b"v" * (n % 90), ()),
}


@pytest.mark.parametrize("count", [1, 15, 150, 10_000])
@pytest.mark.parametrize("kind", USUAL)
def test_plain_survey_is_quick_with_usual_records(monkeypatch, kind, count):
    """The loop that takes microseconds for a record is left to long varints and to flaws."""
    rows = [USUAL[kind](n) for n in range(count)]
    batch = RecordBatch(build_batch(rows))
    monkeypatch.setattr(plain_survey, "decode_one", None)

    survey = plain_survey.survey_records(batch, batch.buffer, 61)

    times = [row[0] for row in rows]
    null_keys = sum(row[1] is None for row in rows)
    assert survey == (min(times), max(times), times.index(max(times)), null_keys)


# Bodies in hex of records of equal size, by their number and offset delta; which one is refused.
FLAWS_IN_EACH = {
    "attributes": (lambda n, delta: f"01 00 {delta} 01 01 00", 0, "attributes 0x01"),
    "negative header count": (lambda n, delta: f"00 00 {delta} 01 01 01", 0, "-1 headers"),
    "length too large": (lambda n, delta: f"00 00 {delta} 01 01 00 00", 0, "length 7 is not what"),
    "size -2": (lambda n, delta: f"00 00 {delta} 01 03 00", 0, "size -2 of its value"),
    "longer times": (lambda n, delta: f"00 {'80' if n else '00'} {delta} 01 01 00", 1, "delta -1"),
    "shorter times": (lambda n, delta: f"00 {'00' if n else '80'} 01 {delta} 01 01 00", 1, "a -1"),
}


@pytest.mark.parametrize("name", FLAWS_IN_EACH)
def test_survey_refuses_equal_records_with_the_same_flaw(loops, name):
    """Records that are all alike are looked into as well as others are."""
    body, index, why = FLAWS_IN_EACH[name]
    records = b"".join(record(body(n, encode_varint(n).hex())) for n in range(50))

    with pytest.raises(CorruptRecordError, match=f"record {index} of .*{why}"):
        loops.survey_records(RecordBatch(sealed(records, 50)), records)


def test_survey_refuses_equal_records_that_reach_into_the_next(loops):
    """Each says that it is as long as two of them."""
    records = b"".join(b"\x1a\0\0" + encode_varint(n) + b"\1\1\0" for n in range(50))

    with pytest.raises(CorruptRecordError, match="length 13 is not what its fields take up"):
        loops.survey_records(RecordBatch(sealed(records, 50)), records)


def test_survey_refuses_equal_records_beyond_the_last_offset_delta(loops):
    """The header of the batch says less than the last of them."""
    batch = RecordBatch(build_batch([(NOW, None, b"", ())] * 50))
    batch.last_offset_delta = 48

    with pytest.raises(CorruptRecordError, match=r"record 49 of .* offset delta 49 is"):
        loops.survey_records(batch, batch.buffer, 61)


def test_survey_tells_fields_apart_that_could_be_others(loops):
    """A record whose timestamp and offset could, behind one of a later time, be its timestamp."""
    rows = [(NOW, None, b"", ()), (NOW + 100, None, b"", ()), (NOW, b"\0\2", b"", ())]
    batch = RecordBatch(build_batch(rows))

    assert loops.survey_records(batch, batch.buffer, 61) == (NOW, NOW + 100, 1, 2)


def test_survey_takes_offset_deltas_of_four_bytes(loops):
    """The keys of these could, behind three bytes of an offset delta, be null."""
    count = (1 << 20) + 3
    batch = RecordBatch(build_batch([(0, b"", b"\0", ())] * count))

    assert loops.survey_records(batch, batch.buffer, 61) == (0, 0, 0, 0)


def test_survey_of_an_empty_batch_has_no_timestamps(loops):
    """A compacted batch may have no record left."""
    batch = RecordBatch(sealed(b"", 0, last_offset_delta=3))

    assert loops.survey_records(batch, b"") == (-1, -1, -1, 0)


def test_pure_runs_the_plain_loops():
    """OTTLA_PURE=1 asks for plain Python whether or not anything has been compiled."""
    code = (
        "from ottla.record import kernel; print(kernel.COMPILED, kernel.ColumnBuilder.__module__)"
    )
    environment = {**os.environ, "OTTLA_PURE": "1"}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)

    assert output.split() == ["False", "ottla.record.columns"]


def test_kernel_has_the_names_of_the_plain_loops():
    """Whichever are in use, the functions are the same."""
    names = set(kernel.__all__) - {"COMPILED", "ColumnBuilder", "RowEncoder", "crc32c"}
    plain = plain_encoding, plain_decoding, plain_survey, plain_compaction

    assert names <= set().union(*map(dir, plain))


def test_checksum_is_found_in_any_layout_of_its_package(monkeypatch):
    """The function is found in the extension beside the package, and where there is none."""
    assert kernel.crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    finder = SimpleNamespace(find_spec=lambda name, places: None)
    monkeypatch.setattr(kernel, "PathFinder", finder)

    assert kernel._load_crc32c()(b"6789", kernel.crc32c(b"12345")) == 0xE3069283


def test_kernel_lacks_what_it_does_not_name():
    """What is loaded when it is asked for is no more than the two classes."""
    with pytest.raises(AttributeError, match="'RowDecoder'"):
        kernel.RowDecoder  # noqa: B018
