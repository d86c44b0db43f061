"""SQL over topics: a statement, its rows, and how much of each topic it has read."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.console.exporting import MOST_ROWS
from ottla.console.page import (
    ConsoleExport,
    ConsolePage,
    ConsoleStream,
    Data,
    ExportWindow,
    StreamEvent,
    Visit,
)
from ottla.console.refusals import NotFound, Refused
from ottla.console.search_progress import FinishedSearches, events_of
from ottla.console.sql_query import SqlResult, has_sql, run_sql
from ottla.console.sql_statement import quoted_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ROWS: Final = 500
TOPICS: Final = 50
"""Topics that the page offers."""


async def sql(visit: Visit) -> Data:
    """The rows of the statement in the address; the topics where there is none."""
    text = visit.query.get("q", "").strip()
    topics = (await visit.cluster.snapshot()).topics.values()
    names = sorted(each.name for each in topics if not each.is_internal)
    data: Data = {
        "q": text,
        "committed": visit.query.get("committed") == "1",
        "tables": [[each, quoted_name(each)] for each in names[:TOPICS]],
        "number_of_topics": len(names),
        "result": None,
        "error": "",
    }
    if not text:
        return data
    try:
        kept = visit.cluster.part(FinishedSearches).take(visit)
        return data | {"result": kept or await run_sql(visit, text, ROWS)}
    except (NotFound, Refused) as error:
        status = error.status if isinstance(error, Refused) else 404
        return data | {"error": error.message, "http_status": status}


async def sql_progress(
    visit: Visit, _render: Callable[[str, Data], str]
) -> AsyncIterator[StreamEvent]:
    """Run the statement of a page; its process ends when the browser goes."""
    text = visit.query.get("q", "").strip()
    if not text or not has_sql(visit.settings):
        yield StreamEvent("end", "there is no statement here")
        return
    async with aclosing(events_of(visit, partial(run_sql, visit, text, ROWS))) as events:
        async for event in events:
            yield event


async def sql_windows(visit: Visit) -> AsyncIterator[ExportWindow]:
    """All rows of the statement, as far as an export goes, and what they leave out."""
    text = visit.query.get("q", "").strip()
    if not text:
        raise Refused("q= is missing: a SELECT over topics")
    found = await run_sql(visit, text, MOST_ROWS)
    types = {each.name: each.type for each in found.columns}
    yield ExportWindow(found.rows, notes_of(found), types=types)


def notes_of(found: SqlResult) -> list[str]:
    """What the rows of a result leave out."""
    notes = [f"stopped after {len(found.rows):,} rows"] if found.is_cut else []
    for each in found.topics:
        if not each["is_whole"]:
            notes.append(
                f"over the newest {each['read']:,} of {each['total']:,} records of {each['topic']}"
            )
        for number, error in each["errors"].items():
            notes.append(f"partition {number} of {each['topic']} could not be read: {error}")
    return notes


SQL_PAGES: Final = (
    ConsolePage("/sql", sql, "sql.html", "SQL", "SQL", home=True, is_there=has_sql),
)
SQL_STREAMS: Final = (ConsoleStream("/search/sql", sql_progress),)
SQL_EXPORT: Final = ConsoleExport("/sql", sql_windows, has_parquet=True, needs="q")
