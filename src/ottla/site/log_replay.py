"""The content of an access log as the activity of a site; nothing is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.monitoring import from_log as metrics_of
from ottla.pipelines.news_feed import from_log as posts_of
from ottla.pipelines.pipeline import Event, FeedRequest
from ottla.pipelines.ranking import from_log as clicks_of
from ottla.site.activity import FOLLOWS, INPUTS, PAGE_VIEWS, Activity, Happening


def replayed(log: AccessLog) -> Activity:
    """The content of an access log: page views, clicks, what people read, and the load of the site.

    It knows no searches and no logins, so there are none. A line that is no request has the time of
    the one before it. All lines are read then, and the ledger of the log has them.
    """
    names = {own: topic for inputs in INPUTS.values() for own, topic in inputs.items()}
    events = [
        each._replace(topic=names[each.topic])
        for feed in (posts_of, clicks_of, metrics_of)
        for each in feed(FeedRequest(0, 0, AccessLog(log.path)))
    ]
    happenings = [
        *_page_views(log),
        *(Happening(_time_of(each), each) for each in events if each.topic != FOLLOWS),
    ]
    happenings.sort(key=lambda each: each.time)
    return Activity([each for each in events if each.topic == FOLLOWS], iter(happenings))


def _page_views(log: AccessLog) -> Iterator[Happening]:
    """The lines as they are; those before the first request have its time."""
    waiting: list[Event] = []
    now: datetime | None = None
    for line in log.lines():
        now = line.request.time if line.request is not None else now
        waiting.append(Event(PAGE_VIEWS, line.key, line.value))
        if now is not None:
            yield from (Happening(now, each) for each in waiting)
            waiting = []


def _time_of(each: Event) -> datetime:
    assert each.value is not None, f"an event of {each.topic} is an object"
    return datetime.fromisoformat(json.loads(each.value)["time"])
