# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, annotation_typing=True
# mypy: ignore-errors
"""The encoder of rows for the compiler: the same as in `rows`, on buffers of its own.

Cython in pure Python mode like `native_kernel`, whose `write_varint` it uses. No entry of a column
is read before its position was compared with the buffer's size.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.record.native_cursor import BufferView
from cython.cimports.ottla.record.native_kernel import sized, varint_size, write_varint

from ottla.record import murmur, rows

MURMUR_SEED = cython.declare(cython.uint, murmur.MURMUR_SEED)
MURMUR_M = cython.declare(cython.uint, murmur.MURMUR_M)
TO_POSITIVE = cython.declare(cython.uint, murmur.TO_POSITIVE)
RECORD_OVERHEAD = cython.declare(cython.longlong, rows.RECORD_OVERHEAD)
HEADER_OVERHEAD = cython.declare(cython.longlong, rows.HEADER_OVERHEAD)


@cython.final
@cython.cclass
class Held:
    """Holds the memory of a buffer for as long as this object lives."""

    view: BufferView
    is_held: cython.bint
    at: cython.p_uchar
    size: cython.Py_ssize_t

    def __cinit__(self, data):
        PyObject_GetBuffer(data, cython.address(self.view), PyBUF_SIMPLE)
        self.is_held = True
        self.at = cython.cast(cython.p_uchar, self.view.buf)
        self.size = self.view.len

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(cython.address(self.view))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, index: cython.Py_ssize_t) -> cython.longlong:
        """Number `index` of int32s."""
        return cython.cast(cython.p_int, self.at)[index]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def bit(self, index: cython.Py_ssize_t) -> cython.bint:
        return self.at[index >> 3] >> (index & 7) & 1


@cython.cfunc
def hold(data, least: cython.Py_ssize_t) -> Held:
    """The memory of `data`, which must have at least so many bytes."""
    held: Held = Held(data)
    if held.size < least:
        raise ValueError(f"a buffer of {held.size} bytes where {least} are needed")
    return held


@cython.final
@cython.cclass
class Binary:
    """A column of byte strings; `find` sets `size` to -1 for null."""

    validity: Held | None
    offsets: Held
    data: Held
    start: cython.Py_ssize_t
    size: cython.longlong

    def __init__(self, column, count):
        self.start = column.start
        end = self.start + count
        self.validity = None
        if column.validity is not None:
            self.validity = hold(column.validity, (end + 7) >> 3)
        self.offsets = hold(column.offsets, 4 * (end + 1))
        self.data = hold(column.data, 0)

    @cython.cfunc
    @cython.inline
    def find(self, row: cython.Py_ssize_t) -> cython.p_uchar:
        """Where the bytes of a row begin; how many there are is `size`."""
        index: cython.Py_ssize_t = self.start + row
        begin: cython.longlong = self.offsets.number(index)
        end: cython.longlong = self.offsets.number(index + 1)
        if begin < 0 or begin > end or end > self.data.size:
            raise ValueError(f"entry {index} from {begin} to {end} of {self.data.size} bytes")
        if self.validity is not None and not self.validity.bit(index):
            self.size = -1
        else:
            self.size = end - begin
        return self.data.at + begin


@cython.final
@cython.cclass
class OpenBatch:
    """See `rows.OpenBatch`."""

    partition: cython.Py_ssize_t
    count: cython.Py_ssize_t
    size: cython.Py_ssize_t
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong
    out: bytearray

    def __init__(self, partition):
        self.partition = partition
        self.count = 0
        self.size = 0
        self.base_timestamp = 0
        self.max_timestamp = 0
        self.out = bytearray()

    @cython.cfunc
    @cython.inline
    def reserve(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Make room behind the bytes that are there, and return where that begins."""
        if len(self.out) - self.size < size:
            PyByteArray_Resize(self.out, max(2 * len(self.out), self.size + size))
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.out)) + self.size

    @cython.cfunc
    def take(self):
        PyByteArray_Resize(self.out, self.size)
        taken = rows.EncodedRecords(
            self.partition, self.count, self.out, self.base_timestamp, self.max_timestamp
        )
        self.out = bytearray()
        self.count = 0
        self.size = 0
        return taken


