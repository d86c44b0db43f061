"""The loops of compaction over the records of a batch, in plain Python.

They work on a table of 24 bytes an entry: a 16-byte digest of a key, and one more than the offset
of its last record, so that zeros are a free slot. A key belongs in the slot that its digest names,
or in the first free one behind it. The digests are keyed with a secret: a client that chooses the
keys of records cannot make two of them collide, which would let one delete the other.

Plain and compiled loops cannot share a table: the compiled ones use another digest.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.record.plain_decoding import decode_records
from ottla.record.record import BatchHeader, decode_varint, decode_varlong, encode_varint
from ottla.structs import NO_TIMESTAMP, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

ENTRY_BYTES: Final = 24
DIGEST_BYTES: Final = 16
SECRET_BYTES: Final = 16

_OFFSET: Final = Struct("=q")
_INT64: Final = range(-(1 << 63), 1 << 63)


class KeptRecords(NamedTuple):
    """The records of a batch that stay, as bytes: the given object if all of them do."""

    payload: Buffer
    record_count: int
    max_timestamp_ms: int
    has_tombstone: bool
    null_key_count: int


def note_keys(
    table: bytearray,
    secret: bytes,
    room: int,
    batch: BatchHeader,
    payload: Buffer,
    start_offset: int,
) -> tuple[int, int]:
    """Note the last offset of each key of a batch, from `start_offset` on.

    At most `room` keys are added to the table; where one more is met, it stops. Returns how many
    were added, and the offset before which everything has been noted.
    """
    added = 0
    for offset, _, key, _, _ in decode_records(batch, payload):
        if key is None or offset < start_offset:
            continue
        digest = _digest(key, secret)
        place = _place(table, digest)
        if not _OFFSET.unpack_from(table, place + DIGEST_BYTES)[0]:
            if added == room:
                return added, offset
            added += 1
            table[place : place + DIGEST_BYTES] = digest
        _OFFSET.pack_into(table, place + DIGEST_BYTES, offset + 1)
    return added, batch.next_offset


def last_offset(table: bytearray, secret: bytes, key: bytes) -> int:
    """The offset that is noted for a key; -1 if none is."""
    place = _place(table, _digest(key, secret))
    return int(_OFFSET.unpack_from(table, place + DIGEST_BYTES)[0]) - 1


def keep_records(
    table: bytearray,
    secret: bytes,
    end_offset: int,
    batch: BatchHeader,
    payload: Buffer,
    keep_tombstones: bool,
) -> KeptRecords:
    """Leave out records that compaction removes: those with a later one of their key in the table.

    Records at or behind `end_offset`, up to which keys were noted, all stay. Before that, those
    without a key go as well, and so do those without a value unless tombstones are kept.
    """
    kept: list[bytes] = []
    count, null_key_count = 0, 0
    max_timestamp, has_tombstone = NO_TIMESTAMP, False
    data, position = bytes(payload), 0
    for record in decode_records(batch, data):
        start = position
        length, position = decode_varint(data, position)
        position += length
        if record.offset < end_offset:
            if record.key is None:
                null_key_count += 1
                continue
            if record.value is None and not keep_tombstones:
                continue
            if last_offset(table, secret, record.key) > record.offset:
                continue
        max_timestamp = max(max_timestamp, record.timestamp_ms) if count else record.timestamp_ms
        has_tombstone = has_tombstone or record.value is None
        kept.append(data[start:position])
        count += 1
    if count < batch.record_count:
        payload = b"".join(kept)
    return KeptRecords(payload, count, max_timestamp, has_tombstone, null_key_count)


def shift_timestamps(payload: Buffer, count: int, difference_ms: int) -> bytes | None:
    """The same records for a base timestamp that is lower by so much.

    None if one of the deltas then does not fit into 64 bits.
    """
    data, position = bytes(payload), 0
    parts: list[bytes] = []
    for _ in range(count):
        length, position = decode_varint(data, position)
        end = position + length
        delta, behind = decode_varlong(data, position + 1)
        delta += difference_ms
        if delta not in _INT64:
            return None
        body = b"%b%b%b" % (data[position : position + 1], encode_varint(delta), data[behind:end])
        parts += (encode_varint(len(body)), body)
        position = end
    return b"".join(parts)


def _digest(key: bytes, secret: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES, key=secret).digest()


def _place(table: bytearray, digest: bytes) -> int:
    """Where the entry of a digest begins, or the free slot that it would take."""
    slots = len(table) // ENTRY_BYTES
    slot = int.from_bytes(digest[:8], "little") % slots
    while True:
        place = slot * ENTRY_BYTES
        if (
            table[place : place + DIGEST_BYTES] == digest
            or not _OFFSET.unpack_from(table, place + DIGEST_BYTES)[0]
        ):
            return place
        slot = (slot + 1) % slots
