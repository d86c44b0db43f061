"""The readers of a site, each a process of its own: `python -m ottla.site.readers NAME ...`.

Wing: processes that `ottla site` starts, and starts again when they have died. A reader knows the
brokers and its folder, and no other reader. It writes its progress to `status.json` there. Readers
need no group and commit no offsets: those that keep results keep their offsets with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla import Consumer, ConsumerRecord, TopicPartition
from ottla.clients.consumer.polls import polls_up_to
from ottla.pipelines.logged_request import request_of
from ottla.site.activity import INPUTS, LOGINS, PAGE_VIEWS, POSTS

POLL_WAIT_MS = 200


class TopicScan:
    """A consumer of one topic, from offsets that its caller keeps: no group, no commit.

    Partitions without an offset are read from their beginning.
    """

    def __init__(self, servers: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        self._consumer = Consumer(
            servers, isolation_level="read_committed", max_poll_records=10_000
        )
        self._partitions = [
            TopicPartition(topic, each.partition) for each in self._consumer.partitions_for(topic)
        ]
        self._consumer.assign(self._partitions)
        for partition in self._partitions:
            self._consumer.seek(partition, next_offsets.get(partition.partition, 0))

    def poll(self) -> list[ConsumerRecord]:
        """The next records; waits a moment for them."""
        return self._consumer.poll(timeout_ms=POLL_WAIT_MS)

    def rest(self) -> list[ConsumerRecord]:
        """All records up to the present end, partition by partition."""
        found = []
        ends = self._consumer.end_offsets(self._partitions)
        for records in polls_up_to(self._consumer, ends, POLL_WAIT_MS):
            found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def close(self) -> None:
        self._consumer.close()


LOGIN_TABLES = """
create table if not exists logins (person text primary key, count integer not null);
create table if not exists next_offsets (number integer primary key, offset integer not null);
"""


class LoginCounters:
    """How often each person has logged in, in SQLite: offsets commit in the same transaction.

    A crash between two transactions loses nothing, and one within a transaction counts nothing
    twice: counts and offsets are of one moment.
    """

    def __init__(self, servers: str, topic: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path)
        self._database.executescript(LOGIN_TABLES)
        self._reader = TopicScan(servers, topic, self.next_offsets)

    @property
    def next_offsets(self) -> dict[int, int]:
        """The offset of the first record of each partition that is not counted."""
        return dict(self._database.execute("select number, offset from next_offsets"))

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._database.execute("select person, count from logins"))

    @property
    def record_count(self) -> int:
        """The sum of all counters."""
        return sum(self.counts.values())

    def step(self) -> None:
        """Count the records of the next poll, in one transaction with its offsets."""
        records = self._reader.poll()
        if not records:
            return
        found = Counter(str(json.loads(record.value or b"{}").get("person")) for record in records)
        reached = {record.partition: record.offset + 1 for record in records}
        with self._database:
            self._database.executemany(
                "insert into logins values (?, ?) "
                "on conflict (person) do update set count = count + excluded.count",
                found.items(),
            )
            self._database.executemany(
                "insert or replace into next_offsets values (?, ?)", reached.items()
            )

    def close(self) -> ReaderProgress:
        """Read no more, and close the database, to which every step has committed."""
        self._reader.close()
        progress = ReaderProgress(self.next_offsets, self.record_count)
        self._database.close()
        return progress


SEGMENT: Final = "segment-{:06}.json"
WORD: Final = re.compile(r"\w+")


class Document(NamedTuple):
    """A post, and the record that it came in."""

    partition: int
    offset: int
    person: str
    text: str


class SearchIndex:
    """A search index over posts that keeps its offsets with its segments.

    Documents are collected in memory and written as a segment, after `documents` of them or
    `seconds`: one file with the documents, their words, and for each partition the offset that
    comes next. A crash loses the documents not written yet, and the offsets with them: the index
    reads these records again, so that it is never ahead of its offsets, nor behind them.
    """

    def __init__(
        self, servers: str, topic: str, folder: Path, *, documents: int = 200, seconds: float = 1.0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._limit = documents
        self._limit_s = seconds
        self._written_s = time.monotonic()
        self.documents: list[Document] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        self._fresh: list[Document] = []
        self._segments = 0
        self.next_offsets: dict[int, int] = {}
        for path in sorted(folder.glob(SEGMENT.format(0).replace("000000", "*"))):
            self._read(path)
        self._reader = TopicScan(servers, topic, self.next_offsets)
        self._reached = dict(self.next_offsets)

    @property
    def record_count(self) -> int:
        """The records in segments."""
        return len(self.documents)

    def step(self) -> None:
        """Read on, and write a segment when it is time."""
        for record in self._reader.poll():
            post: Mapping[str, Any] = json.loads(record.value or b"{}")
            text = f"{post.get('verb', '')} {post.get('object', '')}"
            who = str(post.get("actor", ""))
            self._fresh.append(Document(record.partition, record.offset, who, text))
            self._reached[record.partition] = record.offset + 1
        is_late = time.monotonic() - self._written_s >= self._limit_s
        if len(self._fresh) >= self._limit or (self._fresh and is_late):
            self.flush()

    def flush(self) -> None:
        """Write the documents in memory as a segment; it is there whole or not at all."""
        if not self._fresh:
            return
        path = self._folder / SEGMENT.format(self._segments + 1)
        segment = {"next_offsets": self._reached, "documents": self._fresh}
        fresh = path.with_suffix(".part")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(segment, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        self._fresh = []
        self._written_s = time.monotonic()
        self._read(path)

    def search(self, words: str) -> Iterator[Document]:
        """The documents that have all of these words, oldest first."""
        wanted = [self._places.get(word, []) for word in WORD.findall(words.lower())]
        common = set(wanted[0]).intersection(*wanted[1:]) if wanted else set()
        for place in sorted(common):
            yield self.documents[place]

    def close(self) -> ReaderProgress:
        """Write the last segment."""
        self.flush()
        self._reader.close()
        return ReaderProgress(dict(self.next_offsets), self.record_count)

    def abandon(self) -> None:
        """End as in a crash: the documents in memory are lost."""
        self._reader.close()

    def _read(self, path: Path) -> None:
        segment = json.loads(path.read_text(encoding="utf-8"))
        for document in segment["documents"]:
            for word in set(WORD.findall(document[-1].lower())):
                self._places[word].append(len(self.documents))
            self.documents.append(Document(*document))
        self.next_offsets = {int(key): value for key, value in segment["next_offsets"].items()}
        self._segments += 1


STATUS: Final = "status.json"
PAGE: Final = "site.html"
"""The report of a site, in its folder."""
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
class ReaderProgress:
    """How far a reader is: the next offset of each partition, and its own counts."""

    next_offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0
    late: int = 0

    def write(self, folder: Path) -> None:
        """Replace the file atomically."""
        fresh = folder / f"{STATUS}.part"
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(fresh, folder / STATUS)

    @classmethod
    def read(cls, folder: Path) -> ReaderProgress:
        """The reader's last status; empty where it has not written any yet."""
        path = folder / STATUS
        if not path.exists():
            return cls()
        found = json.loads(path.read_text(encoding="utf-8"))
        found["next_offsets"] = {int(key): each for key, each in found["next_offsets"].items()}
        return cls(**found)


