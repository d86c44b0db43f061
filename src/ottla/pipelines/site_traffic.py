"""Made-up traffic of a web site, as lines of its log: the same lines for the same seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
"""The moment that made-up events begin at, in every pipeline."""


def zipf_weights(count: int) -> list[float]:
    """Popularity by rank (Zipf): the second is half as popular as the first, the third a third."""
    return [1 / rank for rank in range(1, count + 1)]


DEFAULT_EVENTS = 100_000
DEFAULT_SEED = 2011
DURATION_S = 2 * 3600
PAGE_COUNT = 400
MISSING_PAGES = ("/wp-login.php", "/admin.php", "/old/index.html", "/.env", "/articles/drafts/7")
SECTIONS = ("articles", "blog", "projects", "talks", "notes")
WORDS = ("log", "stream", "offset", "broker", "record", "batch", "replica", "window", "table")
BROWSERS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/18.5 Safari/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
)
CRAWLERS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "ExampleSpider/1.3 (+https://spider.example/about)",
)
REFERRERS = ("-", "-", "https://search.example/?q=logs", "https://news.example/item?id=1729")
CRAWLER_SHARE = 0.12
BURST_SHARE = 0.10
BURST_FROM_S, BURST_UNTIL_S = 4200, 4500
NOT_FOUND_SHARE = 0.02
FAILED_SHARE = 0.004
NOT_MODIFIED_SHARE = 0.05
MEAN_PAGES_PER_SESSION = 6


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client of the site: an address, a program, and the seconds between two requests."""

    address: str
    user_agent: str
    referrer: str
    pause_s: float
    page: str | None = None  # the only page requested by those who follow a link


class SiteActivity:
    """A site and its visitors; `lines` yields the log that its server would have written.

    It is the same for the same seed. People read in sessions, popular pages more often than others
    (Zipf); some come in a burst, as when a page is linked to from somewhere big; crawlers go
    through the site, one of them far too fast. A few pages do not exist, and now and then the
    server fails. Times never go back.
    """

    def __init__(self, seed: int = DEFAULT_SEED, events: int = DEFAULT_EVENTS) -> None:
        self._random = random.Random(seed)
        self._events = events
        self._pages = self._site()
        # Zipf: the page of rank n is asked for n times less often than the first one.
        self._weights = list(accumulate(zipf_weights(len(self._pages))))

    def lines(self) -> Iterator[bytes]:
        """The lines, as many as asked for, in the order of their times."""
        return islice(self._merged(), self._events)

    def _site(self) -> list[str]:
        pages = ["/"]
        for number in range(1, PAGE_COUNT):
            section = self._random.choice(SECTIONS)
            word = self._random.choice(WORDS)
            pages.append(f"/{section}/{word}-{number}")
        return pages

    def _merged(self) -> Iterator[bytes]:
        """The sessions side by side: of all visitors, the one whose time comes first is next."""
        waiting: list[tuple[float, int, Visitor, int]] = []
        for number, (start_s, visitor, requests) in enumerate(self._sessions()):
            while waiting and waiting[0][0] <= start_s:
                yield self._step(waiting)
            heapq.heappush(waiting, (start_s, number, visitor, requests))
        while waiting:
            yield self._step(waiting)

    def _step(self, waiting: list[tuple[float, int, Visitor, int]]) -> bytes:
        now_s, number, visitor, left = waiting[0]
        if left > 1:
            pause_s = self._random.expovariate(1 / visitor.pause_s)
            heapq.heapreplace(waiting, (now_s + pause_s, number, visitor, left - 1))
        else:
            heapq.heappop(waiting)
        return self._line(now_s, visitor)

    def _sessions(self) -> Iterator[tuple[float, Visitor, int]]:
        """Start, visitor and number of requests of each session, in the order of the starts."""
        plan: list[tuple[float, Visitor, int]] = []
        planned = 0
        while planned < self._events:
            start_s, visitor, requests = self._session()
            plan.append((start_s, visitor, requests))
            planned += requests
        plan.sort(key=lambda session: session[0])
        return iter(plan)

    def _session(self) -> tuple[float, Visitor, int]:
        kind = self._random.random()
        start_s = self._random.uniform(0, DURATION_S)
        requests = 1 + int(self._random.expovariate(1 / MEAN_PAGES_PER_SESSION))
        if kind < CRAWLER_SHARE / 10:
            fast = self._random.random() < 0.2
            pause_s = 0.4 if fast else 6.0
            visitor = self._visitor(self._random.choice(CRAWLERS), "-", pause_s)
            return start_s, visitor, 10 * requests
        if kind < CRAWLER_SHARE / 10 + BURST_SHARE:
            start_s = self._random.triangular(BURST_FROM_S, BURST_UNTIL_S, BURST_FROM_S)
            page = self._pages[1]
            visitor = self._visitor(self._random.choice(BROWSERS), REFERRERS[-1], 20, page)
            return start_s, visitor, 1 + requests // 3
        referrer = self._random.choice(REFERRERS)
        return start_s, self._visitor(self._random.choice(BROWSERS), referrer, 25), requests

    def _visitor(
        self, user_agent: str, referrer: str, pause_s: float, page: str | None = None
    ) -> Visitor:
        # 198.18.0.0/15 is reserved for tests: no real client has such an address.
        number = self._random.randrange(1 << 17)
        address = f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        return Visitor(address, user_agent, referrer, pause_s, page)

    def _line(self, now_s: float, visitor: Visitor) -> bytes:
        chance = self._random.random()
        path = visitor.page or self._random.choices(self._pages, cum_weights=self._weights)[0]
        status, size = 200, str(2000 + int(self._random.expovariate(1 / 9000)))
        if chance < NOT_FOUND_SHARE:
            path, status, size = self._random.choice(MISSING_PAGES), 404, "209"
        elif chance < NOT_FOUND_SHARE + FAILED_SHARE:
            status, size = 500, "613"
        elif chance < NOT_FOUND_SHARE + FAILED_SHARE + NOT_MODIFIED_SHARE:
            status, size = 304, "-"
        time = (START + timedelta(seconds=int(now_s))).strftime("%d/%b/%Y:%H:%M:%S %z")
        return (
            f'{visitor.address} - - [{time}] "GET {path} HTTP/1.1" {status} {size} '
            f'"{visitor.referrer}" "{visitor.user_agent}"'
        ).encode()
