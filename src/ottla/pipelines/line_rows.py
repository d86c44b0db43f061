"""The lines of a log as rows, in the tasks of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.pipelines.logged_request import NoRequestError, parse_line

if TYPE_CHECKING:
    import pyarrow as pa

LINE_ROWS = (
    "_topic string, _partition int, _offset bigint, time timestamp, client string, method string, "
    "path string, status int, bytes bigint, referrer string, user_agent string, problem string, "
    "value binary"
)
_PLACE = ("topic", "partition", "offset")
_NO_PARTS = (None,) * 8


def rows_of_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of LINE_ROWS for records with a place and a value; `problem` says why one is no line."""
    import pyarrow as pa

    kinds = (
        *(pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")),
        *(pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64()),
        *(pa.string(), pa.string(), pa.string(), pa.binary()),
    )
    names = [column.split()[0] for column in LINE_ROWS.split(", ")]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    for batch in batches:
        places = zip(*(batch[name].to_pylist() for name in _PLACE), strict=True)
        values = batch["value"].to_pylist()
        rows = [(*place, *_parts(value)) for place, value in zip(places, values, strict=True)]
        columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
        arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parts(value: bytes | None) -> tuple[object, ...]:
    try:
        found = parse_line(value)
    except NoRequestError as error:
        return (*_NO_PARTS, str(error), value)
    return (
        found.time,
        found.client,
        found.method,
        found.path,
        found.status,
        found.size,
        found.referrer,
        found.user_agent,
        None,
        value,
    )
