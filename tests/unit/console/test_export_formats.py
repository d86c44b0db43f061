"""Rows as CSV that no spreadsheet runs, as JSON lines, and as Parquet."""

from __future__ import annotations

import csv
import json
from io import StringIO
from typing import NamedTuple

import pytest

from ottla.console.export_formats import CsvRows, JsonRows, RecordRow, csv_cell, formats
from ottla.console.exporting import record_row
from ottla.console.record_source import FoundRecord


class Line(NamedTuple):
    name: str
    count: int | None
    parts: list[int]


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+SUM(A1)", "-2+3", "@now()", "\t=1", "\r=1", "\n", " =1", "\0=1", "\ufeff=1"),
        *("\uff1d1+1", "-", "=cmd|' /C calc'!A0", "+1 2", "-1e5=", "-0x10"),
    ],
)
def test_formula_becomes_text(text):
    """With an apostrophe before it, as spreadsheets have it."""
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        *(("-12.50", "-12.50"), ("+1", "+1"), ("-1e-5", "-1e-5"), ("a=1", "a=1"), ("", "")),
        *((None, ""), (-5, "-5"), (9007199254740993, "9007199254740993"), (True, "true")),
        *(([1, None], "[1, null]"), ({"a": "ä"}, '{"a": "ä"}')),
    ],
)
def test_other_values_stay_as_they_are(value, cell):
    """Numbers too, with a sign or without."""
    assert csv_cell(value) == cell


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        *(("a;=1", "a;'=1"), (";@now()", ";'@now()"), ("a; \t+1;-2", "a; \t'+1;'-2")),
        *((';"=1', ";\"'=1"), ("=1;=2", "'=1;'=2"), ("a;b=1", "a;b=1"), ("-5", "-5")),
        (["a;=1", "é"], '["a\\u003b=1", "é"]'),
    ],
)
def test_part_behind_a_semicolon_is_no_formula(value, cell):
    """As spreadsheets of many countries part cells there; JSON stays the same JSON."""
    assert csv_cell(value) == cell


def test_cell_with_a_semicolon_is_quoted():
    """And a note is no formula either."""
    rows = CsvRows()
    text = rows.text_of([{"a": 'b;"c"', "d": "e"}]) + rows.note("f;=g")
    assert text == 'a,d\r\n"b;""c""",e\r\n"# f;\'=g"\r\n'
    assert CsvRows(["a"]).text_of([{"a": None}]) == 'a\r\n""\r\n'


def test_name_of_a_column_is_no_formula():
    """Those of a statement may be anything, and so may fields of records."""
    assert CsvRows().text_of([{"=1+1": 1, "a;@b": None}]) == "'=1+1,\"a;'@b\"\r\n1,\r\n"
    assert CsvRows(["=1+1"]).text_of([]) == "'=1+1\r\n"


def test_base64_stays_as_it_is():
    """It comes back as the bytes that it was."""
    row = record_row("t", FoundRecord(0, 1, 2, b"\xfb\xff", b"+SUM(A1)", ()))
    (line,) = csv.DictReader(StringIO(CsvRows(RecordRow._fields).text_of([row])))
    assert (line["key"], line["key_encoding"]) == ("+/8=", "base64")
    assert line["value"] == "'+SUM(A1)"


def test_csv_comes_back_as_it_was():
    """Its first line has the columns; quotes, commas and line ends are within cells."""
    rows, lines = CsvRows(), [Line('"a",b\r\nc', 1, [1, 2]), Line("ä", None, [])]
    text = rows.text_of(lines[:1]) + rows.text_of(lines[1:]) + rows.note("stopped")

    assert list(csv.reader(StringIO(text, newline=""))) == [
        ["name", "count", "parts"],
        ['"a",b\r\nc', "1", "[1, 2]"],
        ["ä", "", "[]"],
        ["# stopped"],
    ]


def test_json_lines_are_one_line_each():
    """For every reader, whatever it takes for the end of a line."""
    line = Line("a\nb\u2028c\u2029d\x85e\0=1", None, [])
    text = JsonRows().text_of([line, line]) + JsonRows().note("stopped")

    assert [json.loads(each) for each in text.splitlines()] == [
        line._asdict(),
        line._asdict(),
        {"note": "stopped"},
    ]


def test_parquet_is_there_with_pyarrow(monkeypatch):
    """And is not offered without."""
    assert "parquet" in formats()
    monkeypatch.setattr("ottla.console.export_formats.find_spec", lambda name: None)
    assert formats() == ("csv", "jsonl")
