"""Lines of an access log as records: the bytes as they stand in the file, keyed by client.

`requests` reads the lines for feeds that publish something else than lines, as a web application
that publishes its own events does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.site_activity import SiteActivity

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
