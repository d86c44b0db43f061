# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=True
# mypy: ignore-errors
"""The loops of `plain_compaction` for the compiler; they run without holding the GIL.

So a cleaning that is under way in a thread of its own does not keep the broker's thread waiting.
The table is laid out as the plain one is, with SipHash-2-4 of 128 bits as the digest of keys.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.record.native_cursor import BufferView, Fields, Reader, Table
from cython.cimports.ottla.record.native_kernel import is_at_end, read_next, start_reading

from ottla.record import plain_decoding
from ottla.record.plain_compaction import ENTRY_BYTES, SECRET_BYTES, KeptRecords
from ottla.record.record import NO_TIMESTAMP

# "somepseudorandomlygeneratedbytes", which SipHash begins with
SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def rotate(value: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return (value << bits) | (value >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def mix(v: cython.pointer(cython.ulonglong), rounds: cython.int) -> cython.void:
    """Rounds of SipHash on its four words."""
    while rounds > 0:
        v[0] += v[1]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] += v[3]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)
        rounds -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def take_digest(
    secret: cython.pointer(cython.ulonglong),
    data: cython.p_uchar,
    size: cython.Py_ssize_t,
    digest: cython.pointer(cython.ulonglong),
) -> cython.void:
    """SipHash-2-4 with 128 bits of result (on a machine of the usual, little-endian kind)."""
    v = cython.declare(cython.ulonglong[4])
    word: cython.ulonglong = 0
    last: cython.ulonglong = cython.cast(cython.ulonglong, size) << 56
    v[0] = secret[0] ^ SIP_0
    v[1] = secret[1] ^ SIP_1 ^ 0xEE
    v[2] = secret[0] ^ SIP_2
    v[3] = secret[1] ^ SIP_3
    while size >= 8:
        memcpy(cython.address(word), data, 8)
        v[3] ^= word
        mix(v, 2)
        v[0] ^= word
        data += 8
        size -= 8
    word = 0
    memcpy(cython.address(word), data, size)
    word |= last
    v[3] ^= word
    mix(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    mix(v, 4)
    digest[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    mix(v, 4)
    digest[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


@cython.cfunc
def open_table(table: cython.pointer(Table), data: bytearray, secret: bytes) -> cython.int:
    """Set a table to its bytes, which must not be resized while it is in use."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    table.entries = cython.cast(cython.pointer(cython.ulonglong), PyByteArray_AS_STRING(data))
    table.slots = len(data) // ENTRY_BYTES
    memcpy(table.secret, PyBytes_AS_STRING(secret), 16)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_entry(
    table: cython.pointer(Table),
    key: cython.p_uchar,
    size: cython.Py_ssize_t,
    digest: cython.pointer(cython.ulonglong),
) -> cython.pointer(cython.ulonglong):
    """The entry of a key, or the free slot that it would take; its digest goes into `digest`."""
    entry = cython.declare(cython.pointer(cython.ulonglong))
    slot = cython.declare(cython.ulonglong)
    take_digest(table.secret, key, size, digest)
    slot = digest[0] % table.slots
    while True:
        entry = table.entries + 3 * slot
        if entry[2] == 0 or (entry[0] == digest[0] and entry[1] == digest[1]):
            return entry
        slot += 1
        if slot == table.slots:
            slot = 0


@cython.cfunc
def refuse(batch, payload) -> cython.int:
    """Raise the error of a batch with malformed records."""
    plain_decoding.decode_records(batch, payload)
    raise AssertionError(f"{batch!r} is malformed for the compiled loops only")


def key_digest(key: bytes, secret: bytes) -> bytes:
    """The digest of a key as it is stored in the table."""
    table = cython.declare(Table)
    digest = cython.declare(cython.ulonglong[2])
    open_table(cython.address(table), bytearray(), secret)
    take_digest(table.secret, cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)), len(key), digest)
    return cython.cast(cython.p_char, digest)[:16]


def last_offset(table_data: bytearray, secret: bytes, key: bytes):
    """See `plain_compaction.last_offset`."""
    table = cython.declare(Table)
    digest = cython.declare(cython.ulonglong[2])
    entry = cython.declare(cython.pointer(cython.ulonglong))
    open_table(cython.address(table), table_data, secret)
    entry = find_entry(
        cython.address(table),
        cython.cast(cython.p_uchar, PyBytes_AS_STRING(key)),
        len(key),
        digest,
    )
    return cython.cast(cython.longlong, entry[2]) - 1


