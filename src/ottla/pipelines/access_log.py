"""Lines of an access log as records, keyed by client: those of a file, or made-up ones.

Lines are the bytes as they stand in the file. `requests` reads them for feeds that publish
something else than lines, as a web application that publishes its own events does. `SiteActivity`
makes up the traffic of a web site: lines in combined log format.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.pipeline import START, zipf_weights

QUOTED = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(
    rf"(\S+) \S+ \S+ \[([^]]+)\] {QUOTED} (\d{{3}}) (\d+|-) {QUOTED} {QUOTED}\s*", re.DOTALL
)
REQUEST = re.compile(r"([A-Z]+) (\S+) HTTP/[0-9.]+")
TIME_FORMAT = "%d/%b/%Y:%H:%M:%S %z"
ASSET = re.compile(r"\.(?:css|js|png|jpe?g|gif|ico|svg|webp|woff2?|ttf|map)$", re.IGNORECASE)
FIRST_ERROR_STATUS = 400


class LogLine(NamedTuple):
    """One record to publish: `value` is the line without its end, `key` its client's address."""

    key: bytes
    value: bytes


class LoggedRequest(NamedTuple):
    """The request in a line; its path is without the query."""

    client: str
    time: datetime
    method: str
    path: str
    status: int
    size: int
    referrer: str

    @property
    def is_page(self) -> bool:
        """Whether a page was served: images, styles and scripts are none."""
        return self.status < FIRST_ERROR_STATUS and not ASSET.search(self.path)


def read_lines(path: Path) -> Iterator[LogLine]:
    """Every line of a file; bytes that are not text are kept. The last line may lack its end."""
    with path.open("rb") as file:
        yield from log_lines(file)


def log_lines(lines: Iterable[bytes]) -> Iterator[LogLine]:
    """Lines as records; the requests of one client share a key, so they stay in order."""
    for line in lines:
        value = line.rstrip(b"\r\n")
        yield LogLine(value.partition(b" ")[0], value)


def lines_of(log: Path | None, seed: int, events: int) -> Iterator[LogLine]:
    """The lines of a log, or of made-up traffic where there is none."""
    return log_lines(SiteActivity(seed, events).lines()) if log is None else read_lines(log)


def requests(lines: Iterable[LogLine]) -> Iterator[LoggedRequest]:
    """The lines that are requests in combined format, in their order; others are left out."""
    for line in lines:
        request = request_of(line.value.decode("utf-8", "replace"))
        if request is not None:
            yield request


def request_of(line: str) -> LoggedRequest | None:
    """The request in a line; None where it has none."""
    found = LINE.fullmatch(line)
    asked = REQUEST.fullmatch(found[3]) if found else None
    if found is None or asked is None:
        return None
    try:
        time = datetime.strptime(found[2], TIME_FORMAT)
    except ValueError:
        return None
    size = 0 if found[5] == "-" else int(found[5])
    path = asked[2].partition("?")[0]
    return LoggedRequest(found[1], time, asked[1], path, int(found[4]), size, found[6])


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
        """As many lines as asked for, in the order of their times."""
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
