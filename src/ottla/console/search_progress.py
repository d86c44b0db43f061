"""A search whose progress an open page shows, and which it can stop by going away.

The page follows a stream of events, `progress` and at last `done`; then it loads itself, and finds
the result of that search here.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from ottla.console.page import ConsoleStream, Data, StreamEvent, Visit
from ottla.console.record_query import RecordQuery, record_query
from ottla.console.record_search import search
from ottla.console.refusals import NotFound, Refused
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.newest_first import FoundRecords

MOST_KEPT: Final = 8
KEPT_MS: Final = 10_000
RECORDS_OF_A_PAGE: Final = 50
MOST_RECORDS_OF_A_PAGE: Final = 500

SearchKey = tuple[str, frozenset[tuple[str, str]]]


class FinishedSearches:
    """Results that their pages have not fetched yet; each is handed out once, for some seconds."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._clock = cluster.runtime.clock
        self._found: dict[SearchKey, tuple[int, FoundRecords]] = {}

    def keep(self, visit: Visit, found: FoundRecords) -> None:
        """Keep the result of a search; the oldest goes where there are too many."""
        self._found[_key(visit)] = (self._clock.monotonic_ms(), found)
        while len(self._found) > MOST_KEPT:
            del self._found[next(iter(self._found))]

    def take(self, visit: Visit) -> FoundRecords | None:
        """The result of the same search, if it has just ended."""
        at_ms, found = self._found.pop(_key(visit), (0, None))
        return found if self._clock.monotonic_ms() - at_ms < KEPT_MS else None


def _key(visit: Visit) -> SearchKey:
    fields = frozenset(each for each in visit.query.items() if each[1] and each[0] != "last")
    return str(visit.place["topic"]), fields


async def progress(visit: Visit, _render: Callable[[str, Data], str]) -> AsyncIterator[StreamEvent]:
    """Run the search of a page; the worker ends when the browser goes."""
    try:
        if visit.settings.hide_records:
            raise Refused("records are hidden", 403)
        count = visit.number("count", RECORDS_OF_A_PAGE, 1, MOST_RECORDS_OF_A_PAGE)
        query = await record_query(visit)
        async with aclosing(_searching(visit, query, count)) as states:
            async for state in states:
                yield StreamEvent("progress", json.dumps(state | {"total": query.total}))
    except (Refused, NotFound, KafkaError) as error:
        yield StreamEvent("end", error.message)
    else:
        yield StreamEvent("done", "{}")


async def _searching(
    visit: Visit, query: RecordQuery, count: int
) -> AsyncGenerator[dict[str, int], None]:
    """How far a search is, until it has ended and its result is kept."""
    said: asyncio.Queue[dict[str, int]] = asyncio.Queue()
    masks = visit.settings.masks
    yield {"read": 0}
    task = asyncio.create_task(search(visit.cluster, masks, query, count, said.put_nowait))
    waiting = asyncio.create_task(said.get())
    try:
        while not task.done():
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield waiting.result()
                waiting = asyncio.create_task(said.get())
        visit.cluster.part(FinishedSearches).keep(visit, task.result())
    finally:
        task.cancel()
        waiting.cancel()
        await asyncio.wait((task, waiting))


SEARCH_STREAMS: Final = (ConsoleStream("/search/t/{topic}", progress),)
