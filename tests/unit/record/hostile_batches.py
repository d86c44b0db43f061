"""Batches that lie, by what they lie about; all but a few have a CRC that is right."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from handmade import sealed

from ottla.record.compression import CompressionType, compress
from ottla.record.record import encode_varint

INT32 = 2**31 - 1
INT64 = 2**63 - 1
ONE = bytes.fromhex("0c 00 00 00 01 01 00")
TWO = ONE + bytes.fromhex("0c 00 00 02 01 01 00")

# Varints that are none, or of more bits than their field has, and what is at their place otherwise.
ENDLESS = b"\x80" * 12
TOO_LONG = b"\x80\x80\x80\x80\x80\x00"
BITS_33 = b"\xff\xff\xff\xff\x1f"
BITS_65 = b"\xff" * 9 + b"\x02"
LARGEST = encode_varint(INT32)
SMALLEST = encode_varint(-INT32 - 1)
MINUS_TWO = encode_varint(-2)
TOO_MUCH = encode_varint(30)


def record(**fields: bytes) -> bytes:
    """A record with one header, whose fields may be any bytes; its length is right unless given."""
    body = b"".join(
        (
            fields.get("attributes", b"\0"),
            fields.get("timestamp_delta", b"\0"),
            fields.get("offset_delta", b"\0"),
            fields.get("key_size", encode_varint(1)) + fields.get("key", b"k"),
            fields.get("value_size", encode_varint(1)) + fields.get("value", b"v"),
            fields.get("header_count", encode_varint(1)),
            fields.get("header_key_size", encode_varint(1)) + b"h",
            fields.get("header_value_size", encode_varint(1)) + b"x",
        )
    )
    return fields.get("length", encode_varint(len(body))) + body


SIZES = {"length", "key_size", "value_size", "header_count", "header_key_size", "header_value_size"}
BROKEN = {
    "endless": ENDLESS,
    "of six bytes": TOO_LONG,
    "of 33 bits": BITS_33,
    "of 2^31-1": LARGEST,
    "of -2^31": SMALLEST,
    "of -2": MINUS_TWO,
    "beyond the record": TOO_MUCH,
}


def broken_varints() -> Iterator[tuple[str, bytes]]:
    """Records sections of one record, each with one varint that cannot be."""
    for field in sorted(SIZES):
        for name, varint in BROKEN.items():
            yield f"{field} {name}", record(**{field: varint})
    for name, varint in {"endless": ENDLESS, "of 65 bits": BITS_65}.items():
        yield f"timestamp_delta {name}", record(timestamp_delta=varint)
    for name in ("endless", "of six bytes", "of 33 bits", "of 2^31-1", "of -2^31", "of -2"):
        yield f"offset_delta {name}", record(offset_delta=BROKEN[name])
    yield "header_key_size of -1", record(header_key_size=encode_varint(-1))
    yield "header_count of 0", record(header_count=b"\0")
    whole = record()
    for size in range(1, len(whole)):
        yield f"cut after {size} bytes", whole[:size] + ENDLESS[: max(0, 7 - size)]


def lying_sections() -> Iterator[tuple[str, bytes, int]]:
    """Records sections that are not so many records."""
    yield "a record fewer than it says", ONE, 2
    yield "a record more than it says", TWO, 1
    yield "nothing but zeros", bytes(70), 10
    yield "noise", b"these are no records at all", 3
    yield "no bytes", b"", 1
    yield "a byte behind the records", TWO + b"\0", 2
    yield "half a record behind them", TWO + ONE[:4], 2
    yield "no attributes", encode_varint(0) + bytes(7), 1
    for attributes in (1, 8, 0x80, 0xFF):
        yield (
            f"attributes {attributes} of a record",
            ONE + record(attributes=bytes((attributes,)), offset_delta=encode_varint(1)),
            2,
        )
    for name, deltas in {
        "twice the same": (0, 0),
        "backwards": (1, 0),
        "a gap": (0, 2),
        "from one on": (1, 2),
        "negative": (-1, 0),
        "far off": (0, INT32),
    }.items():
        yield (
            f"offset deltas: {name}",
            b"".join(record(offset_delta=encode_varint(each)) for each in deltas),
            2,
        )


def lying_headers() -> Iterator[tuple[str, bytes]]:
    """Batches whose records are in order, under a header that is not."""
    for count in (-INT32 - 1, -1, 0, 1, 3, 4, 100, INT32):
        yield f"{count} records of 2", sealed(TWO, count, last_offset_delta=1)
        last = max(count - 1, -INT32 - 1)
        yield f"{count} records and offsets, of 2", sealed(TWO, count, last_offset_delta=last)
    for delta in (-INT32 - 1, -1, 0, 2, 100, INT32):
        yield f"last offset delta {delta}", sealed(TWO, 2, last_offset_delta=delta)
    for offset in (-INT64 - 1, -1, 1, 42, INT64 - 1, INT64):
        yield f"base offset {offset}", sealed(TWO, 2, base_offset=offset)
    for codec in (5, 6, 7):
        yield f"codec {codec}", sealed(TWO, 2, attributes=codec)
    for name, attributes in {
        "gzip around what is not compressed": 1,
        "snappy around what is not compressed": 2,
        "lz4 around what is not compressed": 3,
        "zstd around what is not compressed": 4,
        "a control batch": 0x20,
        "a control batch of a transaction": 0x30,
        "a delete horizon": 0x40,
        "a transaction without a producer": 0x10,
    }.items():
        yield name, sealed(TWO, 2, attributes=attributes)
    for name, header in {
        "no sequence": {"producer_id": 7, "producer_epoch": 0},
        "a negative sequence": {"producer_id": 7, "producer_epoch": 0, "base_sequence": -2},
        "no epoch": {"producer_id": 7, "base_sequence": 0},
        "a negative epoch": {"producer_id": 7, "producer_epoch": -2, "base_sequence": 0},
        "producer id -2": {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
        "producer id -2^63": {"producer_id": -INT64 - 1},
    }.items():
        yield name, sealed(TWO, 2, **header)
    for length in (-INT32 - 1, -1, 0, 48, 49, 62, 64, INT32):
        yield f"batch length {length}", sealed(TWO, 2, batch_length=length)
    for magic in (-128, -1, 0, 1, 3, 127):
        yield f"magic {magic}", sealed(TWO, 2, magic=magic)
    late = record(timestamp_delta=encode_varint(1))
    yield "a timestamp above 64 bits", sealed(late, 1, base_timestamp=INT64)
    early = record(timestamp_delta=encode_varint(-1))
    yield "a timestamp below 64 bits", sealed(early, 1, base_timestamp=-INT64 - 1)
    wrong = bytearray(sealed(TWO, 2))
    wrong[-1] ^= 1
    yield "a wrong CRC", bytes(wrong)
    for size in (0, 11, 16, 17, 60, 61, 70):
        yield f"cut after {size} bytes", sealed(TWO, 2)[:size]
    yield "two batches", sealed(TWO, 2) * 2
    yield "a byte behind the batch", sealed(TWO, 2) + b"\0"


def lying_compressed() -> Iterator[tuple[str, bytes]]:
    """Batches whose compressed bytes are wrong, or go on behind their end."""
    for codec in CompressionType:
        if codec is CompressionType.NONE:
            continue
        whole = compress(codec, TWO * 1000)
        for name, data in {
            "nothing": b"",
            "one byte": whole[:1],
            "half": whole[: len(whole) // 2],
            "without their last byte": whole[:-1],
            "noise": b"\x07no codec has written this",
            "nothing unpacked": compress(codec, b""),
        }.items():
            yield f"{codec.label} data: {name}", sealed(data, 2, attributes=int(codec))


@cache
def hostile_batches() -> dict[str, bytes]:
    """All of them by their names; the flaws of records in each codec."""
    found = dict(lying_headers())
    found.update(lying_compressed())
    for name, section, count in lying_sections():
        found[name] = sealed(section, count)
        for codec in CompressionType:
            if codec is not CompressionType.NONE:
                packed = compress(codec, section)
                found[f"{name}, {codec.label}"] = sealed(packed, count, attributes=int(codec))
    return found


@cache
def hostile_varints() -> dict[str, bytes]:
    """A batch for each broken varint."""
    return {name: sealed(section, 1) for name, section in broken_varints()}
