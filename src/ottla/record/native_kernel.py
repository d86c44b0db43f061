# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=True
# mypy: ignore-errors
"""The loops over records for the compiler: the functions of the plain loops, and as strict.

This is Cython in pure Python mode. It is imported compiled or not at all (`kernel` sees to it).
Every byte is read through a `Cursor`, which knows where the bytes end: a read that would pass the
end, or a value that cannot be, marks the cursor as bad, and nothing more is read through it.
Anything unusual is left to the plain loops (`plain_encoding`, `plain_decoding`, `plain_survey`),
which also make the messages of errors.
The types are C's, which Cython checks and mypy cannot.
"""

from __future__ import annotations

from importlib import import_module

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.record.native_cursor import (
    BufferView,
    Cursor,
    Fields,
    PyObject_GC_UnTrack,
    PyType_GenericAlloc,
    Reader,
    Survey,
)

from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.record.record import EMPTY_SURVEY, Record, RecordSurvey

INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
FAR = cython.declare(cython.longlong, 1 << 62)
MIN_RECORD_BYTES = cython.declare(cython.longlong, 7)
LOG_APPEND_TIME_FLAG = cython.declare(cython.int, 0x08)
MIN_BYTES_WITHOUT_GIL = cython.declare(cython.Py_ssize_t, 1 << 20)
# An odd number above all raw varints of three bytes.
OVERLONG = cython.declare(cython.longlong, (1 << 21) + 1)
MAX_SHORT_BYTES = cython.declare(cython.Py_ssize_t, 3)
# The length, the attributes, and three varints more.
MARGIN = cython.declare(cython.Py_ssize_t, 13)
NO_HEADERS = cython.declare(bytes, b"\x00")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_varint(cursor: cython.pointer(Cursor), bits: cython.int) -> cython.longlong:
    """A zig-zag integer of 32 or 64 bits, in at most 5 or 10 bytes."""
    raw: cython.ulonglong = 0
    byte = cython.declare(cython.ulonglong)
    shift: cython.int = 0
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        # The last byte may only hold the bits that are left: 4 of 32, or 1 of 64.
        if shift + 7 > bits and byte >> (bits - shift):
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
        shift += 7
    cursor.bad = True
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_bytes(
    cursor: cython.pointer(Cursor), size: cython.pointer(cython.longlong)
) -> cython.p_uchar:
    """Where a sized run of bytes begins; its size, or -1 for null, goes into `size`."""
    start = cython.declare(cython.p_uchar)
    size[0] = read_varint(cursor, 32)
    start = cursor.at
    if size[0] < -1 or size[0] > cursor.end - start:
        cursor.bad = True
        size[0] = 0
    elif size[0] > 0:
        cursor.at += size[0]
    return start


@cython.cfunc
def start_reading(
    reader: cython.pointer(Reader), batch, data: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.int:
    """Set a reader to the first record of a batch."""
    batch.check_count(size)
    reader.cursor.at = data
    reader.cursor.end = data + size
    reader.cursor.bad = False
    reader.count_left = batch.record_count
    reader.base_offset = batch.base_offset
    reader.previous_delta = -1
    reader.last_delta = batch.last_offset_delta
    reader.is_append_time = batch.is_log_append_time
    reader.base_timestamp = batch.max_timestamp if reader.is_append_time else batch.base_timestamp
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_at_end(reader: cython.pointer(Reader)) -> cython.bint:
    """Whether all records have been read, and no bytes are left."""
    cursor = cython.declare(cython.pointer(Cursor), cython.address(reader.cursor))
    return reader.count_left == 0 and not cursor.bad and cursor.at == cursor.end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_next(reader: cython.pointer(Reader), fields: cython.pointer(Fields)) -> cython.bint:
    """Read a record; false behind the last one, and where the bytes are not those of a record."""
    cursor = cython.declare(cython.pointer(Cursor), cython.address(reader.cursor))
    offset_delta = cython.declare(cython.longlong, 0)
    timestamp_delta = cython.declare(cython.longlong, 0)
    inner = cython.declare(Cursor)
    length = cython.declare(cython.longlong)
    if reader.count_left == 0:
        return False
    length = read_varint(cursor, 32)
    if cursor.bad or length < 1 or length > cursor.end - cursor.at:
        cursor.bad = True
        return False
    inner.at = cursor.at + 1
    inner.end = cursor.at + length
    inner.bad = False
    timestamp_delta = read_varint(cython.address(inner), 64)
    offset_delta = read_varint(cython.address(inner), 32)
    fields.key = read_bytes(cython.address(inner), cython.address(fields.key_size))
    fields.value = read_bytes(cython.address(inner), cython.address(fields.value_size))
    fields.header_count = read_varint(cython.address(inner), 32)
    fields.headers = inner.at
    if fields.header_count != 0:
        skip_headers(cython.address(inner), fields.header_count)
    if reader.is_append_time:
        timestamp_delta = 0
    cursor.at = inner.end
    cursor.bad = (
        inner.bad
        or inner.at != inner.end
        or not reader.previous_delta < offset_delta <= reader.last_delta
        or not fits(reader.base_timestamp, timestamp_delta)
    )
    if cursor.bad:
        return False
    reader.count_left -= 1
    reader.previous_delta = offset_delta
    fields.offset = reader.base_offset + offset_delta
    fields.timestamp = reader.base_timestamp + timestamp_delta
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def skip_headers(cursor: cython.pointer(Cursor), count: cython.longlong) -> cython.void:
    """Skip so many headers, whose keys must not be null."""
    size = cython.declare(cython.longlong, 0)
    if count < 0:
        cursor.bad = True
    while count > 0 and not cursor.bad:
        read_bytes(cursor, cython.address(size))
        if size < 0:
            cursor.bad = True
        read_bytes(cursor, cython.address(size))
        count -= 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def fits(start: cython.longlong, delta: cython.longlong) -> cython.bint:
    """Whether the sum stays within 64 bits."""
    if delta >= 0:
        return start <= INT64_MAX - delta
    return start >= -INT64_MAX - 1 - delta


@cython.cfunc
@cython.inline
def make_bytes(start: cython.p_uchar, size: cython.longlong):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, start), size)


