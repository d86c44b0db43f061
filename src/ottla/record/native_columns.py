# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=True
# mypy: ignore-errors
"""The builder of columns for the compiler: the same as in `columns`, on buffers of its own.

Cython in pure Python mode like `native_kernel`, whose cursor reads the records. The buffers are
made large enough for a whole batch, or for the next header, before anything is written to them.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.record.native_cursor import BufferView, Cursor, Fields, Reader
from cython.cimports.ottla.record.native_kernel import (
    is_at_end,
    read_bytes,
    read_next,
    start_reading,
)

from ottla.record import columns, plain_decoding

MAX_TIMESTAMP_MS = cython.declare(cython.longlong, columns.MAX_TIMESTAMP_MS)


@cython.cfunc
def new_buffer(size: cython.Py_ssize_t) -> bytearray:
    """A buffer whose bytes are not set yet: its pages that are never used cost nothing."""
    return PyByteArray_FromStringAndSize(cython.NULL, size)


@cython.cfunc
@cython.inline
def grow(buffer: bytearray, size: cython.Py_ssize_t):
    """Grow a buffer to at least `size` bytes; its bytes may move to another address."""
    if len(buffer) < size:
        PyByteArray_Resize(buffer, max(size, 2 * len(buffer)))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def start_of(buffer: bytearray) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def set_bit(buffer: bytearray, index: cython.Py_ssize_t, bit: cython.bint) -> cython.void:
    """Set bit number `index`; the bits are written in order, and a byte begins with zeros."""
    at: cython.p_uchar = start_of(buffer) + (index >> 3)
    if index & 7 == 0:
        at[0] = 0
    at[0] |= cython.cast(cython.uchar, bit) << (index & 7)


@cython.cfunc
def take_validity(buffer: bytearray, count: cython.Py_ssize_t, null_count: cython.Py_ssize_t):
    if null_count == 0:
        return None
    PyByteArray_Resize(buffer, (count + 7) >> 3)
    return buffer


@cython.final
@cython.cclass
class BinaryBuilder:
    """A column of byte strings. `put` writes only where `reserve` has made room."""

    count: cython.Py_ssize_t
    null_count: cython.Py_ssize_t
    size = cython.declare(cython.Py_ssize_t)
    validity: bytearray
    offsets: bytearray
    data: bytearray

    def __init__(self):
        self.clear(0, 0)

    @cython.cfunc
    def clear(self, count: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Empty the column, and make room for as much as it held the last time."""
        self.count = 0
        self.null_count = 0
        self.size = 0
        self.validity = new_buffer((count >> 3) + 1)
        self.offsets = new_buffer(4 * count + 4)
        self.data = new_buffer(size)
        cython.cast(cython.p_int, start_of(self.offsets))[0] = 0

    @cython.cfunc
    def reserve(self, count: cython.Py_ssize_t, size: cython.Py_ssize_t):
        grow(self.validity, ((self.count + count) >> 3) + 1)
        grow(self.offsets, 4 * (self.count + count + 1))
        grow(self.data, self.size + size)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put(self, at: cython.p_uchar, size: cython.longlong) -> cython.void:
        set_bit(self.validity, self.count, size >= 0)
        if size > 0:
            memcpy(start_of(self.data) + self.size, at, size)
            self.size += size
        elif size < 0:
            self.null_count += 1
        self.count += 1
        cython.cast(cython.p_int, start_of(self.offsets))[self.count] = self.size

    @cython.cfunc
    def finish(self):
        PyByteArray_Resize(self.offsets, 4 * (self.count + 1))
        PyByteArray_Resize(self.data, self.size)
        column = columns.BinaryColumn(
            self.null_count,
            take_validity(self.validity, self.count, self.null_count),
            self.offsets,
            self.data,
        )
        self.clear(self.count, self.size)
        return column


