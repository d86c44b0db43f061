"""What became of each row, message, line and record: in its topic or sink, or reported."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Set
from typing import NamedTuple

import pyarrow.parquet
from numbered_data import LogWriter, MessageWriter
from real_world import DEAD, EVENTS, IN_A_FILE, LINES, MESSAGES, ORDERS, RAW, RealWorld

from ottla import Consumer, TopicPartition
from ottla.record.consumer_record import ConsumerRecord

Place = tuple[str, int, int]
READ = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
HEADER = "__connect.errors."


class Account(NamedTuple):
    """One line of the ledger."""

    name: str
    there: int
    """What was to be brought."""
    brought: int
    reported: int
    twice: int
    waiting: int
    """Not in a file yet, as a file is not full; or lost as the page of the connector says."""
    missing: list[Hashable]

    def row(self) -> str:
        counts = (self.there, self.brought, self.reported, self.twice, self.waiting)
        numbers = "".join(f"{count:>10}" for count in (*counts, len(self.missing)))
        some = f"  {self.missing[:5]}" if self.missing else ""
        return f"{self.name:<14}{numbers}{some}"


def account(
    name: str,
    there: Iterable[Hashable],
    brought: Counter[Hashable],
    reported: Set[Hashable] = frozenset(),
    excused: Set[Hashable] = frozenset(),
) -> Account:
    wanted = set(there)
    left = wanted - brought.keys() - reported
    return Account(
        name,
        len(wanted),
        len(wanted & brought.keys()),
        len(wanted & set(reported)),
        sum(count - 1 for count in brought.values()),
        len(left & excused),
        sorted(left - excused, key=str),
    )


class Ledger:
    """Reads everything again and again; `accounts` is the newest."""

    def __init__(self, world: RealWorld, messages: MessageWriter, lines: LogWriter) -> None:
        self._world, self._messages, self._lines = world, messages, lines
        self.accounts: list[Account] = []

    def look(self) -> bool:
        """Whether nothing is missing."""
        topics = {name: self._records(name) for name in (EVENTS, ORDERS, MESSAGES, LINES, RAW)}
        log = self._world.log
        self.accounts = [*self._of_sources(topics, log), *self._of_sinks(topics)]
        return not any(each.missing for each in self.accounts)

    def table(self) -> str:
        titles = ("there", "brought", "reported", "twice", "waiting", "missing")
        head = f"{'':<14}" + "".join(f"{title:>10}" for title in titles)
        return "\n".join(["", head, *(each.row() for each in self.accounts)])

    def __getitem__(self, name: str) -> Account:
        return next(each for each in self.accounts if each.name == name)

    # Sources

    def _of_sources(self, topics: dict[str, list[ConsumerRecord]], log: str) -> list[Account]:
        world = self._world
        events = [payload["id"] for payload in _payloads(topics[EVENTS])]
        orders = [(row["id"], row["version"]) for row in _payloads(topics[ORDERS])]
        messages = [int(str(text).split()[-1]) for text in _payloads(topics[MESSAGES])]
        lines = [
            found[0]
            for text in _payloads(topics[LINES])
            if (found := re.match(r"host\d+:\d+", str(text)))
        ]
        ids = [row[0] for row in world.postgres.execute("SELECT id FROM events")]
        of_orders = list(world.mariadb.execute("SELECT id, version FROM orders"))
        odd_orders = _numbers(r"table orders, id=(\d+)", log)
        reported = {row for row in of_orders if row[0] in odd_orders}
        told = set(re.findall(r"/(host\d+)/app\.log: was emptied, or is another file", log))
        excused = {line for line in self._lines.compressed if line.partition(":")[0] in told}
        return [
            account("events", ids, Counter(events), _numbers(r"events, id='?(\d+)", log)),
            account("orders", of_orders, Counter(orders), reported),
            account(
                "messages",
                self._messages.acknowledged,
                Counter(messages),
                _numbers(r"a message of m/(\d+) must", log),
            ),
            account("lines", set(self._lines.written), Counter(lines), set(), excused),
        ]

    # Sinks

    def _of_sinks(self, topics: dict[str, list[ConsumerRecord]]) -> list[Account]:
        found = []
        for name, config in self._world.connectors().items():
            if "topics" not in config:
                continue
            records = [each for topic in config["topics"].split(",") for each in topics[topic]]
            dead = self._dead_letters(name)
            if config["connector.class"] == "SqlSink":
                brought, excused = self._rows_of(name, records), set()
            else:
                brought = self._in_files(config)
                excused = _unfilled(records, brought)
            places = [_place(each) for each in records]
            found.append(account(name, places, brought, dead, excused))
        return found

    def _rows_of(self, name: str, records: list[ConsumerRecord]) -> Counter[Hashable]:
        """The places of records of which there is a row, of the same version or a newer one."""
        world = self._world
        execute = (
            world.mariadb.execute
            if name in ("events-copy", "raw-mariadb")
            else world.postgres.execute
        )
        queries = {
            "events-copy": "SELECT id, 0 FROM events_copy",
            "orders-copy": "SELECT id, version FROM orders_copy",
        }
        versions = dict(execute(queries.get(name, "SELECT n, 0 FROM raw")))
        found: Counter[Hashable] = Counter()
        for record in records:
            row = _payload(record)
            if isinstance(row, dict):
                number, version = row.get("id", row.get("n")), row.get("version", 0)
                if version <= versions.get(number, -1):
                    found[_place(record)] += 1
        return found

    def _in_files(self, config: dict[str, str]) -> Counter[Hashable]:
        folder = self._world.folder / config["url"].rpartition("/")[2]
        found: Counter[Hashable] = Counter()
        for file in folder.rglob(f"*.{config['format']}"):
            if file.name[0] == ".":
                continue
            if config["format"] == "jsonl":
                rows = [json.loads(line) for line in file.read_text().splitlines()]
            else:
                names = ["__topic", "__partition", "__offset"]
                rows = pyarrow.parquet.read_table(
                    file, partitioning=None, columns=names
                ).to_pylist()
            for row in rows:
                found[row["__topic"], row["__partition"], row["__offset"]] += 1
        return found

    def _dead_letters(self, sink: str) -> set[Hashable]:
        found: set[Hashable] = set()
        for record in self._records(DEAD + sink):
            about = {key: (value or b"").decode() for key, value in record.headers}
            place = (about[HEADER + each] for each in ("topic", "partition", "offset"))
            topic, partition, offset = place
            found.add((topic, int(partition), int(offset)))
        return found

    def _records(self, topic: str) -> list[ConsumerRecord]:
        """All committed records of a topic."""
        with Consumer(self._world.servers, READ) as consumer:
            if topic not in consumer.list_topics():
                return []
            places = [
                TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)
            ]
            consumer.assign(places)
            consumer.seek_to_beginning(places)
            ends = consumer.end_offsets(places)
            found: list[ConsumerRecord] = []
            while any(consumer.position(place) < end for place, end in ends.items()):
                found += consumer.poll(500)
            return found


def _unfilled(records: list[ConsumerRecord], brought: Counter[Hashable]) -> set[Hashable]:
    """The last records of each partition, behind all that is in a file: no file is full of them."""
    last: dict[tuple[str, int], int] = {}
    for topic, partition, offset in brought:  # type: ignore[misc]
        last[topic, partition] = max(offset, last.get((topic, partition), -1))
    found: set[Hashable] = set()
    for place in {(each.topic, each.partition) for each in records}:
        behind = [
            _place(each)
            for each in records
            if (each.topic, each.partition) == place and each.offset > last.get(place, -1)
        ]
        found.update(behind[-IN_A_FILE:])
    return found


def _place(record: ConsumerRecord) -> Place:
    return (record.topic, record.partition, record.offset)


def _payload(record: ConsumerRecord) -> object:
    try:
        value = json.loads(record.value or b"null")
    except ValueError:
        return None
    is_with_schema = isinstance(value, dict) and value.keys() == {"schema", "payload"}
    return value["payload"] if is_with_schema else value


def _payloads(records: list[ConsumerRecord]) -> list[object]:
    return [_payload(each) for each in records]


def _numbers(pattern: str, log: str) -> set[Hashable]:
    return {int(found) for found in re.findall(pattern, log)}
