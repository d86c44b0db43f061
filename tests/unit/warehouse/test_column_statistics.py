"""The bounds that are told of a file's columns: true ones, or none."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.warehouse.column_statistics import MAX_TEXT, statistics_of


def statistics(tmp_path, columns, row_group_size=2):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return statistics_of(pq.read_metadata(path))


def test_bounds_hold_over_all_row_groups(tmp_path):
    """Numbers, texts, days and moments; they are JSON."""
    found = statistics(
        tmp_path,
        {
            "n": pa.array([5, 9, 1]),
            "text": pa.array(["b", None, "a"]),
            "day": pa.array([date(2026, 3, 2), date(2026, 3, 1), None]),
            "time": pa.array(
                [datetime(2026, 3, 2, 8, 0, 0, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")
            ),
        },
    )

    assert json.loads(json.dumps(found)) == {
        "numRecords": 3,
        "minValues": {
            "n": 1,
            "text": "a",
            "day": "2026-03-01",
            "time": "2026-03-02T08:00:00.000001Z",
        },
        "maxValues": {
            "n": 9,
            "text": "b",
            "day": "2026-03-02",
            "time": "2026-03-02T08:00:00.000001Z",
        },
        "nullCount": {"n": 0, "text": 1, "day": 1, "time": 0},
    }


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_moments_of_all_years_are_bounds_or_none(tmp_path, unit, zone):
    """Those that Python cannot hold have no bound, and those at the border have theirs."""
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    kind = pa.timestamp(unit, zone)
    texts = {0: "1970-01-01T00:00:00.000000Z", -1: "1969-12-31T23:59:59.000000Z"}
    if unit != "ns":
        first, last = -62135596800, 253402300799
        texts |= {first: "0001-01-01T00:00:00.000000Z", last: "9999-12-31T23:59:59.000000Z"}
        texts |= {first - 1: None, last + 1: None, 9_000_000_000_000: None}
    for seconds, text in texts.items():
        found = statistics(tmp_path, {"time": pa.array([seconds * per_second], kind)})
        expected = {} if text is None else {"time": text}
        assert found["minValues"] == found["maxValues"] == expected


@pytest.mark.parametrize(
    ("days", "text"),
    [(-719162, "0001-01-01"), (2932896, "9999-12-31"), (-719163, None), (2932897, None)],
)
def test_days_of_all_years_are_bounds_or_none(tmp_path, days, text):
    """Days have the same border."""
    found = statistics(tmp_path, {"day": pa.array([days], pa.date32())})

    assert found["minValues"] == found["maxValues"] == ({} if text is None else {"day": text})
    assert found["nullCount"] == {"day": 0}


def test_long_text_has_a_lower_bound_only(tmp_path):
    """Cut off it is still lower, but no longer higher."""
    found = statistics(tmp_path, {"text": ["x" * (MAX_TEXT + 1)]})

    assert found["minValues"] == {"text": "x" * MAX_TEXT}
    assert found["maxValues"] == {}


def test_columns_without_a_useful_order_have_no_bounds(tmp_path):
    """Bytes, floating point numbers and nested columns; nulls are counted where they are known."""
    found = statistics(
        tmp_path, {"raw": [b"x", None], "f": [1.0, float("nan")], "list": [[1], [2]]}
    )

    assert (found["minValues"], found["maxValues"]) == ({}, {})
    assert found["nullCount"] == {"raw": 1, "f": 0}


def test_row_group_of_nulls_does_not_hide_bounds(tmp_path):
    """A row group of nulls does not hide bounds; a column of nulls has none."""
    numbers, nulls = pa.array([None, None, 3]), pa.array([None] * 3, pa.int64())
    found = statistics(tmp_path, {"n": numbers, "nulls": nulls})

    assert (found["minValues"], found["maxValues"]) == ({"n": 3}, {"n": 3})
    assert found["nullCount"] == {"n": 2, "nulls": 3}
