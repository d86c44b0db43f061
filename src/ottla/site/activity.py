"""The activity of one site, published once: a topic for each kind of activity.

Topics that a pipeline reads have the schema of that pipeline's input. `generated` makes activity
up, the same for the same seed; `log_replay` takes it from an access log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from ottla.pipelines.logged_request import LoggedRequest, request_of
from ottla.pipelines.pipeline import Event, event
from ottla.pipelines.site_traffic import START, WORDS, SiteActivity

PAGE_VIEWS, SEARCHES, CLICKS = "page-views", "searches", "clicks"
POSTS, FOLLOWS, LOGINS, HOST_METRICS = "posts", "follows", "logins", "host-metrics"
TOPICS: Final = (PAGE_VIEWS, SEARCHES, CLICKS, POSTS, FOLLOWS, LOGINS, HOST_METRICS)
PARTITIONS: Final = 3

INPUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "news_feed": {"activities": POSTS, "follows": FOLLOWS},
    "ranking": {"interactions": CLICKS},
    "crawlers": {"requests": PAGE_VIEWS},
    "monitoring": {"metrics": HOST_METRICS},
}
"""The pipelines that read the site, and which of its topics is which of their inputs."""

PEOPLE, FOLLOWED = 200, 12
SEARCH_SHARE, CLICK_SHARE, VOTE_SHARE, POST_SHARE = 0.15, 0.25, 0.05, 0.1
VERBS: Final = {"posted": "photo", "liked": "photo", "joined": "group", "commented on": "article"}
HOSTS = tuple(f"web-{number}" for number in range(1, 4))
SAMPLE_EVERY = timedelta(seconds=10)
BUSY_FROM, BUSY_UNTIL = timedelta(seconds=2400), timedelta(seconds=2700)
BUSY_HOST = HOSTS[-1]
PACE_S, LONGEST_WAIT_S = 0.05, 30.0


class Happening(NamedTuple):
    """An event and its time on the site."""

    time: datetime
    event: Event


class Activity(NamedTuple):
    """The followers, known before anything happens, and the activities, in the order of time."""

    follows: list[Event]
    happenings: Iterator[Happening]


def generated(seed: int, page_views: int) -> Activity:
    """So many page views, and around them other acts of the same people."""
    site = _Site(seed)
    return Activity(site.follows(), site.happenings(SiteActivity(seed, page_views).lines()))


class _Site:
    """The people of a made-up site, its hosts, and the consequences of each page view."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"site {seed}")
        self._people = [f"person-{number}" for number in range(PEOPLE)]
        self._person_at: dict[str, str] = {}
        self._start: datetime | None = None
        self._next_sample: datetime | None = None

    def follows(self) -> list[Event]:
        """Each person follows a few others, and has from the beginning."""
        return [
            event(FOLLOWS, f"{follower}|{actor}", follower=follower, actor=actor, since=START)
            for follower in self._people
            for actor in self._chance.sample(self._people, FOLLOWED)
            if actor != follower
        ]

    def happenings(self, lines: Iterable[bytes]) -> Iterator[Happening]:
        for line in lines:
            request = request_of(line)
            assert request is not None, "a made-up line is a request"
            if self._start is None:
                self._start = self._next_sample = request.time
            yield from self._samples(request.time)
            view = Event(PAGE_VIEWS, request.client.encode(), line)
            yield Happening(request.time, view)
            for found in self._besides(request):
                yield Happening(request.time, found)

    def _samples(self, now: datetime) -> Iterator[Happening]:
        """The load of each host, every ten seconds; one host is too busy for five minutes."""
        assert self._start is not None
        assert self._next_sample is not None
        while self._next_sample <= now:
            moment, self._next_sample = self._next_sample, self._next_sample + SAMPLE_EVERY
            is_busy = BUSY_FROM <= moment - self._start < BUSY_UNTIL
            for host in HOSTS:
                mean = 96.0 if is_busy and host == BUSY_HOST else 35.0
                cpu = round(min(100.0, max(0.0, self._chance.gauss(mean, 3.0))), 1)
                fields = {"host": host, "metric": "cpu_percent", "value": cpu, "time": moment}
                yield Happening(moment, event(HOST_METRICS, host, **fields))

    def _besides(self, request: LoggedRequest) -> Iterator[Event]:
        """The acts of a visitor around a page view."""
        chance, now = self._chance, request.time
        person = self._person_at.get(request.client)
        if person is None:
            person = self._person_at[request.client] = chance.choice(self._people)
            yield event(LOGINS, person, person=person, client=request.client, time=now)
        if request.is_page:
            yield _click(request.path, "view", person, now)
            if chance.random() < CLICK_SHARE:
                yield _click(request.path, "click", person, now)
            if chance.random() < VOTE_SHARE:
                yield _click(request.path, "vote", person, now)
        if chance.random() < SEARCH_SHARE:
            words = " ".join(chance.sample(WORDS, 2))
            yield event(SEARCHES, person, person=person, words=words, time=now)
        if chance.random() < POST_SHARE:
            verb = chance.choice(list(VERBS))
            thing = f"{VERBS[verb]}-{chance.randrange(1000)}"
            yield event(POSTS, person, actor=person, verb=verb, object=thing, time=now)


def _click(item: str, kind: str, user: str, now: datetime) -> Event:
    return event(CLICKS, item, item=item, kind=kind, user=user, time=now)


def in_time(
    happenings: Iterable[Happening], speed: float, is_over: Callable[[], bool]
) -> Iterator[Event]:
    """The events at the pace of their times, `speed` times as fast; ends when it is over.

    The next event is waited for no longer than LONGEST_WAIT_S: a line with the time of a clock that
    was years ahead, or behind, would hold up the others for as long.
    """
    due_s = time.monotonic()
    before: datetime | None = None
    for each in happenings:
        if before is not None:
            due_s += min(LONGEST_WAIT_S, (each.time - before).total_seconds() / speed)
        before = each.time
        while due_s > time.monotonic() and not is_over():
            time.sleep(PACE_S)
        if is_over():
            return
        yield each.event
