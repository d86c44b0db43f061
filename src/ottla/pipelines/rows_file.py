"""A file of rows: CSV, or JSON objects."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.pipelines.access_log import (
    LOG_START,
    LONGEST_LINE,
    AccessLog,
    DamagedError,
    LogError,
    LogLedger,
    Position,
)
from ottla.pipelines.logged_request import DAMAGED, NO_OBJECT, TOO_LONG, trimmed
from ottla.pipelines.pipeline import KEY_SEPARATOR, Event, Input, columns_of

CSV, JSON_OBJECTS = "CSV", "JSON"
DELIMITERS: Final = ",;\t|"
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
NUMBERS: Final = re.compile(
    r"(tinyint|byte|smallint|short|int|integer|bigint|long|float|double|real|dec|decimal|numeric)\b"
)
HEAD = 64 * 1024
MOST_LINES = 100
"""A row of CSV has no more of them: one with a quote that is never closed would end the file."""
BETWEEN: Final = re.compile(r"[\s,]*")
"""What stands between the objects of an array."""
NO_UTF8 = "the row is not in UTF-8"
NO_JSON = "the array is no JSON from here on"
BEHIND_ARRAY = "the array has ended, and the rest of the file is left out"
CHANGED = "the row has changed since it was published"
PARQUET = b"PAR1"


class FileRow(NamedTuple):
    """A row of a file: the value of a record, and its fields; or the reason why it is none."""

    value: bytes
    fields: Mapping[str, Any]
    problem: str = ""


class RowPlace(NamedTuple):
    """Where a row begins and ends, and where the next one can begin. No row is no event."""

    row: FileRow | None
    begin: Position
    content_end: int
    end: Position


class RowsFile(AccessLog):
    """A file of rows for the columns of a topic: CSV with a header, or JSON objects.

    JSON objects stand one in a line, or in one array. A cell of CSV becomes a value of its column's
    type, a number, true or false, or text; an empty one is null. A cell that does not fit stays the
    text that it is, and the pipeline says why it leaves the row out.
    """

    def __init__(
        self,
        source: Input,
        path: Path,
        start: Position = LOG_START,
        stop: Position | None = None,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        """Raises LogError for a file that has no rows for the topic."""
        super().__init__(path, start, stop, longest_line)
        self.ledger = LogLedger(unit="rows", noun="event")
        self.source = source
        self._types = columns_of(source.schema)
        head = trimmed(self.beginning(HEAD)).lstrip()
        if not head:
            raise LogError(f"{path}: is empty")
        if head.startswith(PARQUET) or b"\0" in head:
            raise LogError(f"{path}: is neither CSV nor JSON")
        if source.is_table and not source.key:
            raise LogError(
                f"{path}: {source.topic} is a table: its Input needs a key=(column, ...)"
            )
        self.form = JSON_OBJECTS if head[:1] in (b"{", b"[") else CSV
        self._is_array = head.startswith(b"[")
        first_line = head.partition(b"\n")[0].decode("utf-8", "replace")
        self._delimiter = max(DELIMITERS, key=first_line.count)
        self._columns = self._header(first_line) if self.form == CSV else []
        self._second_reading = self._chunks()
        self._hash, self._hashed, self._waiting = hashlib.sha256(), 0, b""

    def _header(self, line: str) -> list[str]:
        try:
            names = [name.strip() for name in self._cells([line.rstrip("\r")])]
        except csv.Error as error:
            raise LogError(f"{self.path}: its first line is no header of CSV: {error}") from None
        missing = ", ".join(name for name in self._types if name not in names)
        if missing:
            raise LogError(f"{self.path}: has no column {missing} (it has: {', '.join(names)})")
        twice = ", ".join(name for name in self._types if names.count(name) > 1)
        if twice:
            raise LogError(f"{self.path}: has more than one column {twice}")
        return names

    @property
    def digest(self) -> str:
        """The digest of all before `reached`, which is read a second time, as rows look ahead."""
        while self._hashed < self.reached.offset:
            self._waiting = self._waiting or next(self._second_reading)
            piece = self._waiting[: self.reached.offset - self._hashed]
            self._hash.update(piece)
            self._hashed += len(piece)
            self._waiting = self._waiting[len(piece) :]
        return self._hash.hexdigest()

    def events(self) -> Iterator[Event]:
        """An event for each row that is new; the others are in the ledger only."""
        if self._stop is not None and not self._stop.offset:
            return
        try:
            for row, begin, content_end, end in self._array() if self._is_array else self._rows():
                if content_end <= self.start.offset:
                    continue
                self.reached = end
                if row is not None:
                    problem = row.problem if begin.offset >= self.start.offset else CHANGED
                    if problem:
                        self.ledger.leave_out(begin.line + 1, problem, row.value)
                    else:
                        self.ledger.requests[self.form] += 1
                        yield Event(self.source.topic, self._key(row), row.value)
                if self._stop is not None and end.offset >= self._stop.offset:
                    return
        except DamagedError:
            self.ledger.leave_out(self.reached.line + 1, DAMAGED)

    def _rows(self) -> Iterator[RowPlace]:
        """The rows of CSV and of JSON lines; unreadable text ends with its first line."""
        lines = self._raw_lines()
        ahead: deque[tuple[bytes, int]] = deque()
        place, has_header = Position(), self.form != CSV
        while True:
            if not ahead:
                ahead.extend(islice(lines, 1))
            if not ahead:
                return
            count = 1 if self.form == JSON_OBJECTS else self._length(ahead, lines)
            taken = [ahead.popleft() for _ in range(count)]
            values = [trimmed(value) for value, _ in taken]
            size = sum(length for _, length in taken)
            row = None
            if any(len(value) > self._longest for value in values):
                row = FileRow(b"", {}, TOO_LONG)
            elif b"".join(values).strip():
                row = self._row(values) if has_header else None
                has_header = True
            end = Position(place.line + count, place.offset + size)
            content_end = end.offset - taken[-1][1] + len(taken[-1][0])
            yield RowPlace(row, place, content_end, end)
            place = end

    def _length(self, ahead: deque[tuple[bytes, int]], lines: Iterator[tuple[bytes, int]]) -> int:
        """How many lines the next row of CSV has: a cell in quotes may go over several."""
        for count in range(1, MOST_LINES + 1):
            while len(ahead) < count:
                line = next(lines, None)
                if line is None:
                    return 1
                ahead.append(line)
            texts = [each.decode("utf-8", "replace") for each, _ in islice(ahead, count)]
            try:
                self._cells(texts)
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    return 1
            else:
                return count
        return 1

    def _cells(self, lines: Iterable[str]) -> list[str]:
        rows = csv.reader((f"{line}\n" for line in lines), delimiter=self._delimiter, strict=True)
        return next(rows, [])

    def _row(self, values: list[bytes]) -> FileRow:
        whole = b"\n".join(values)
        try:
            texts = [value.decode() for value in values]
        except UnicodeDecodeError:
            return FileRow(whole, {}, NO_UTF8)
        if self.form == JSON_OBJECTS:
            return self._object(whole)
        try:
            cells = self._cells(texts)
        except csv.Error as error:
            return FileRow(whole, {}, f"is no row of CSV: {error}")
        if len(cells) != len(self._columns):
            return FileRow(
                whole, {}, f"has {len(cells)} cells where the header has {len(self._columns)}"
            )
        fields = dict(zip(self._columns, cells, strict=True))
        literals = (
            f"{json.dumps(name)}: {literal(cell, self._types.get(name, ''))}"
            for name, cell in fields.items()
        )
        return FileRow(f"{{{', '.join(literals)}}}".encode(), fields)

    def _object(self, value: bytes) -> FileRow:
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return FileRow(value, {}, NO_OBJECT)
        if not isinstance(fields, dict):
            return FileRow(value, {}, NO_OBJECT)
        if self._types and not fields.keys() & self._types.keys():
            return FileRow(value, {}, f"has none of the columns {', '.join(self._types)}")
        return FileRow(value, fields)

    def _array(self) -> Iterator[RowPlace]:
        """The objects of an array, which is in memory as a whole."""
        text = b"".join(self._chunks()).decode("utf-8", "surrogateescape")
        decoder = json.JSONDecoder()
        at, done, place = text.index("[") + 1, 0, Position()

        def moved(to: int) -> Position:
            piece = text[done:to]
            size = len(piece.encode("utf-8", "surrogateescape"))
            return Position(place.line + piece.count("\n"), place.offset + size)

        while True:
            separators = BETWEEN.match(text, at)
            at = separators.end() if separators else at
            is_over = text.startswith("]", at)
            if is_over and not text[at + 1 :].strip():
                return
            place, done, begin = moved(at), at, moved(at)
            try:
                _, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                rest = moved(len(text))
                problem = BEHIND_ARRAY if is_over else NO_JSON
                yield RowPlace(FileRow(b"", {}, problem), begin, rest.offset, rest)
                return
            end = moved(at)
            value = text[done:at].encode("utf-8", "surrogateescape")
            yield RowPlace(self._row([value]), begin, end.offset, end)
            place, done = end, at

    def _key(self, row: FileRow) -> bytes | None:
        values = [row.fields.get(name) for name in self.source.key]
        texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
        known = [text for text, each in zip(texts, values, strict=True) if each not in (None, "")]
        return KEY_SEPARATOR.join(known).encode() if known else None

    def _last_line(
        self, value: bytes, length: int, digest: hashlib._Hash
    ) -> Iterator[tuple[bytes, int]]:
        yield value, length  # a file of rows is not being written to


def literal(cell: str, kind: str) -> str:
    """A cell of CSV as JSON: a value of its column's type, or else text."""
    word = cell.strip()
    if not cell or (not word and kind != "string"):
        return "null"
    if NUMBERS.match(kind) and NUMBER.fullmatch(word):
        return str(Decimal(word))
    if kind == "boolean" and word.lower() in ("true", "false"):
        return word.lower()
    return json.dumps(cell)
