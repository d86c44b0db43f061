"""Rows as CSV (RFC 4180), JSON lines, and Parquet where pyarrow is installed.

A spreadsheet takes a cell for a formula that begins with one of a few signs, and such a formula can
start programs: in CSV these cells get an apostrophe, unless they are numbers or base64. So do parts
of cells behind a semicolon, at which some spreadsheets part lines, also within quotes. JSON lines
have every text as it is. A note, such as where an export has stopped, is the last line.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from ottla.console.page import plain
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

CSV, JSON_LINES, PARQUET = "csv", "jsonl", "parquet"
MEDIA_TYPES: Final = {
    CSV: "text/csv; charset=utf-8",
    JSON_LINES: "application/x-ndjson",
    PARQUET: "application/vnd.apache.parquet",
}
NAMES: Final = {CSV: "CSV", JSON_LINES: "JSON lines", PARQUET: "Parquet"}
FORMULA: Final = re.compile(r"[\s\x00-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""The beginning of a cell that a spreadsheet may run; it knows signs of full width as well."""
AFTER_SEMICOLON: Final = re.compile(r"(;[\s\x00-\x1f\ufeff\"]*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a part of a cell begins like a formula; quotes, doubled in CSV, may be passed over."""
QUOTED: Final = re.compile('[",;\t\r\n]')
"""Characters of cells that are quoted: those that part cells for one reader or another."""
SIGNED: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Types of DuckDB whose values an integer of 64 bits has."""
BASE64: Final = "base64"
"""The encoding of a cell that no spreadsheet can run, as it has no brackets to call with."""
PLAIN_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters of JSON texts that some readers take for the end of a line."""
PIECE_BYTES: Final = 256 * 1024


def formats() -> tuple[str, ...]:
    """The formats that are there."""
    return (CSV, JSON_LINES, PARQUET) if find_spec("pyarrow") else (CSV, JSON_LINES)


class CsvRows:
    """Windows of rows as CSV; the first row says which columns there are, if they are not known."""

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self._columns = list(columns)
        self._head = head_of(columns) if columns else ""

    def text_of(self, rows: Iterable[Any], columns: Iterable[str] = ()) -> str:
        """The lines of a window, before the first one with the names of the columns."""
        lines = []
        if columns and not self._columns:
            self._columns = [*columns]
            self._head = head_of(self._columns)
        for row in map(fields_of, rows):
            if not self._columns:
                self._columns = list(row)
                self._head = head_of(self._columns)
            lines.append(csv_line([cell_of(row, name) for name in self._columns]))
        return self._taken("".join(lines))

    def note(self, text: str) -> str:
        """The line of a note."""
        return self._taken(csv_line([csv_cell(f"# {text}")]))

    def _taken(self, lines: str) -> str:
        head, self._head = self._head, ""
        return head + lines


class JsonRows:
    """Windows of rows as JSON lines."""

    def text_of(self, rows: Iterable[Any], _columns: Iterable[str] = ()) -> str:
        """The lines of a window."""
        return "".join(map(json_line, map(fields_of, rows)))

    def note(self, text: str) -> str:
        """The line of a note."""
        return json_line({"note": text})


def json_line(row: Mapping[str, Any]) -> str:
    """A row as one line, with all that its texts have in them."""
    return json.dumps(row, ensure_ascii=False).translate(LINE_ENDS) + "\n"


def fields_of(row: Any) -> Mapping[str, Any]:
    """A row as plain values by the names of its columns."""
    found: Mapping[str, Any] = plain(row)
    return found


def head_of(columns: Iterable[str]) -> str:
    """The line with the names of columns, which may be those of somebody's statement or record."""
    return csv_line([*map(csv_cell, columns)])


def csv_line(cells: Sequence[str]) -> str:
    """A line of CSV; one with a single empty cell is not an empty line."""
    if list(cells) == [""]:
        return '""\r\n'
    return ",".join(map(quoted, cells)) + "\r\n"


def quoted(cell: str) -> str:
    """The cell, within quotes where a reader might part it."""
    return '"' + cell.replace('"', '""') + '"' if QUOTED.search(cell) else cell


def cell_of(row: Mapping[str, Any], name: str) -> str:
    """A column of a row as a cell; base64 as it is."""
    value = row.get(name)
    return str(value) if row.get(f"{name}_encoding") == BASE64 else csv_cell(value)


def csv_cell(value: Any) -> str:
    """A value as a cell, which is no formula; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text.replace(";", "\\u003b") if AFTER_SEMICOLON.search(text) else text
    is_formula = FORMULA.match(value) and not PLAIN_NUMBER.fullmatch(value)
    return "'" * bool(is_formula) + AFTER_SEMICOLON.sub(r"\1'", value)


class RecordRow(NamedTuple):
    """A record as a row of text; bytes that are no UTF-8 are in base64, as their encoding says."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    time: str
    key: str | None
    key_encoding: str
    value: str | None
    value_encoding: str
    headers: Sequence[tuple[str, str | None, str]]
    """The name, the value and the value's encoding of each header."""


class ParquetRows:
    """Rows as a Parquet file, on a thread that may wait; those of records have bytes.

    It is written to a file without a name, which goes with this object. Rows that are no records
    have the types of the values in their first window.
    """

    def __init__(self, of_records: bool) -> None:
        import pyarrow as pa  # 60 MB of memory, for those who ask for it
        import pyarrow.parquet as pq

        self._pa = pa
        self._open = partial(pq.ParquetWriter, compression="zstd")
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - `close` is its end
        self._schema = record_schema() if of_records else None
        self._writer: Any = self._open(self._file, self._schema) if of_records else None

    def add(self, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> None:
        """Add a window, whose columns may have types of DuckDB."""
        if rows and self._schema is not None:
            self._writer.write_batch(self._pa.RecordBatch.from_pylist(rows, schema=self._schema))
        elif rows or self._writer is None:
            names = [*types] or ([*rows[0]] if rows else [])
            columns = [
                self._column([row[name] for row in rows], types.get(name, "")) for name in names
            ]
            batch = self._pa.RecordBatch.from_arrays(columns, names=names)
            self._writer = self._writer or self._open(self._file, batch.schema)
            self._writer.write_batch(batch)

    def _column(self, values: list[Any], type_name: str) -> Any:
        """The values of a column; as JSON where they have no type of their own."""
        try:
            if known := arrow_type(type_name):
                type_, read = known
                return self._pa.array(
                    [each if each is None else read(each) for each in values], type_
                )
        except (self._pa.ArrowException, OverflowError, ValueError, ArithmeticError):
            return self._pa.array([each if each is None else str(each) for each in values])
        try:
            column = self._pa.array(values)
            if not self._pa.types.is_nested(column.type):
                return column
        except (self._pa.ArrowException, OverflowError):
            pass  # kinds that are mixed, or numbers of any size
        return self._pa.array([each if each is None else json.dumps(each) for each in values])

    def finish(self, notes: Sequence[str]) -> None:
        """Make the file whole; notes are in its metadata as `ottla.notes`."""
        if notes:
            self._writer.add_key_value_metadata({"ottla.notes": "; ".join(notes)})
        self._writer.close()
        self._file.seek(0)

    def read(self) -> bytes:
        """The next piece of the whole file; nothing at its end."""
        return self._file.read(PIECE_BYTES)

    def close(self) -> None:
        """Give the room on the disk back."""
        if self._writer is not None:
            self._writer.close()
        self._file.close()


def arrow_type(name: str) -> tuple[Any, Callable[[Any], Any]] | None:
    """The type of a column by DuckDB's name of it, and what makes its values of those of JSON."""
    import pyarrow as pa

    kind, _, rest = name.partition("(")
    if kind == "DECIMAL" and rest:
        precision, scale = rest.rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale)), Decimal
    if kind in SIGNED:
        return pa.int64(), int
    types: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "UBIGINT": (pa.uint64(), int),
        "HUGEINT": (pa.decimal128(38, 0), Decimal),
        "FLOAT": (pa.float64(), float),
        "DOUBLE": (pa.float64(), float),
        "BOOLEAN": (pa.bool_(), bool),
        "VARCHAR": (pa.string(), str),
        "JSON": (pa.string(), str),
        "DATE": (pa.date32(), date.fromisoformat),
        "TIMESTAMP": (pa.timestamp("us"), datetime.fromisoformat),
        "TIMESTAMP WITH TIME ZONE": (pa.timestamp("us", "UTC"), datetime.fromisoformat),
    }
    return types.get(name)


def record_schema() -> Any:
    """The columns of records in Parquet."""
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp_ms", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
        ]
    )