@cython.final
@cython.cclass
class HeaderBuilder:
    """The column of headers: a list for each record, and the keys and values of all of them."""

    count: cython.Py_ssize_t
    null_count: cython.Py_ssize_t
    validity: bytearray
    offsets: bytearray
    keys: BinaryBuilder
    values: BinaryBuilder

    def __init__(self):
        self.keys = BinaryBuilder()
        self.values = BinaryBuilder()
        self.clear(0)

    @cython.cfunc
    def clear(self, count: cython.Py_ssize_t):
        self.count = 0
        self.null_count = 0
        self.validity = new_buffer((count >> 3) + 1)
        self.offsets = new_buffer(4 * count + 4)
        cython.cast(cython.p_int, start_of(self.offsets))[0] = 0

    @cython.cfunc
    def reserve(self, count: cython.Py_ssize_t):
        grow(self.validity, ((self.count + count) >> 3) + 1)
        grow(self.offsets, 4 * (self.count + count + 1))

    @cython.cfunc
    def put(self, fields: cython.pointer(Fields), end: cython.p_uchar):
        """Add the headers of a record that `read_next` has checked and that ends at `end`."""
        cursor = cython.declare(Cursor)
        at = cython.declare(cython.p_uchar)
        size: cython.longlong = 0
        left: cython.longlong = fields.header_count
        cursor.at = fields.headers
        cursor.end = end
        cursor.bad = False
        while left > 0:
            at = read_bytes(cython.address(cursor), cython.address(size))
            self.put_key(at, size)
            at = read_bytes(cython.address(cursor), cython.address(size))
            self.values.reserve(1, size)
            self.values.put(at, size)
            left -= 1
        set_bit(self.validity, self.count, fields.header_count > 0)
        if fields.header_count == 0:
            self.null_count += 1
        self.count += 1
        cython.cast(cython.p_int, start_of(self.offsets))[self.count] = self.keys.count

    @cython.cfunc
    def put_key(self, at: cython.p_uchar, size: cython.longlong):
        """Add a key; invalid UTF-8 is replaced, as in `decode_records`: Arrow requires UTF-8."""
        index: cython.longlong = 0
        while index < size and at[index] < 0x80:
            index += 1
        if index < size:
            text = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, b"replace")
            encoded: bytes = text.encode("utf-8")
            at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(encoded))
            size = len(encoded)
        self.keys.reserve(1, size)
        self.keys.put(at, size)

    @cython.cfunc
    def finish(self):
        PyByteArray_Resize(self.offsets, 4 * (self.count + 1))
        header_count = self.keys.count
        column = columns.HeaderColumn(
            self.null_count,
            take_validity(self.validity, self.count, self.null_count),
            self.offsets,
            header_count,
            self.keys.finish(),
            self.values.finish(),
        )
        self.clear(self.count)
        return column


@cython.final
@cython.cclass
class ColumnBuilder:
    """See `columns.ColumnBuilder`."""

    row_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size_in_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    offsets: bytearray
    timestamps: bytearray
    timestamp_types: bytearray
    keys: BinaryBuilder
    values: BinaryBuilder
    headers: HeaderBuilder | None

    def __init__(self, with_headers=True):
        self.keys = BinaryBuilder()
        self.values = BinaryBuilder()
        self.headers = HeaderBuilder() if with_headers else None
        self.clear(0)

    @cython.cfunc
    def clear(self, count: cython.Py_ssize_t):
        self.row_count = 0
        self.size_in_bytes = 0
        self.offsets = new_buffer(8 * count)
        self.timestamps = new_buffer(8 * count)
        self.timestamp_types = new_buffer(4 * count)

    def append(self, batch, payload, start_offset, end_offset):
        """See `columns.ColumnBuilder.append`; after an error the builder is useless."""
        buffer = cython.declare(BufferView)
        reader = cython.declare(Reader)
        fields = cython.declare(Fields)
        start = cython.declare(cython.longlong, start_offset)
        end = cython.declare(cython.longlong, end_offset)
        PyObject_GetBuffer(payload, cython.address(buffer), PyBUF_SIMPLE)
        try:
            start_reading(
                cython.address(reader), batch, cython.cast(cython.p_uchar, buffer.buf), buffer.len
            )
            self.reserve(reader.count_left, buffer.len)
            while read_next(cython.address(reader), cython.address(fields)):
                if start <= fields.offset < end:
                    self.put_row(cython.address(fields), reader.is_append_time)
                    if self.headers is not None:
                        self.headers.put(cython.address(fields), reader.cursor.at)
            self.size_in_bytes += buffer.len
        finally:
            PyBuffer_Release(cython.address(buffer))
        if not is_at_end(cython.address(reader)):
            plain_decoding.decode_records(batch, payload)
            raise AssertionError(f"only the compiled kernel refuses {batch!r}")

    @cython.cfunc
    def reserve(self, count: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Make room for so many records, which take so many bytes altogether."""
        grow(self.offsets, 8 * (self.row_count + count))
        grow(self.timestamps, 8 * (self.row_count + count))
        grow(self.timestamp_types, 4 * (self.row_count + count))
        self.keys.reserve(count, size)
        self.values.reserve(count, size)
        if self.headers is not None:
            self.headers.reserve(count)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_row(self, fields: cython.pointer(Fields), is_append_time: cython.bint) -> cython.void:
        row = cython.declare(cython.Py_ssize_t, self.row_count)
        timestamp_ms = cython.declare(
            cython.longlong, max(-MAX_TIMESTAMP_MS, min(MAX_TIMESTAMP_MS, fields.timestamp))
        )
        cython.cast(cython.p_longlong, start_of(self.offsets))[row] = fields.offset
        cython.cast(cython.p_longlong, start_of(self.timestamps))[row] = timestamp_ms * 1000
        cython.cast(cython.p_int, start_of(self.timestamp_types))[row] = is_append_time
        self.keys.put(fields.key, fields.key_size)
        self.values.put(fields.value, fields.value_size)
        self.row_count = row + 1

    def finish(self):
        """See `columns.ColumnBuilder.finish`."""
        PyByteArray_Resize(self.offsets, 8 * self.row_count)
        PyByteArray_Resize(self.timestamps, 8 * self.row_count)
        PyByteArray_Resize(self.timestamp_types, 4 * self.row_count)
        built = columns.Columns(
            self.row_count,
            self.offsets,
            self.timestamps,
            self.timestamp_types,
            self.keys.finish(),
            self.values.finish(),
            None if self.headers is None else self.headers.finish(),
        )
        self.clear(self.row_count)
        return built
