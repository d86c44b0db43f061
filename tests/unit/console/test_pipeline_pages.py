"""The page of pipelines, by the reports in their topic."""

from __future__ import annotations

import asyncio
import json

import pytest
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla import NewTopic
from ottla.console.pipeline_pages import query_lines, report_of
from ottla.structs import PROGRESS_TOPIC

NOW_MS = 10_000_000


def report(batch: int = 0, **fields: object) -> dict:
    return {
        "pipeline": "retail",
        "run": "r1",
        "query": "baskets",
        "state": "running",
        "began_ms": NOW_MS - 60_000,
        "at_ms": NOW_MS - 1_000,
        "report": "/out/report.html",
        "batch": batch,
        "rows": 100,
        "seconds": 0.5,
        "lag": 7,
        "late": 1,
        "state_rows": 30,
        "malformed": 2,
    } | fields


def test_query_has_its_newest_batch_and_the_course_before():
    """Rates and lags of each batch, and the sums of rows that were not used."""
    (line,) = query_lines([report(0, rows=50), report(1, lag=0)], NOW_MS)

    assert (line.state, line.batch, line.silent_ms) == ("running", 1, 1_000)
    assert (line.rates, line.lags) == ([100, 200], [7, 0])
    assert (line.late, line.malformed, line.state_rows) == (2, 4, 30)


def test_long_texts_of_a_report_are_cut():
    """Others may write to the topic."""
    texts = dict.fromkeys(("pipeline", "query", "run", "state", "report"), "x" * 100_000)
    (line,) = query_lines([report(**texts)], NOW_MS)
    assert all(line._asdict()[name].endswith("x…") for name in texts)
    assert sum(len(line._asdict()[name]) for name in texts) < 4_000


def test_end_of_a_run_is_no_batch():
    """Its numbers are those of the last batch, which is not counted again."""
    (line,) = query_lines([report(0), report(0, state="ended")], NOW_MS)

    assert (line.state, line.late, len(line.rates)) == ("ended", 1, 1)


def test_query_that_says_nothing_is_quiet():
    """It may have nothing to read, or its driver is gone."""
    (line,) = query_lines([report(at_ms=NOW_MS - 61_000)], NOW_MS)

    assert line.state == "quiet"


def test_running_queries_come_first():
    """Then quiet, failed and ended ones, the newest run first."""
    states = ("ended", "failed", "running")
    every = [report(state=state, run=state) for state in states]
    every.append(report(run="quiet", at_ms=0))
    every.append(report(state="ended", run="newest", began_ms=NOW_MS))

    found = [line.run for line in query_lines(every, NOW_MS)]
    assert found == ["running", "quiet", "failed", "newest", "ended"]


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000, json.dumps({"run": "r"}).encode()]
)
def test_record_that_is_no_report_is_left_out(value):
    """Anybody may write to the topic."""
    assert report_of(value) is None


def test_page_shows_runs_of_the_topic(world: LagWorld):
    """A hint where there is no topic; hostile names are text."""

    def run() -> None:
        world.admin.create_topics([NewTopic(PROGRESS_TOPIC, 1)])
        for value in (report(), report(1), {"no": "report"}, report(query="<b>\ud800late</b>")):
            world.producer.send(PROGRESS_TOPIC, json.dumps(value).encode(), key=b"r1/q")
        world.producer.flush()

    async def walk(visitor: Visitor) -> None:
        assert "ottla pipeline run retail --progress" in (await visitor.get("/pipelines")).text
        await asyncio.to_thread(run)  # the metadata of before are not asked for again so soon
        data = (await visitor.get("/pipelines.json")).json
        assert [(row["query"], row["batch"]) for row in data["rows"]] == [
            ("<b>\ud800late</b>", 0),
            ("baskets", 1),
        ]
        page = (await visitor.get("/pipelines")).text
        assert "retail: baskets" in page
        assert r"\ud800late" in page
        assert "<b>" + r"\ud800" not in page

    visit(world.servers, walk)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 4000, '"1"', "null", "[1]"])
def test_report_with_a_number_that_is_none_is_left_out(number):
    """Others may write to the topic; the page of all queries does not end at one of theirs."""
    for name in ("rows", "seconds", "batch", "at_ms"):
        value = json.dumps(report(**{name: 0})).replace(f'"{name}": 0', f'"{name}": {number}')
        assert report_of(value.encode()) is None
    assert report_of(json.dumps(report(seconds=5e-324)).encode())
    (line,) = query_lines([report(seconds=5e-324)], NOW_MS)
    assert line.rows_per_s == 100_000
