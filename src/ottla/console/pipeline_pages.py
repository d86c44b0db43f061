"""The page of pipelines: the queries of their runs, by the topic in which runs tell of batches.

`ottla pipeline run --progress` writes that topic. The driver is not asked, so that runs of any
machine are shown, and runs that have ended.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.config.config_type import LONG_MAX
from ottla.console.decoding import beginning
from ottla.console.newest_records import newest_records
from ottla.console.page import ConsolePage, Data, Visit
from ottla.structs import PROGRESS_TOPIC, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.console.console_cluster import ConsoleCluster

MOST_QUERIES: Final = 100
PLOTTED_BATCHES: Final = 120
LONGEST_REPORT: Final = 2_000
QUIET_MS: Final = 60_000
"""A query that runs and has told of no batch for so long has nothing to read, or its driver has
gone: a driver that is killed tells nobody."""
NUMBERS: Final = ("batch", "rows", "seconds", "lag", "late", "state_rows", "malformed")


class QueryLine(NamedTuple):
    """A query of a run with its newest batch, and the course of the batches before."""

    pipeline: str
    query: str
    run: str
    state: str
    """`running`, `quiet`, `ended` or `failed`."""
    began_ms: int
    silent_ms: int
    batch: int
    rows_per_s: float
    seconds: float
    lag: int
    late: int
    """Rows of all batches that came too late, as far as these are still in the topic."""
    malformed: int
    state_rows: int
    report: str
    rates: Sequence[float]
    lags: Sequence[int]


async def query_page(visit: Visit) -> Data:
    """The queries of all runs, those that run first."""
    cluster = visit.cluster
    topic = await cluster.topic_if_any(PROGRESS_TOPIC)
    if topic is None or not topic.available:
        return {"topic": PROGRESS_TOPIC, "is_there": False, "rows": [], "count": 0}
    partitions = [TopicPartition(PROGRESS_TOPIC, each) for each in topic.available]
    reports = await read_reports(cluster, partitions)
    lines = query_lines(reports, cluster.runtime.clock.now_ms())
    return {
        "topic": PROGRESS_TOPIC,
        "is_there": True,
        "rows": lines[:MOST_QUERIES],
        "count": len(lines),
    }


async def read_reports(
    cluster: ConsoleCluster, partitions: Sequence[TopicPartition]
) -> list[dict[str, Any]]:
    """The newest reports of the topic, each partition's in order; what is none is left out."""
    records = [record for _, record in await newest_records(cluster, partitions)]
    found = (report_of(record.value) for record in records)
    return [each for each in found if each is not None]


def report_of(value: bytes | None) -> dict[str, Any] | None:
    """A report of a batch; None for a record that is none, as others may write to the topic."""
    try:
        found = json.loads(bytes(value or b""))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    texts = (found.get(name) for name in ("pipeline", "query", "run", "state", "report"))
    numbers = (found.get(name) for name in (*NUMBERS, "began_ms", "at_ms"))
    has_texts = all(isinstance(each, str) for each in texts)
    has_numbers = all(map(is_number, numbers))
    return found if has_texts and has_numbers else None


def is_number(value: object) -> bool:
    """Whether a value is a number that Kafka's protocol could have: no NaN, nor one beyond."""
    return isinstance(value, int | float) and abs(value) <= LONG_MAX


def query_lines(reports: Iterable[dict[str, Any]], now_ms: int) -> list[QueryLine]:
    """A line for each query of each run: those that run first, then the newest."""
    of_queries: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in reports:
        of_queries.setdefault((each["run"], each["query"]), []).append(each)
    lines = [query_line(some, now_ms) for some in of_queries.values()]
    order = {"running": 0, "quiet": 1, "failed": 2}
    return sorted(lines, key=lambda line: (order.get(line.state, 3), -line.began_ms, line.query))


def query_line(reports: Sequence[dict[str, Any]], now_ms: int) -> QueryLine:
    """A query by its reports, the oldest first; the last of a run that has ended is no batch."""
    last = reports[-1]
    batches = list({each["batch"]: each for each in reports}.values())
    silent_ms = max(0, now_ms - last["at_ms"])
    is_quiet = last["state"] == "running" and silent_ms > QUIET_MS
    return QueryLine(
        beginning(last["pipeline"]),
        beginning(last["query"]),
        beginning(last["run"]),
        "quiet" if is_quiet else beginning(last["state"]),
        last["began_ms"],
        silent_ms,
        last["batch"],
        rows_per_s(last),
        last["seconds"],
        last["lag"],
        sum(each["late"] for each in batches),
        sum(each["malformed"] for each in batches),
        last["state_rows"],
        beginning(last["report"], LONGEST_REPORT),
        [rows_per_s(each) for each in batches[-PLOTTED_BATCHES:]],
        [each["lag"] for each in batches[-PLOTTED_BATCHES:]],
    )


def rows_per_s(report: dict[str, Any]) -> float:
    """Rows of a batch by the time that it took, which Spark knows in milliseconds."""
    seconds = report["seconds"]
    return float(report["rows"] / max(seconds, 0.001)) if seconds > 0 else 0.0


PIPELINE_PAGES: Final = (
    ConsolePage(
        "/pipelines",
        query_page,
        "pipelines.html",
        "Pipelines",
        rail="Pipelines",
        command=f"ottla tail {PROGRESS_TOPIC}",
        refresh_s=5,
        home=True,
        table="rows",
    ),
)
