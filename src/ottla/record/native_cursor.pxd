# What the compiled modules share: their structs, and what they need of CPython and is not declared
# by Cython.

from cpython.object cimport PyTypeObject

ctypedef Py_buffer BufferView

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t count)
    void PyObject_GC_UnTrack(void *object)

# Bytes that are being read: where the next one is, and where they end. Once `bad`, always bad.
cdef struct Cursor:
    unsigned char *at
    unsigned char *end
    bint bad

# The records of a batch, and what its header says about them.
cdef struct Reader:
    Cursor cursor
    long long count_left
    long long base_offset
    long long previous_delta
    long long last_delta
    long long base_timestamp
    bint is_append_time

# A record in its bytes. A size of -1 is null; `headers` is the first header, behind their count.
cdef struct Fields:
    long long offset
    long long timestamp
    unsigned char *key
    long long key_size
    unsigned char *value
    long long value_size
    unsigned char *headers
    long long header_count

# What a survey of the records read so far has come to.
cdef struct Survey:
    long long index
    long long min_timestamp
    long long max_timestamp
    long long index_of_max
    long long null_key_count

# The table of plain_compaction: entries of three words (two of the digest, one of the offset).
cdef struct Table:
    unsigned long long *entries
    unsigned long long slots
    unsigned long long secret[2]