def note_keys(
    table_data: bytearray,
    secret: bytes,
    room: cython.longlong,
    batch,
    payload,
    start_offset: cython.longlong,
):
    """See `plain_compaction.note_keys`."""
    buffer = cython.declare(BufferView)
    reader = cython.declare(Reader)
    fields = cython.declare(Fields)
    table = cython.declare(Table)
    digest = cython.declare(cython.ulonglong[2])
    entry = cython.declare(cython.pointer(cython.ulonglong))
    added: cython.longlong = 0
    is_full: cython.bint = False
    open_table(cython.address(table), table_data, secret)
    PyObject_GetBuffer(payload, cython.address(buffer), PyBUF_SIMPLE)
    try:
        start_reading(
            cython.address(reader), batch, cython.cast(cython.p_uchar, buffer.buf), buffer.len
        )
        with cython.nogil:
            while not is_full and read_next(cython.address(reader), cython.address(fields)):
                if fields.key_size < 0 or fields.offset < start_offset:
                    continue
                entry = find_entry(cython.address(table), fields.key, fields.key_size, digest)
                is_full = entry[2] == 0 and added == room
                if not is_full:
                    added += entry[2] == 0
                    entry[0] = digest[0]
                    entry[1] = digest[1]
                    entry[2] = fields.offset + 1
    finally:
        PyBuffer_Release(cython.address(buffer))
    if is_full:
        return added, fields.offset
    if not is_at_end(cython.address(reader)):
        refuse(batch, payload)
    return added, batch.next_offset


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_superfluous(
    table: cython.pointer(Table), fields: cython.pointer(Fields), keep_tombstones: cython.bint
) -> cython.bint:
    """Whether compaction removes a record that lies before the end of the table."""
    digest = cython.declare(cython.ulonglong[2])
    entry = cython.declare(cython.pointer(cython.ulonglong))
    if fields.key_size < 0 or (fields.value_size < 0 and not keep_tombstones):
        return True
    entry = find_entry(table, fields.key, fields.key_size, digest)
    return cython.cast(cython.longlong, entry[2]) - 1 > fields.offset


def keep_records(
    table_data: bytearray,
    secret: bytes,
    end_offset: cython.longlong,
    batch,
    payload,
    keep_tombstones: cython.bint,
):
    """See `plain_compaction.keep_records`."""
    buffer = cython.declare(BufferView)
    reader = cython.declare(Reader)
    fields = cython.declare(Fields)
    table = cython.declare(Table)
    record = cython.declare(cython.p_uchar)
    out = cython.declare(cython.p_uchar)
    kept: bytearray = bytearray()
    count: cython.longlong = 0
    null_keys: cython.longlong = 0
    max_timestamp: cython.longlong = NO_TIMESTAMP
    has_tombstone: cython.bint = False
    open_table(cython.address(table), table_data, secret)
    PyObject_GetBuffer(payload, cython.address(buffer), PyBUF_SIMPLE)
    try:
        PyByteArray_Resize(kept, buffer.len)
        out = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(kept))
        start_reading(
            cython.address(reader), batch, cython.cast(cython.p_uchar, buffer.buf), buffer.len
        )
        with cython.nogil:
            record = reader.cursor.at
            while read_next(cython.address(reader), cython.address(fields)):
                if fields.offset < end_offset and is_superfluous(
                    cython.address(table), cython.address(fields), keep_tombstones
                ):
                    null_keys += fields.key_size < 0
                else:
                    if count == 0 or fields.timestamp > max_timestamp:
                        max_timestamp = fields.timestamp
                    has_tombstone = has_tombstone or fields.value_size < 0
                    count += 1
                    memcpy(out, record, reader.cursor.at - record)
                    out += reader.cursor.at - record
                record = reader.cursor.at
    finally:
        PyBuffer_Release(cython.address(buffer))
    if not is_at_end(cython.address(reader)):
        refuse(batch, payload)
    if count < batch.record_count:
        PyByteArray_Resize(kept, out - cython.cast(cython.p_uchar, PyByteArray_AS_STRING(kept)))
        payload = kept
    return KeptRecords(payload, count, max_timestamp, has_tombstone, null_keys)
