"""Columns of Arrow as the rows that `kernel.RowEncoder` makes records of; nothing is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.record.rows import BY_KEY, BinaryRows, HeaderRows, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer


def rows_of(
    values: pa.Array,
    keys: pa.Array | None = None,
    partitions: pa.Array | None = None,
    headers: pa.Array | None = None,
) -> Rows:
    """Rows of columns of the same length.

    Keys and values are strings or binaries, partitions integers (null: the key decides), headers
    lists of structs of a string and a binary. The result holds on to the columns' memory.
    """
    return Rows(
        len(values),
        _binary(values),
        None if keys is None or keys.null_count == len(keys) else _binary(keys),
        None if partitions is None else _numbers(partitions),
        None if headers is None or headers.null_count == len(headers) else _headers(headers),
    )


def _numbers(array: Any) -> Buffer | None:
    """Plain int32s, or nothing where every row leaves it to its key."""
    import pyarrow as pa

    if array.null_count == len(array):
        return None
    filled = array.cast(pa.int32()).fill_null(BY_KEY)
    data: Buffer = memoryview(filled.buffers()[1])[4 * filled.offset :]
    return data


def _binary(array: Any) -> BinaryRows:
    import pyarrow as pa

    if array.type in (pa.large_string(), pa.large_binary()):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    return BinaryRows(
        validity if array.null_count else None,
        # An array without rows may have no buffers at all.
        bytes(4) if offsets is None or not len(array) else offsets,
        b"" if data is None else data,
        array.offset if len(array) else 0,
    )


def _headers(array: Any) -> HeaderRows:
    import pyarrow as pa

    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    pairs = array.values
    # A struct that is null has a null key for the encoder to refuse.
    keys = pairs.field(0) if not pairs.null_count else pairs.flatten()[0]
    validity = array.buffers()[0] if array.null_count else None
    return HeaderRows(
        validity, array.buffers()[1], array.offset, _binary(keys), _binary(pairs.field(1))
    )