@cython.cfunc
def make_headers(start: cython.p_uchar, count: cython.longlong, end: cython.p_uchar):
    """The headers of a record that `read_next` has checked."""
    cursor = cython.declare(Cursor)
    size: cython.longlong = 0
    at = cython.declare(cython.p_uchar)
    headers: list = []
    cursor.at = start
    cursor.end = end
    cursor.bad = False
    while count > 0:
        at = read_bytes(cython.address(cursor), cython.address(size))
        key = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, b"replace")
        at = read_bytes(cython.address(cursor), cython.address(size))
        headers.append((key, make_bytes(at, size)))
        count -= 1
    return tuple(headers)


@cython.cfunc
@cython.inline
def make_record(fields: cython.pointer(Fields), timestamp, end: cython.p_uchar):
    """A Record as its class would make it, without a call of its constructor."""
    record = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), Record), 5)
    set_item(record, 0, fields.offset)
    set_item(record, 1, timestamp)
    set_item(record, 2, make_bytes(fields.key, fields.key_size))
    set_item(record, 3, make_bytes(fields.value, fields.value_size))
    if fields.header_count == 0:
        set_item(record, 4, ())
    else:
        set_item(record, 4, make_headers(fields.headers, fields.header_count, end))
    # Numbers, bytes and text cannot form a cycle: spare the garbage collector the visits.
    PyObject_GC_UnTrack(cython.cast(cython.p_void, record))
    return record


@cython.cfunc
@cython.inline
def make_consumer_record(
    place: tuple, fields: cython.pointer(Fields), timestamp, end: cython.p_uchar
):
    """The same of a ConsumerRecord; `place` has the fields that a batch's records share."""
    topic, partition, timestamp_type, leader_epoch = place
    record = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), ConsumerRecord), 9)
    set_item(record, 0, topic)
    set_item(record, 1, partition)
    set_item(record, 2, fields.offset)
    set_item(record, 3, timestamp)
    set_item(record, 4, timestamp_type)
    set_item(record, 5, make_bytes(fields.key, fields.key_size))
    set_item(record, 6, make_bytes(fields.value, fields.value_size))
    if fields.header_count == 0:
        set_item(record, 7, ())
    else:
        set_item(record, 7, make_headers(fields.headers, fields.header_count, end))
    set_item(record, 8, leader_epoch)
    PyObject_GC_UnTrack(cython.cast(cython.p_void, record))
    return record


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def set_item(record, index: cython.Py_ssize_t, item) -> cython.void:
    Py_INCREF(item)  # the record takes over a reference of its own
    PyTuple_SET_ITEM(record, index, item)


def plain(loops: str):
    """A module of plain loops, which most processes never need: it is imported late."""
    return import_module("ottla.record.plain_" + loops)


def decode_records(batch, payload) -> list:
    """See `plain_decoding.decode_records`."""
    records = decode_list(batch, payload, None)
    return plain("decoding").decode_records(batch, payload) if records is None else records


