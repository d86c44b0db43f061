"""The readers of a site, each a process of its own: `python -m ottla.site.readers NAME ...`.

Wing: what `ottla site` starts, and starts again when it has died. A reader knows the brokers and
its folder, and no other reader. It tells how far it is in `status.json` there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from ottla.pipelines.access_log import request_of
from ottla.site.activity import INPUTS, LOGINS, PAGE_VIEWS, POSTS
from ottla.site.login_counters import LoginCounters
from ottla.site.search_index import SearchIndex
from ottla.site.topic_reader import TopicReader

STATUS: Final = "status.json"
STATUS_EVERY_S: Final = 0.5
SEARCH_INDEX, LOGIN_COUNTERS, LATE_JOINER = "search-index", "login-counters", "late-joiner"
WAREHOUSE: Final = "warehouse"
TABLE: Final = "table"
DATABASE: Final = "logins.sqlite"
SEGMENTS: Final = "segments"

TOPIC_OF: Final[Mapping[str, str]] = {
    SEARCH_INDEX: POSTS,
    LOGIN_COUNTERS: LOGINS,
    LATE_JOINER: PAGE_VIEWS,
    WAREHOUSE: PAGE_VIEWS,
    **{name: next(topic for topic in inputs.values()) for name, inputs in INPUTS.items()},
}
"""The topic whose records each reader reads; tables that it looks up besides are not named."""


@dataclass(slots=True)
class Status:
    """How far a reader is: the next offset of each partition, and what it has counted itself."""

    next_offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0
    late: int = 0

    def write(self, folder: Path) -> None:
        """Replace the file atomically."""
        fresh = folder / f"{STATUS}.part"
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(fresh, folder / STATUS)

    @classmethod
    def read(cls, folder: Path) -> Status:
        """What the reader told last; nothing where it has not told anything yet."""
        path = folder / STATUS
        if not path.exists():
            return cls()
        found = json.loads(path.read_text(encoding="utf-8"))
        found["next_offsets"] = {int(key): each for key, each in found["next_offsets"].items()}
        return cls(**found)


class LateJoiner:
    """Comes when much has happened, and reads the page views from the beginning.

    It keeps nothing: when it is started again it begins anew, as the log still has everything.
    """

    def __init__(self, servers: str) -> None:
        self.views: Counter[str] = Counter()
        self.next_offsets: dict[int, int] = {}
        self.record_count = 0
        self._reader = TopicReader(servers, PAGE_VIEWS, {})

    def step(self) -> None:
        for record in self._reader.poll():
            request = request_of((record.value or b"").decode("utf-8", "replace"))
            self.views[request.path if request is not None else ""] += 1
            self.next_offsets[record.partition] = record.offset + 1
            self.record_count += 1

    def close(self) -> None:
        self._reader.close()


Reader = SearchIndex | LoginCounters | LateJoiner
READERS: Final[Mapping[str, Callable[[str, Path], Reader]]] = {
    SEARCH_INDEX: lambda servers, folder: SearchIndex(servers, POSTS, folder / SEGMENTS),
    LOGIN_COUNTERS: lambda servers, folder: LoginCounters(servers, LOGINS, folder / DATABASE),
    LATE_JOINER: lambda servers, folder: LateJoiner(servers),
}


def run(name: str, servers: str, folder: Path, is_over: Callable[[], bool]) -> None:
    """Be this reader until it is over; the status is written after what it tells of."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = READERS[name](servers, folder)
    told_s = 0.0
    while not is_over():
        reader.step()
        if time.monotonic() - told_s >= STATUS_EVERY_S:
            told_s = time.monotonic()
            Status(dict(reader.next_offsets), reader.record_count).write(folder)
    reader.close()
    Status(dict(reader.next_offsets), reader.record_count).write(folder)


def reader_arguments(names: Collection[str]) -> argparse.Namespace:
    """What a reader's process was given; without names it is all that run on Spark."""
    parser = argparse.ArgumentParser(description="A reader of the site's topics.")
    if names:
        parser.add_argument("name", choices=names)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--master", default="local[2]")
    return parser.parse_args()


def ended_by_signal() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set."""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, frame: over.set())
    return over


if __name__ == "__main__":
    given = reader_arguments(READERS)
    is_over = ended_by_signal().is_set
    run(given.name, given.bootstrap_server, given.folder / given.name, is_over)
