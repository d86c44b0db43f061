"""What the queries of a pipeline have done so far, from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.spark.offsets import Offsets, Reach


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of one query: rows in, duration, and how many records are still waiting.

    `late` are the rows that came after the watermark had passed their time, as the operators that
    keep state count them: rows of one group that arrive together count as one.
    """

    query: str
    number: int
    rows: int
    seconds: float
    lag: int
    late: int
    state_rows: int
    observed: Mapping[str, tuple[int, int]]

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def batch_of(report: Mapping[str, Any]) -> Batch:
    """A batch from the JSON of Spark's StreamingQueryProgress."""
    operators = report.get("stateOperators", ())
    return Batch(
        query=report["name"],
        number=report["batchId"],
        rows=report["numInputRows"],
        seconds=report["batchDuration"] / 1000,
        lag=sum(_lag(source) for source in report["sources"]),
        late=sum(each["numRowsDroppedByWatermark"] for each in operators),
        state_rows=sum(each["numRowsTotal"] for each in operators),
        observed={
            topic: (counts["rows"], counts["malformed"])
            for topic, counts in report.get("observedMetrics", {}).items()
        },
    )


def _lag(source: Mapping[str, Any]) -> int:
    """The number of records in the topics that were not read yet."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return sum(max(0, latest[where] - end.get(where, 0)) for where in latest)


def _offsets(value: Any) -> Offsets:
    """The source's offsets, which come as JSON or as text that is JSON."""
    found = json.loads(value) if isinstance(value, str) else value
    return Reach.from_json_object(found or {}).offsets


@dataclass(slots=True)
class Tally:
    """The batches of a run, the newest last, and the sums over all of them."""

    batches: list[tuple[float, Batch]] = field(default_factory=list)
    _last: dict[str, Batch] = field(default_factory=dict)
    _rows: dict[str, dict[str, int]] = field(default_factory=dict)
    _malformed: dict[str, dict[str, int]] = field(default_factory=dict)
    late: int = 0

    def add(self, at_s: float, batch: Batch) -> None:
        """Add a batch that ended `at_s` seconds after the start."""
        self.batches.append((at_s, batch))
        self._last[batch.query] = batch
        self.late += batch.late
        for topic, (rows, malformed) in batch.observed.items():
            for sums, count in ((self._rows, rows), (self._malformed, malformed)):
                of_queries = sums.setdefault(topic, {})
                of_queries[batch.query] = of_queries.get(batch.query, 0) + count

    @property
    def rows(self) -> int:
        """Records that were read; of queries that read the same topic, the one that read most."""
        return _most(self._rows)

    @property
    def malformed(self) -> int:
        """Records that were no object of their topic's schema."""
        return _most(self._malformed)

    @property
    def lag(self) -> int:
        """Records that wait for the query that is furthest behind."""
        return max((batch.lag for batch in self._last.values()), default=0)

    @property
    def state_rows(self) -> int:
        return sum(batch.state_rows for batch in self._last.values())

    def seconds_per_batch(self) -> float:
        return _mean(batch.seconds for _, batch in self.batches)


def _most(sums: Mapping[str, Mapping[str, int]]) -> int:
    return sum(max(of_queries.values()) for of_queries in sums.values())


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
