# What the other compiled modules use of native_kernel.py.

from ottla.record.native_cursor cimport Cursor, Fields, Reader

cdef unsigned char *read_bytes(Cursor *cursor, long long *size) noexcept nogil
cdef int start_reading(Reader *reader, object batch, unsigned char *data, Py_ssize_t size) except? -1
cdef bint read_next(Reader *reader, Fields *fields) noexcept nogil
cdef bint is_at_end(Reader *reader) noexcept nogil
cdef unsigned char *write_varint(unsigned char *at, long long value) noexcept
cdef Py_ssize_t varint_size(long long value) noexcept
cdef Py_ssize_t sized(Py_ssize_t size) noexcept
