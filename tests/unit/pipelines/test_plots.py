"""Plots as SVG."""

import json
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from math import isnan

import pytest

from ottla.pipelines.plots import (
    bars_plot,
    lines_plot,
    seconds_plot,
    top_rows_plot,
    usual_step,
    with_gaps,
)
from ottla.pipelines.tables import ResultTable

START = datetime(2026, 1, 1, tzinfo=UTC)


def points_of(svg):
    """The values that a plot carries."""
    return json.loads(ET.fromstring(svg).get("data-points"))


def test_line_is_broken_where_minutes_are_missing():
    """Two minutes in a row are joined; an hour without requests is a hole."""
    minutes = [START, START + timedelta(minutes=1), START + timedelta(hours=1)]

    xs, ys = with_gaps(minutes, [1, 2, 3], timedelta(minutes=1))

    assert [isnan(y) for y in ys] == [False, False, True, False]
    assert xs == [*minutes[:2], START + timedelta(minutes=2), minutes[2]]


def test_plot_is_well_formed_and_names_no_address():
    """What stands in the page is one element that refers only to itself."""
    svg = lines_plot("Traffic", [START, START + timedelta(minutes=1)], {"requests": [1, 2]})

    root = ET.fromstring(svg)
    assert root.get("aria-label") == "Traffic"
    references = [value for node in root.iter() for key, value in node.items() if "href" in key]
    assert all(value.startswith("#") for value in references)
    assert "<metadata" not in svg
    assert "DOCTYPE" not in svg


def test_labels_stay_text():
    """Neither mathematics, nor letters that a font lacks, nor markup change a label."""
    svg = bars_plot(["$a$ <b>", "\u6f22\u5b57", "/" + "x" * 90], [3, 2, 1], "requests", limit=2)

    texts = [node.text for node in ET.fromstring(svg).iter() if node.tag.endswith("text")]
    assert {"$a$ <b>", "\u6f22\u5b57", "…" + "x" * 43} <= set(texts)


def test_seconds_are_an_axis_too():
    """Batches are drawn over the seconds of a run, and fractions keep their point."""
    svg = seconds_plot("Batches", [0.5, 1.5], {"seconds per batch": [0.25, 0.75]})

    texts = [node.text for node in ET.fromstring(svg).iter() if node.tag.endswith("text")]
    assert {"seconds since the start", "seconds per batch"} <= set(texts)
    assert any(text and "." in text for text in texts)


def test_only_the_first_rows_are_drawn():
    """A table may be long, its plot stays readable."""
    rows = [{"page": f"/{number}/", "count": 100 - number} for number in range(20)]

    svg = top_rows_plot("page", "count", "requests")(ResultTable(["page", "count"], rows), {})

    assert "/14/" in svg
    assert "/15/" not in svg


def test_axis_of_nothing_but_zeros_says_zero_once():
    """The panel of the records that wait had the tick 0 several times where none ever did."""
    plot = lines_plot("t", [1.0, 2.0], {"records waiting": [0.0, 0.0]})

    assert len(re.findall(r">0</text>", plot)) == 1


def test_plot_carries_its_values():
    """Places from left to right, and from the first bar down; labels and values as text."""
    lines = lines_plot("Traffic", [START, START + timedelta(minutes=1)], {"requests": [1, 2000]})
    bars = bars_plot(['"a" <b>', "b"], [3, 2.5], "requests")
    seconds = seconds_plot("Batches", [0.5, 1.5], {"seconds": [0.25, 0.75]})
    of_lines, of_bars, of_seconds = (points_of(svg) for svg in (lines, bars, seconds))

    assert of_lines["labels"] == ["2026-01-01 00:00", "2026-01-01 00:01"]
    assert of_lines["series"] == {"requests": ["1", "2,000"]}
    assert 0 < of_lines["at"][0] < 0.2 < 0.9 < of_lines["at"][1] < 1
    assert (of_bars["across"], of_bars["labels"]) == (False, ['"a" <b>', "b"])
    assert of_bars["series"] == {"requests": ["3", "2.5"]}
    assert 0 < of_bars["at"][0] < of_bars["at"][1] < 1
    assert of_seconds["labels"] == ["0.5 s", "1.5 s"]


def test_line_follows_the_interval_of_the_data():
    """A minute of every hour makes a line, which is broken where more than an hour is missing."""
    hours = [START + timedelta(hours=number) for number in (0, 1, 2, 3, 9, 10, 11, 12)]

    assert usual_step(hours) == timedelta(hours=1)
    assert usual_step(hours[:1]) == timedelta()
    xs, ys = with_gaps(hours, range(8), usual_step(hours))
    assert len(xs) == 9
    assert sum(y != y for y in ys) == 1
    minutes = [START + timedelta(minutes=number) for number in (0, 1, 2, 3, 60, 61)]
    assert usual_step(minutes) == timedelta(minutes=1)


@pytest.mark.parametrize("step", [None, timedelta(minutes=1)])
@pytest.mark.parametrize("moment", [datetime.min, datetime.max], ids=["first", "last"])
@pytest.mark.parametrize("others", [[], [datetime(2026, 3, 2, tzinfo=UTC)]], ids=["alone", "two"])
def test_first_and_last_moment_of_all_are_drawn(moment, others, step):
    """The zero time of some languages is the first; no margin goes beyond them."""
    xs = sorted([moment.replace(tzinfo=UTC), *others])

    svg = lines_plot("Hits", xs, {"a": [1.0] * len(xs)}, step)

    assert len(points_of(svg)["at"]) == len(xs)


def test_value_that_is_missing_is_not_drawn():
    """A sum of nothing has no value; the report is made all the same."""
    moments = [datetime(2026, 3, 2, hour, tzinfo=UTC) for hour in range(3)]

    lines = points_of(lines_plot("Hits", moments, {"a": [1.0, None, 2.0], "b": [None] * 3}))
    bars = points_of(bars_plot(["x", "y"], [None, 2.0], "balance"))

    assert lines["series"]["a"][::2] == ["1", "2"]
    assert bars["series"]["balance"][1] == "2"
