"""Progress: from Spark's JSON to batches, and from batches to sums."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ottla.cli.pipeline_run import words_of
from ottla.pipelines.execution import Batch, Execution, Tally, batch_of

REPORT = {
    "name": "ranking: counts",
    "batchId": 4,
    "batchDuration": 500,
    "numInputRows": 250,
    "sources": [
        {
            "endOffset": {"a": {"0": 10, "1": 5}},
            "latestOffset": json.dumps({"a": {"0": 12, "1": 5}, "b": {"0": 3}}),
        },
        {"endOffset": None, "latestOffset": None},
    ],
    "stateOperators": [
        {"numRowsDroppedByWatermark": 2, "numRowsTotal": 30},
        {"numRowsDroppedByWatermark": 1, "numRowsTotal": 4},
    ],
    "observedMetrics": {"a": {"rows": 250, "malformed": 3}},
}


def test_batch_has_rate_lag_late_rows_and_state():
    """Offsets count as JSON and as text; a new partition has all of its records waiting."""
    batch = batch_of(REPORT)

    assert (batch.query, batch.number, batch.rows, batch.seconds) == (
        "ranking: counts",
        4,
        250,
        0.5,
    )
    assert (batch.rows_per_second, batch.lag, batch.late, batch.state_rows) == (500.0, 5, 3, 34)
    assert batch.observed == {"a": {"rows": 250, "malformed": 3}}


def test_batch_without_time_has_no_rate():
    """Nothing is divided by zero."""
    assert batch_of({**REPORT, "batchDuration": 0}).rows_per_second == 0.0


def batch(query, number, rows, lag=0, late=0, **counts):
    observed = {"a": {"rows": rows, "malformed": 0, **counts}}
    return Batch(query, number, rows, 0.5, lag, late, state_rows=rows, observed=observed)


def test_records_that_several_queries_read_count_once():
    """Of a topic, the query that has read most says how much was read."""
    tally = Tally()
    for each in (
        batch("q", 0, 10, malformed=1),
        batch("q", 1, 5, lag=2),
        batch("r", 0, 12, lag=9, late=4, malformed=1),
    ):
        tally.add(1.0, each)

    assert (tally.rows, tally.malformed, tally.late) == (15, 1, 4)
    assert (tally.lag, tally.state_rows) == (9, 17)
    assert tally.seconds_per_batch() == pytest.approx(0.5)


def test_ledger_adds_up_whatever_the_reasons_are():
    """Used + left out = read, of the query that has read most; rules of its own have one reason."""
    tally = Tally()
    for each in (
        batch("q", 0, 10, malformed=3, **{"n is no int": 2, "the value is no JSON object": 0}),
        batch("q", 1, 5, malformed=1, **{"n is no int": 1}),
        batch("r", 0, 12, malformed=3),
    ):
        tally.add(1.0, each)

    assert [(row["outcome"], row["records"]) for row in tally.ledger()] == [
        ("used", 11),
        ("n is no int", 3),
        ("left out by the pipeline's own rules", 1),
        ("records read", 15),
    ]
    assert words_of(tally.ledger()) == (
        "15 read from a = 11 used + 4 left out (3: n is no int; 1: left out by the pipeline's own "
        "rules)"
    )


def test_tally_of_nothing_is_zero():
    """Before the first batch."""
    assert Tally().ledger() == []
    assert (Tally().rows, Tally().lag, Tally().seconds_per_batch()) == (0, 0, 0.0)


class FakeQuery:
    """A query whose progress is what the test says; counts how often the whole list is read."""

    def __init__(self):
        self.reports = []
        self.lists_read = 0

    def finish(self, number, phase="addBatch"):
        """Spark reports a batch, or that nothing came in."""
        moment = f"moment {len(self.reports)}"
        report = {**REPORT, "batchId": number, "durationMs": {phase: 1}, "timestamp": moment}
        self.reports.append(
            SimpleNamespace(
                name=report["name"], batchId=number, timestamp=moment, json=json.dumps(report)
            )
        )

    @property
    def lastProgress(self):  # noqa: N802
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self):  # noqa: N802
        self.lists_read += 1
        return self.reports


def test_each_batch_is_reported_once_and_the_list_read_for_missed_ones():
    """It has a hundred reports, each of which is asked for over a socket."""
    execution = Execution.__new__(Execution)
    execution._seen, execution._noted = {}, {}
    query = FakeQuery()
    numbers = lambda: [each.number for each in execution._new_batches(query)]  # noqa: E731

    assert numbers() == []
    query.finish(0)
    assert (numbers(), numbers()) == ([0], [])
    query.finish(1, "latestOffset")
    assert numbers() == []
    query.finish(1)
    assert (numbers(), query.lists_read) == ([1], 0)
    query.finish(2)
    query.finish(3)
    query.finish(4, "latestOffset")
    assert (numbers(), numbers(), query.lists_read) == ([2, 3], [], 1)
