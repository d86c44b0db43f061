"""A search or a statement whose progress an open page shows, and which it stops by going away.

The page follows a stream of events, `progress` and at last `done`; then it loads itself, and finds
the result, or the reason why there is none, here.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from ottla.console.page import ConsoleStream, Data, StreamEvent, Visit
from ottla.console.record_query import record_query
from ottla.console.record_search import search
from ottla.console.refusals import NotFound, Refused
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

    from ottla.console.console_cluster import ConsoleCluster

MOST_KEPT: Final = 8
KEPT_MS: Final = 10_000
RECORDS_OF_A_PAGE: Final = 50
MOST_RECORDS_OF_A_PAGE: Final = 500
WHY_NOT: Final = (Refused, NotFound, KafkaError)

SearchKey = tuple[str, frozenset[tuple[str, str]]]


class FinishedSearches:
    """Results that their pages have not fetched yet; each is handed out once, for some seconds."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._clock = cluster.runtime.clock
        self._found: dict[SearchKey, tuple[int, Any]] = {}

    def keep(self, visit: Visit, found: Any) -> None:
        """Keep a result, or the error in its place; the oldest goes where there are too many."""
        now_ms = self._clock.monotonic_ms()
        self._found = {key: it for key, it in self._found.items() if now_ms - it[0] < KEPT_MS}
        self._found[_key(visit)] = (now_ms, found)
        while len(self._found) > MOST_KEPT:
            del self._found[next(iter(self._found))]

    def take(self, visit: Visit) -> Any:
        """The result of the same search, if it has just ended, else None; its error is raised."""
        at_ms, found = self._found.pop(_key(visit), (0, None))
        if self._clock.monotonic_ms() - at_ms >= KEPT_MS:
            return None
        if isinstance(found, Exception):
            raise found
        return found


def _key(visit: Visit) -> SearchKey:
    fields = frozenset(each for each in visit.query.items() if each[1] and each[0] != "last")
    return str(visit.place.get("topic", "")), fields


async def progress(visit: Visit, _render: Callable[[str, Data], str]) -> AsyncIterator[StreamEvent]:
    """Run the search of a page; the worker ends when the browser goes."""
    try:
        if visit.settings.hide_records:
            raise Refused("records are hidden", 403)
        count = visit.number("count", RECORDS_OF_A_PAGE, 1, MOST_RECORDS_OF_A_PAGE)
        query = await record_query(visit)
    except WHY_NOT as error:
        yield StreamEvent("end", error.message)
        return

    def run(on_progress: Callable[[dict[str, int]], object]) -> Coroutine[Any, Any, Any]:
        return search(visit.cluster, visit.settings.masks, query, count, on_progress)

    async with aclosing(events_of(visit, run, query.total)) as events:
        async for event in events:
            yield event


async def events_of(
    visit: Visit,
    run: Callable[[Callable[[dict[str, int]], object]], Coroutine[Any, Any, Any]],
    total: int = 0,
) -> AsyncGenerator[StreamEvent]:
    """The events of work that says how much it has read, until its end is kept for the page."""
    said: asyncio.Queue[dict[str, int]] = asyncio.Queue()
    yield progress_event({"read": 0, "total": total})
    task = asyncio.create_task(run(said.put_nowait))
    waiting = asyncio.create_task(said.get())
    try:
        while not task.done():
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                yield progress_event({"total": total} | waiting.result())
                waiting = asyncio.create_task(said.get())
        error = task.exception()
        is_known = isinstance(error, WHY_NOT)
        visit.cluster.part(FinishedSearches).keep(visit, error if is_known else task.result())
    finally:
        task.cancel()
        waiting.cancel()
        await asyncio.wait((task, waiting))
    yield StreamEvent("done", "{}")


def progress_event(said: dict[str, int]) -> StreamEvent:
    """How much was read, of how much."""
    return StreamEvent("progress", json.dumps(said))


SEARCH_STREAMS: Final = (ConsoleStream("/search/t/{topic}", progress),)