def decode_consumer_records(batch, payload, topic: str, partition: int) -> list:
    """See `plain_decoding.decode_consumer_records`."""
    timestamp_type = TimestampType(batch.is_log_append_time)
    place = topic, partition, timestamp_type, batch.partition_leader_epoch
    records = decode_list(batch, payload, place)
    if records is None:
        return plain("decoding").decode_consumer_records(batch, payload, topic, partition)
    return records


@cython.cfunc
def decode_list(batch, payload, place: tuple | None):
    """All records of a batch, or None if anything about them is not as it should be.

    They are ConsumerRecords where a `place` is given.
    """
    buffer = cython.declare(BufferView)
    reader = cython.declare(Reader)
    fields = cython.declare(Fields)
    last_timestamp = cython.declare(cython.longlong, 0)
    timestamp: object = None
    items: list = []
    PyObject_GetBuffer(payload, cython.address(buffer), PyBUF_SIMPLE)
    try:
        start_reading(
            cython.address(reader), batch, cython.cast(cython.p_uchar, buffer.buf), buffer.len
        )
        while read_next(cython.address(reader), cython.address(fields)):
            # Neighbours mostly have the same timestamp: share the number.
            if timestamp is None or fields.timestamp != last_timestamp:
                last_timestamp = fields.timestamp
                timestamp = last_timestamp
            if place is None:
                record = make_record(cython.address(fields), timestamp, reader.cursor.at)
            else:
                record = make_consumer_record(
                    place, cython.address(fields), timestamp, reader.cursor.at
                )
            items.append(record)
    finally:
        PyBuffer_Release(cython.address(buffer))
    return items if is_at_end(cython.address(reader)) else None


def survey_records(batch, payload, start: cython.Py_ssize_t = 0):
    """See `plain_survey.survey_records`."""
    buffer = cython.declare(BufferView)
    reader = cython.declare(Reader)
    survey = cython.declare(Survey)
    data = cython.declare(cython.p_uchar)
    position = cython.declare(cython.Py_ssize_t)
    PyObject_GetBuffer(payload, cython.address(buffer), PyBUF_SIMPLE)
    try:
        if not 0 <= start <= buffer.len:
            raise ValueError(f"records from byte {start} on, of {buffer.len}")
        data = cython.cast(cython.p_uchar, buffer.buf) + start
        start_survey(cython.address(reader), batch, data, buffer.len - start)
        survey.index = survey.index_of_max = survey.null_key_count = 0
        survey.min_timestamp = INT64_MAX
        survey.max_timestamp = -INT64_MAX - 1
        # Other threads need the interpreter only where this takes long.
        if buffer.len >= MIN_BYTES_WITHOUT_GIL:
            with cython.nogil:
                run_survey(cython.address(reader), cython.address(survey))
        else:
            run_survey(cython.address(reader), cython.address(survey))
        position = reader.cursor.at - data
    finally:
        PyBuffer_Release(cython.address(buffer))
    if not is_at_end(cython.address(reader)):
        plain("survey").refuse_record(
            batch, payload, start, position, survey.index, reader.previous_delta
        )
    return make_survey(cython.address(reader), cython.address(survey))


@cython.cfunc
@cython.inline
def make_survey(reader: cython.pointer(Reader), survey: cython.pointer(Survey)):
    """A RecordSurvey as its class would make it, without a call of its constructor."""
    if survey.index == 0:
        return EMPTY_SURVEY
    made = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), RecordSurvey), 4)
    set_item(made, 0, survey.min_timestamp)
    set_item(made, 1, survey.max_timestamp)
    set_item(made, 2, reader.base_offset + survey.index_of_max)
    set_item(made, 3, survey.null_key_count)
    PyObject_GC_UnTrack(cython.cast(cython.p_void, made))
    return made


