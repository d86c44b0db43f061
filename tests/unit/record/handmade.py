"""Batches put together byte by byte from the description of the format, without any of our code."""

from __future__ import annotations

import struct


def remainder(byte: int) -> int:
    """What the Castagnoli polynomial leaves of a byte, bit by bit."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


REMAINDERS = [remainder(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C by its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ REMAINDERS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def sealed(records: bytes, count: int, **header: int) -> bytes:
    """A batch around a records section; the header may say anything."""
    tail = (
        struct.pack(
            ">hiqqqhii",
            header.get("attributes", 0),
            header.get("last_offset_delta", count - 1),
            header.get("base_timestamp", 1000),
            header.get("max_timestamp", 1000),
            header.get("producer_id", -1),
            header.get("producer_epoch", -1),
            header.get("base_sequence", -1),
            count,
        )
        + records
    )
    head = struct.pack(
        ">qiib",
        header.get("base_offset", 0),
        header.get("batch_length", len(tail) + 9),
        header.get("leader_epoch", -1),
        header.get("magic", 2),
    )
    return head + struct.pack(">I", crc32c(tail)) + tail


# Two records at offset 100: null key, "hello", no headers; then 5 ms earlier the key "k", a null
# value, and the headers h="x" and n=null.
TWO_RECORDS = bytes.fromhex(
    "0000000000000064"  # base offset 100
    "0000004c"  # batch length 76
    "00000007"  # partition leader epoch 7
    "02"  # magic
    "e0205085"  # CRC-32C of all that follows
    "0000"  # attributes: no compression, create time
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56800"  # max timestamp
    "ffffffffffffffff"  # no producer id
    "ffff"  # no producer epoch
    "ffffffff"  # no base sequence
    "00000002"  # two records
    "16"  # length 11
    "00"  # attributes
    "00"  # timestamp delta 0
    "00"  # offset delta 0
    "01"  # null key
    "0a68656c6c6f"  # value of 5 bytes
    "00"  # no headers
    "1c"  # length 14
    "00"  # attributes
    "09"  # timestamp delta -5
    "02"  # offset delta 1
    "026b"  # key of 1 byte
    "01"  # null value
    "04"  # two headers
    "0268"  # header key of 1 byte
    "0278"  # header value of 1 byte
    "026e"  # header key of 1 byte
    "01"  # null header value
)
