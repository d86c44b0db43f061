"""Tables as text."""

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipelines.tables import MAX_CELL_WIDTH, ResultTable, text_of


def test_table_is_printed_in_columns():
    """Numbers stand to the right; what is left out is counted."""
    rows = [{"page": "/", "requests": 12345}, {"page": "/a", "requests": 7}] * 2

    assert ResultTable(("page", "requests"), rows).as_text(max_rows=2).splitlines() == [
        "page  requests",
        "/       12,345",
        "/a           7",
        "... and 2 more",
    ]


def test_empty_table_has_its_head():
    """No rows are shown as none."""
    assert ResultTable(("page", "requests"), []).as_text(5) == "page  requests"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1234567, "1,234,567"),
        (1234.5, "1,234.5"),
        (-1e308, "-1e+308"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (datetime(2015, 5, 17, 10, 5), "2015-05-17 10:05"),
        (datetime(1, 1, 1), "0001-01-01 00:00"),
        (b"\xff<", "\\xff<"),
        ("a\x1b[31m\n", "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}"),
        ("x" * 100, "x" * (MAX_CELL_WIDTH - 1) + "…"),
    ],
)
def test_cells_cannot_harm_a_terminal(value, text):
    """Control characters of a log do not reach the terminal, and long ones are cut."""
    assert text_of(value) == text


def test_table_is_read_from_all_its_files(tmp_path):
    """Spark may write one file or several."""
    for number in range(2):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"part-{number}.parquet")

    assert ResultTable.read(tmp_path) == ResultTable(["n"], [{"n": 0}, {"n": 1}])