@cython.cfunc
def start_survey(
    reader: cython.pointer(Reader), batch, data: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.int:
    """The same as `start_reading`, without a call of Python where the header can be true."""
    reader.count_left = batch.record_count
    reader.base_offset = batch.base_offset
    reader.last_delta = batch.last_offset_delta
    reader.is_append_time = (cython.cast(cython.int, batch.attributes) & LOG_APPEND_TIME_FLAG) != 0
    reader.base_timestamp = batch.max_timestamp if reader.is_append_time else batch.base_timestamp
    if (
        reader.count_left < 0
        or reader.count_left * MIN_RECORD_BYTES > size
        or not fits(reader.base_offset, reader.last_delta)
    ):
        batch.check_count(size)
    reader.cursor.at = data
    reader.cursor.end = data + size
    reader.cursor.bad = False
    reader.previous_delta = -1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def run_survey(reader: cython.pointer(Reader), survey: cython.pointer(Survey)) -> cython.void:
    """Skip all records; where one is malformed the cursor ends at its first byte, and is bad."""
    fields = cython.declare(Fields)
    at = cython.declare(cython.p_uchar)
    while reader.count_left > 0:
        if not reader.is_append_time and is_near(reader.base_timestamp):
            skip_short_records(reader, survey)
            if reader.count_left == 0:
                return
        at = reader.cursor.at
        if has_attributes(reader) or not read_next(reader, cython.address(fields)):
            reader.cursor.at = at
            reader.cursor.bad = True
            return
        note_timestamp(survey, fields.timestamp, reader.previous_delta)
        survey.null_key_count += fields.key_size < 0
        survey.index += 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def has_attributes(reader: cython.pointer(Reader)) -> cython.bint:
    """Whether the record that comes next has attributes; none are defined."""
    cursor = cython.declare(Cursor)
    cursor.at = reader.cursor.at
    cursor.end = reader.cursor.end
    cursor.bad = False
    read_varint(cython.address(cursor), 32)
    return not cursor.bad and cursor.at < cursor.end and cursor.at[0] != 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def note_timestamp(
    survey: cython.pointer(Survey), timestamp: cython.longlong, offset_delta: cython.longlong
) -> cython.void:
    survey.min_timestamp = min(survey.min_timestamp, timestamp)
    if survey.index == 0 or timestamp > survey.max_timestamp:
        survey.max_timestamp = timestamp
        survey.index_of_max = offset_delta


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def short_varint(at: cython.pointer(cython.p_uchar)) -> cython.longlong:
    """A raw varint of at most three bytes; a longer one reads as OVERLONG."""
    byte: cython.longlong = at[0][0]
    raw: cython.longlong = byte
    at[0] += 1
    if byte < 0x80:
        return raw
    byte = at[0][0]
    at[0] += 1
    raw = (raw & 0x7F) | byte << 7
    if byte < 0x80:
        return raw
    byte = at[0][0]
    at[0] += 1
    raw = (raw & 0x3FFF) | byte << 14
    return raw if byte < 0x80 else OVERLONG


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def skip_short_records(
    reader: cython.pointer(Reader), survey: cython.pointer(Survey)
) -> cython.void:
    """Skip records of the usual kind, up to one that `read_next` has to look at.

    These have varints of at most three bytes, the offset behind the one before, and no headers.
    Nothing is read beyond the end: a record is left to `read_next` unless MARGIN bytes are there,
    more than the fields before its key or behind it can take.
    """
    start = cython.declare(cython.p_uchar, reader.cursor.at)
    end = cython.declare(cython.p_uchar, reader.cursor.end)
    at = cython.declare(cython.p_uchar)
    stop = cython.declare(cython.p_uchar)
    length = cython.declare(cython.longlong)
    time = cython.declare(cython.longlong)
    key = cython.declare(cython.longlong)
    value = cython.declare(cython.longlong)
    delta: cython.longlong = reader.previous_delta + 1
    while reader.count_left > 0 and delta <= reader.last_delta and end - start >= MARGIN:
        at = start
        length = short_varint(cython.address(at))
        if length & 1 or length >> 1 > end - at:
            break
        stop = at + (length >> 1)
        if at[0] != 0:
            break
        at += 1
        time = short_varint(cython.address(at))
        if short_varint(cython.address(at)) != delta << 1 or time == OVERLONG:
            break
        key = short_varint(cython.address(at))
        if key != 1:
            if key & 1 or key >> 1 > end - at:
                break
            at += key >> 1
        if end - at < MAX_SHORT_BYTES:
            break
        value = short_varint(cython.address(at))
        if value != 1:
            if value & 1 or value >> 1 > end - at:
                break
            at += value >> 1
        if at >= stop or at[0] != 0 or at + 1 != stop:
            break
        note_timestamp(survey, reader.base_timestamp + ((time >> 1) ^ -(time & 1)), delta)
        survey.null_key_count += key == 1
        survey.index += 1
        reader.count_left -= 1
        delta += 1
        start = stop
    reader.cursor.at = start
    reader.previous_delta = delta - 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_varint(at: cython.p_uchar, value: cython.longlong) -> cython.p_uchar:
    """Write a varint or varlong and return the place behind it; there must be 10 bytes of room."""
    raw: cython.ulonglong = (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(
        cython.ulonglong, value >> 63
    )
    while raw >= 0x80:
        at[0] = (raw & 0x7F) | 0x80
        at += 1
        raw >>= 7
    at[0] = raw
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    """How many bytes `write_varint` writes."""
    raw: cython.ulonglong = (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(
        cython.ulonglong, value >> 63
    )
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_of(data: bytes | None) -> cython.Py_ssize_t:
    return -1 if data is None else PyBytes_GET_SIZE(data)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def sized(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How many bytes `write_bytes` writes of so many, or of None for -1."""
    return varint_size(size) + (size if size > 0 else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_bytes(at: cython.p_uchar, data: bytes | None, size: cython.Py_ssize_t) -> cython.p_uchar:
    """Write the size and the bytes, or just -1 for None; returns the place behind them."""
    at = write_varint(at, size)
    if size > 0:
        memcpy(at, PyBytes_AS_STRING(data), size)
        at += size
    return at


def encode_records(records) -> tuple:
    """See `plain_encoding.encode_records`."""
    encoded: tuple = None
    if records:
        try:
            encoded = encode_list(list(records))
        except OverflowError:
            pass  # a timestamp beyond 64 bits, which the plain loop refuses by name
    return plain("encoding").encode_records(records) if encoded is None else encoded


@cython.cfunc
def encode_list(records: list) -> tuple:
    """The records section and its timestamps, or None where the plain loop must look closer."""
    out: bytearray = bytearray(64 * len(records) + 64)
    used: cython.Py_ssize_t = 0
    index = cython.declare(cython.Py_ssize_t)
    timestamp = cython.declare(cython.longlong)
    base_timestamp: cython.longlong = records[0][0]
    max_timestamp: cython.longlong = base_timestamp
    for index in range(len(records)):
        timestamp_object, key, value, headers = records[index]
        timestamp = timestamp_object
        if (
            not (key is None or isinstance(key, bytes))
            or not (value is None or isinstance(value, bytes))
            or not is_near(timestamp)
            or not is_near(base_timestamp)
        ):
            return None
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        used = put_record(
            out,
            used,
            timestamp - base_timestamp,
            index,
            key,
            value,
            encode_headers(headers) if headers else NO_HEADERS,
        )
    PyByteArray_Resize(out, used)
    return out, base_timestamp, max_timestamp


def encode_values(values):
    """See `plain_encoding.encode_values`."""
    items: list = list(values)
    out: bytearray = bytearray(64 * len(items) + 64)
    used: cython.Py_ssize_t = 0
    index = cython.declare(cython.Py_ssize_t)
    for index in range(len(items)):
        value = items[index]
        if not isinstance(value, bytes):
            return plain("encoding").encode_values(values)
        used = put_record(out, used, 0, index, None, value, NO_HEADERS)
    PyByteArray_Resize(out, used)
    return out


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_near(timestamp: cython.longlong) -> cython.bint:
    """Whether the difference of two such timestamps stays within 64 bits."""
    return -FAR <= timestamp <= FAR


@cython.cfunc
@cython.inline
def put_record(
    out: bytearray,
    used: cython.Py_ssize_t,
    timestamp_delta: cython.longlong,
    offset_delta: cython.longlong,
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
) -> cython.Py_ssize_t:
    """Write one record behind the `used` bytes of `out`; returns the new number of used bytes."""
    key_size: cython.Py_ssize_t = size_of(key)
    value_size: cython.Py_ssize_t = size_of(value)
    headers_size: cython.Py_ssize_t = size_of(headers)
    body_size: cython.Py_ssize_t = (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + sized(key_size)
        + sized(value_size)
        + headers_size
    )
    need: cython.Py_ssize_t = varint_size(body_size) + body_size
    at = cython.declare(cython.p_uchar)
    if len(out) - used < need:
        PyByteArray_Resize(out, max(2 * len(out), used + need))
    at = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out)) + used
    at = write_varint(at, body_size)
    at[0] = 0
    at = write_varint(at + 1, timestamp_delta)
    at = write_varint(at, offset_delta)
    at = write_bytes(at, key, key_size)
    at = write_bytes(at, value, value_size)
    memcpy(at, PyBytes_AS_STRING(headers), headers_size)
    return used + need


@cython.cfunc
def encode_headers(headers) -> bytes:
    """The headers of a record behind their count."""
    items: list = []
    size = cython.declare(cython.Py_ssize_t)
    at = cython.declare(cython.p_uchar)
    for key, value in headers:
        if not (isinstance(key, str) and (value is None or isinstance(value, bytes))):
            return plain("encoding").encode_headers(headers)
        items.append(cython.cast(str, key).encode("utf-8"))
        items.append(value)
    size = varint_size(len(items) // 2)
    for item in items:
        size += sized(size_of(item))
    result: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(result))
    at = write_varint(at, len(items) // 2)
    for item in items:
        at = write_bytes(at, item, size_of(item))
    return result