@cython.final
@cython.cclass
class Headers:
    """The headers of the rows; `measure` finds those of one row before `write` is used."""

    validity: Held | None
    offsets: Held
    start: cython.Py_ssize_t
    keys: Binary
    values: Binary
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t
    content_size: cython.longlong

    def __init__(self, column, count):
        self.start = column.start
        end = self.start + count
        self.validity = None
        if column.validity is not None:
            self.validity = hold(column.validity, (end + 7) >> 3)
        self.offsets = hold(column.offsets, 4 * (end + 1))
        last = max(0, self.offsets.number(end))
        self.keys = Binary(column.keys, last)
        self.values = Binary(column.values, last)

    @cython.cfunc
    def measure(self, row: cython.Py_ssize_t) -> cython.longlong:
        """How many bytes the headers of a row take up, with their count."""
        index: cython.Py_ssize_t = self.start + row
        each = cython.declare(cython.Py_ssize_t)
        total: cython.longlong = 0
        self.first = self.offsets.number(index)
        self.count = self.offsets.number(index + 1) - self.first
        self.content_size = 0
        if self.first < 0 or self.count < 0:
            raise ValueError(f"{self.count} headers from {self.first}")
        if self.validity is not None and not self.validity.bit(index):
            self.count = 0
        for each in range(self.first, self.first + self.count):
            self.keys.find(each)
            if self.keys.size < 0:
                raise ValueError("a header without a key")
            self.values.find(each)
            total += sized(self.keys.size) + sized(self.values.size)
            self.content_size += self.keys.size + max(0, self.values.size)
        return total + varint_size(self.count)

    @cython.cfunc
    def write(self, at: cython.p_uchar) -> cython.p_uchar:
        each = cython.declare(cython.Py_ssize_t)
        found = cython.declare(cython.p_uchar)
        at = write_varint(at, self.count)
        for each in range(self.first, self.first + self.count):
            found = self.keys.find(each)
            at = write_run(at, found, self.keys.size)
            found = self.values.find(each)
            at = write_run(at, found, self.values.size)
        return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_run(at: cython.p_uchar, data: cython.p_uchar, size: cython.longlong) -> cython.p_uchar:
    """Write a size and so many bytes, or -1 alone; returns the place behind them."""
    at = write_varint(at, size)
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


@cython.cfunc
@cython.exceptval(check=False)
def hash_of(data: cython.p_uchar, size: cython.longlong) -> cython.uint:
    """See `murmur.murmur2`."""
    h: cython.uint = MURMUR_SEED ^ cython.cast(cython.uint, size)
    k: cython.uint = 0
    index: cython.longlong = 0
    while index + 4 <= size:
        k = (
            cython.cast(cython.uint, data[index])
            | cython.cast(cython.uint, data[index + 1]) << 8
            | cython.cast(cython.uint, data[index + 2]) << 16
            | cython.cast(cython.uint, data[index + 3]) << 24
        )
        k *= MURMUR_M
        k ^= k >> 24
        k *= MURMUR_M
        h *= MURMUR_M
        h ^= k
        index += 4
    if index < size:
        k = data[index]
        if index + 1 < size:
            k |= cython.cast(cython.uint, data[index + 1]) << 8
        if index + 2 < size:
            k |= cython.cast(cython.uint, data[index + 2]) << 16
        h ^= k
        h *= MURMUR_M
    h ^= h >> 13
    h *= MURMUR_M
    return h ^ (h >> 15)


