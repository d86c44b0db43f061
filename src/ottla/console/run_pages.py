"""The page of a run: its records as they arrive, its queries, and its report, in one place.

`ottla demo --console`, `ottla site --console` and `ottla pipeline run --console` open it. The
report is the file of `--report`. It runs its own script in a sandbox, where it has no cookie of the
console, no access to its pages, and no network.
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING, Final

from starlette.responses import FileResponse, HTMLResponse, Response

from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.pipeline_pages import query_page
from ottla.console.topic_facts import topic_facts
from ottla.structs import PROGRESS_TOPIC, NamedTuple

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.clients.metadata import Cluster, TopicInfo
    from ottla.console.console_settings import ConsoleSettings

MOST_TOPICS: Final = 24
REPORT_PATH: Final = "/run/report.html"
SANDBOX: Final = {
    "content-security-policy": "sandbox allow-scripts; default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'self'"
}
NOT_YET: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Report</title>
<meta name="color-scheme" content="light dark"><meta http-equiv="refresh" content="2">
<p style="font: 15px system-ui, sans-serif">The run has not written its report yet.</p></html>
"""


class ArrivalLine(NamedTuple):
    """A topic of the run; None for a number that is not known."""

    name: str
    records: int | None
    per_second: float | None
    rates: list[float]


def is_of_run(info: TopicInfo) -> bool:
    """Whether a topic has records of the run: not one of Kafka's own, nor that of progress."""
    return not info.is_internal and info.name != PROGRESS_TOPIC


async def run_page(visit: Visit) -> Data:
    """The topics with their rates, the queries with their newest batches, and the report."""
    known = await visit.cluster.snapshot()
    written = await asyncio.to_thread(stat_of, visit.settings.report)
    topics = await arrivals(visit, known)
    return {
        "topics": topics,
        "topic_count": sum(map(is_of_run, known.topics.values())),
        "records": sum(each.records or 0 for each in topics),
        "queries": (await query_page(visit))["rows"],
        "report": visit.settings.report,
        "report_path": REPORT_PATH,
        "report_bytes": None if written is None else written.st_size,
        "report_ms": None if written is None else written.st_mtime_ns // 1_000_000,
    }


async def arrivals(visit: Visit, known: Cluster) -> list[ArrivalLine]:
    """The topics of the run, the busiest first."""
    rates = visit.cluster.rates
    every = list(filter(is_of_run, known.topics.values()))
    every.sort(key=lambda each: (-(rates.now(each.name) or 0), each.name))
    shown = every[:MOST_TOPICS]
    rates.watch(each.name for each in shown)
    facts = await topic_facts(visit.cluster, shown)
    return [
        ArrivalLine(name, facts[name].records, rates.now(name), rates.series(name))
        for name in (each.name for each in shown)
    ]


async def report_file(settings: ConsoleSettings, _request: Request) -> Response:
    """The report as it is now, in a sandbox; before it is written, a page that waits for it."""
    if await asyncio.to_thread(stat_of, settings.report) is None:
        return HTMLResponse(NOT_YET, headers=SANDBOX)
    return FileResponse(settings.report, media_type="text/html", headers=SANDBOX)


def stat_of(path: str) -> os.stat_result | None:
    """The facts of a file; None where it is not there, or is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


RUN_PAGES: Final = (
    ConsolePage(
        "/run",
        run_page,
        "run.html",
        "Run",
        rail="Run",
        refresh_s=5,
        home=True,
        is_there=lambda settings: bool(settings.report),
    ),
)
