"""The ledger of a site: of each reader, whether its result has every record, and each one once.

Wing: reads topics and the readers' own files, in plain Python and without Spark, so that the
readers' results are computed here a second time by other means.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ottla import ConsumerRecord
from ottla.pipelines.logged_request import request_of
from ottla.site.activity import CLICKS, FOLLOWS, HOST_METRICS, LOGINS, PAGE_VIEWS, POSTS
from ottla.site.readers import (
    DATABASE,
    LATE_JOINER,
    LOGIN_COUNTERS,
    SEARCH_INDEX,
    SEGMENTS,
    TABLE,
    TOPIC_OF,
    WAREHOUSE,
    ReaderProgress,
    TopicScan,
)
from ottla.warehouse.delta import open_delta
from ottla.warehouse.table_location import Place

CRAWLER_LIMIT: Final = 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One reader: its due, its results, and those that are missing or there twice.

    `what` are the things that are counted: records, or the reader's results.
    """

    reader: str
    topic: str
    published: int
    what: str
    expected: int
    found: int
    lost: int
    doubled: int

    @property
    def is_right(self) -> bool:
        return self.lost == self.doubled == 0 and self.expected == self.found


class Ledger:
    """Reads the topics of a site and the results in its folder; nothing is cached on disk."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._read: dict[str, list[ConsumerRecord]] = {}

    def entries(self) -> Iterator[Entry]:
        """One for each reader."""
        checks: Mapping[str, Callable[[], tuple[str, Counter[Any], Counter[Any]]]] = {
            SEARCH_INDEX: self._search_index,
            LOGIN_COUNTERS: self._login_counters,
            LATE_JOINER: self._late_joiner,
            WAREHOUSE: self._warehouse,
            "news_feed": self._news_feed,
            "ranking": self._ranking,
            "crawlers": self._crawlers,
            "monitoring": self._monitoring,
        }
        for reader, check in checks.items():
            what, expected, found = check()
            topic = TOPIC_OF[reader]
            yield Entry(
                reader,
                topic,
                len(self._records(topic)),
                what,
                expected.total(),
                found.total(),
                (expected - found).total(),
                (found - expected).total(),
            )

    # Each check returns the counted things, how often each thing should be there, and how often it
    # is.

    def _search_index(self) -> tuple[str, Counter[Any], Counter[Any]]:
        documents = [
            document
            for path in sorted((self._folder / SEARCH_INDEX / SEGMENTS).glob("*.json"))
            for document in json.loads(path.read_text(encoding="utf-8"))["documents"]
        ]
        found = Counter((document[0], document[1]) for document in documents)
        return "documents", self._places(POSTS), found

    def _login_counters(self) -> tuple[str, Counter[Any], Counter[Any]]:
        import sqlite3

        expected = Counter(fields["person"] for fields in self._objects(LOGINS))
        with closing(sqlite3.connect(self._folder / LOGIN_COUNTERS / DATABASE)) as database:
            found = Counter(dict(database.execute("select person, count from logins")))
        return "logins", expected, found

    def _late_joiner(self) -> tuple[str, Counter[Any], Counter[Any]]:
        count = ReaderProgress.read(self._folder / LATE_JOINER).records
        return "page views", Counter(len(self._records(PAGE_VIEWS)) * [0]), Counter(count * [0])

    def _warehouse(self) -> tuple[str, Counter[Any], Counter[Any]]:
        table = open_delta(Place.of(self._folder / WAREHOUSE / TABLE))
        rows = table.to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
        found = Counter((row["partition"], row["offset"]) for row in rows)
        return "rows", self._places(PAGE_VIEWS), found

    def _news_feed(self) -> tuple[str, Counter[Any], Counter[Any]]:
        followers: dict[str, list[tuple[str, datetime]]] = defaultdict(list)
        for follow in _newest(self._records(FOLLOWS)).values():
            fields = json.loads(follow)
            since = datetime.fromisoformat(fields["since"])
            followers[fields["actor"]].append((fields["follower"], since))
        expected = Counter(
            (follower, post["actor"], post["verb"], post["object"], _moment(post["time"]))
            for post in self._objects(POSTS)
            for follower, since in followers[post["actor"]]
            if _moment(post["time"]) >= since
        )
        names = ("follower", "actor", "verb", "object")
        found = Counter(
            (*(entry[name] for name in names), _moment(entry["time"]))
            for entry in self._objects("feed")
        )
        return "feed entries", expected, found

    def _ranking(self) -> tuple[str, Counter[Any], Counter[Any]]:
        kinds = {"view": "views", "click": "clicks", "vote": "votes"}
        expected: Counter[Any] = Counter()
        for click in self._objects(CLICKS):
            hour = _moment(click["time"]).replace(minute=0, second=0, microsecond=0)
            expected[click["item"], hour, kinds[click["kind"]]] += 1
        newest = {(row["item"], row["hour"]): row for row in self._objects("ranking-counts")}
        found: Counter[Any] = Counter()
        for row in newest.values():
            for name in kinds.values():
                found[row["item"], _moment(row["hour"]), name] += row[name]
        return "clicks", expected, found

    def _crawlers(self) -> tuple[str, Counter[Any], Counter[Any]]:
        per_minute: Counter[Any] = Counter()
        for record in self._records(PAGE_VIEWS):
            request = request_of(record.value)
            if request is not None:
                per_minute[request.client, request.time.replace(second=0, microsecond=0)] += 1
        expected = Counter({key: n for key, n in per_minute.items() if n > CRAWLER_LIMIT})
        newest = {
            (row["client"], _moment(row["minute"])): row["requests"]
            for row in self._objects("blocklist")
            if row["rule"] == "crawler"
        }
        return "requests over the limit", expected, Counter(newest)

    def _monitoring(self) -> tuple[str, Counter[Any], Counter[Any]]:
        expected = Counter(
            (sample["host"], sample["metric"], _moment(sample["time"]).replace(second=0))
            for sample in self._objects(HOST_METRICS)
        )
        newest = {
            (row["host"], row["metric"], _moment(row["minute"])): row["samples"]
            for row in self._objects("metrics-per-minute")
        }
        return "samples", expected, Counter(newest)

    def _places(self, topic: str) -> Counter[Any]:
        return Counter((record.partition, record.offset) for record in self._records(topic))

    def _objects(self, topic: str) -> Iterator[dict[str, Any]]:
        for record in self._records(topic):
            yield json.loads(record.value or b"{}")

    def _records(self, topic: str) -> list[ConsumerRecord]:
        if topic not in self._read:
            self._read[topic] = read_topic(self._servers, topic)
        return self._read[topic]


def read_topic(servers: str, topic: str) -> list[ConsumerRecord]:
    """All records of committed transactions, partition by partition."""
    with closing(TopicScan(servers, topic, {})) as reader:
        return reader.rest()


def _newest(records: list[ConsumerRecord]) -> dict[bytes, bytes]:
    """The last value of each key."""
    newest = {}
    for record in records:
        if record.key is not None and record.value is not None:
            newest[record.key] = record.value
    return newest


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