class LateJoiner:
    """Comes when much has happened, and reads the page views from the beginning.

    It keeps nothing: started again, it reads all of them again, which are still in the log.
    """

    def __init__(self, servers: str) -> None:
        self.views: Counter[str] = Counter()
        self.next_offsets: dict[int, int] = {}
        self.record_count = 0
        self._reader = TopicScan(servers, PAGE_VIEWS, {})

    def step(self) -> None:
        for record in self._reader.poll():
            request = request_of(record.value)
            self.views[request.path if request is not None else ""] += 1
            self.next_offsets[record.partition] = record.offset + 1
            self.record_count += 1

    def close(self) -> ReaderProgress:
        """Read no more."""
        self._reader.close()
        return ReaderProgress(dict(self.next_offsets), self.record_count)


Reader = SearchIndex | LoginCounters | LateJoiner
READERS: Final[Mapping[str, Callable[[str, Path], Reader]]] = {
    SEARCH_INDEX: lambda servers, folder: SearchIndex(servers, POSTS, folder / SEGMENTS),
    LOGIN_COUNTERS: lambda servers, folder: LoginCounters(servers, LOGINS, folder / DATABASE),
    LATE_JOINER: lambda servers, folder: LateJoiner(servers),
}


def run(name: str, servers: str, folder: Path, is_over: Callable[[], bool]) -> None:
    """Be this reader until it is over; the status is written after the work."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = READERS[name](servers, folder)
    told_s = 0.0
    while not is_over():
        reader.step()
        if time.monotonic() - told_s >= STATUS_EVERY_S:
            told_s = time.monotonic()
            ReaderProgress(dict(reader.next_offsets), reader.record_count).write(folder)
    reader.close().write(folder)


def reader_parser(names: Collection[str]) -> argparse.ArgumentParser:
    """The arguments of a reader's process; without names it is all that run on Spark."""
    parser = argparse.ArgumentParser(description="A reader of the site's topics.")
    if names:
        parser.add_argument("name", choices=names)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--progress", action="store_true")
    return parser


def ended_by_signal() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set."""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, frame: over.set())
    return over


if __name__ == "__main__":
    given = reader_parser(READERS).parse_args()
    is_over = ended_by_signal().is_set
    run(given.name, given.bootstrap_server, given.folder / given.name, is_over)