@cython.final
@cython.cclass
class RowEncoder:
    """See `rows.RowEncoder`."""

    open_batches: list
    partition_count: cython.Py_ssize_t
    batch_size: cython.longlong
    next_partition: object
    sticky: cython.Py_ssize_t
    sticky_bytes: cython.longlong

    def __init__(self, partition_count, batch_size, next_partition):
        self.open_batches = [OpenBatch(partition) for partition in range(partition_count)]
        self.partition_count = len(self.open_batches)
        self.batch_size = batch_size
        self.next_partition = next_partition
        self.sticky = -1
        self.sticky_bytes = 0

    def append(self, rows, timestamp_ms) -> list:
        """See `rows.RowEncoder.append`."""
        row = cython.declare(cython.Py_ssize_t)
        count = cython.declare(cython.Py_ssize_t, rows.row_count)
        timestamp = cython.declare(cython.longlong, timestamp_ms)
        key = cython.declare(cython.p_uchar, cython.NULL)
        value = cython.declare(cython.p_uchar)
        key_size = cython.declare(cython.longlong, -1)
        size = cython.declare(cython.longlong)
        given = cython.declare(cython.longlong, -1)
        headers_size = cython.declare(cython.longlong, 1)
        batch = cython.declare(OpenBatch)
        full: list = []
        values: Binary = Binary(rows.values, count)
        keys: Binary = None if rows.keys is None else Binary(rows.keys, count)
        headers: Headers = None if rows.headers is None else Headers(rows.headers, count)
        partitions: Held = None if rows.partitions is None else hold(rows.partitions, 4 * count)
        for row in range(count):
            if keys is not None:
                key = keys.find(row)
                key_size = keys.size
            value = values.find(row)
            size = RECORD_OVERHEAD + max(0, key_size) + max(0, values.size)
            if headers is not None:
                headers_size = headers.measure(row)
                size += HEADER_OVERHEAD * headers.count + headers.content_size
            if partitions is not None:
                given = partitions.number(row)
            batch = self.open_batches[self.partition(given, key, key_size, size)]
            if batch.count and batch.size + size > self.batch_size:
                full.append(batch.take())
            if batch.count == 0:
                batch.base_timestamp = timestamp
                batch.max_timestamp = timestamp
            batch.max_timestamp = max(batch.max_timestamp, timestamp)
            put(batch, key, key_size, value, values.size, headers, headers_size, timestamp)
        return full

    def finish(self) -> list:
        """See `rows.RowEncoder.finish`."""
        batch = cython.declare(OpenBatch)
        left: list = []
        for batch in self.open_batches:
            if batch.count:
                left.append(batch.take())
        return left

    @cython.cfunc
    def partition(
        self,
        given: cython.longlong,
        key: cython.p_uchar,
        key_size: cython.longlong,
        size: cython.longlong,
    ) -> cython.Py_ssize_t:
        if given >= self.partition_count:
            raise ValueError(f"partition {given} of {self.partition_count}")
        if given >= 0:
            return given
        if key_size >= 0:
            return (hash_of(key, key_size) & TO_POSITIVE) % self.partition_count
        if self.sticky < 0 or self.sticky_bytes + size > self.batch_size:
            chosen = self.next_partition()
            if not 0 <= chosen < self.partition_count:
                raise ValueError(f"partition {chosen} of {self.partition_count}")
            self.sticky = chosen
            self.sticky_bytes = 0
        self.sticky_bytes += size
        return self.sticky


@cython.cfunc
def put(
    batch: OpenBatch,
    key: cython.p_uchar,
    key_size: cython.longlong,
    value: cython.p_uchar,
    value_size: cython.longlong,
    headers: Headers | None,
    headers_size: cython.longlong,
    timestamp: cython.longlong,
) -> cython.int:
    """Write one record into a batch."""
    delta: cython.longlong = timestamp - batch.base_timestamp
    body_size: cython.longlong = (
        1
        + varint_size(delta)
        + varint_size(batch.count)
        + sized(key_size)
        + sized(value_size)
        + headers_size
    )
    need: cython.longlong = varint_size(body_size) + body_size
    at: cython.p_uchar = batch.reserve(need)
    at = write_varint(at, body_size)
    at[0] = 0
    at = write_varint(at + 1, delta)
    at = write_varint(at, batch.count)
    at = write_run(at, key, key_size)
    at = write_run(at, value, value_size)
    if headers is None:
        at[0] = 0
    else:
        headers.write(at)
    batch.size += need
    batch.count += 1
    return 0
