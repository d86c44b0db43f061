"""Counters in SQLite whose offsets commit in the same transaction.

Wing: reads one topic of the site, and works with any broker. A crash between two transactions loses
nothing, and one within a transaction counts nothing twice: counts and offsets are of one moment.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path

from ottla.site.topic_reader import TopicReader

TABLES = """
create table if not exists logins (person text primary key, count integer not null);
create table if not exists next_offsets (number integer primary key, offset integer not null);
"""


class LoginCounters:
    """How often each person has logged in."""

    def __init__(self, servers: str, topic: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path)
        self._database.executescript(TABLES)
        self._reader = TopicReader(servers, topic, self.next_offsets)

    @property
    def next_offsets(self) -> dict[int, int]:
        """For each partition the offset of the first record that is not counted."""
        return dict(self._database.execute("select number, offset from next_offsets"))

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._database.execute("select person, count from logins"))

    @property
    def record_count(self) -> int:
        """The sum of all counters."""
        return sum(self.counts.values())

    def step(self) -> None:
        """Count what the next poll brings, in one transaction with its offsets."""
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

    def close(self) -> None:
        """Read no more; every step has committed, and the counters can still be asked."""
        self._reader.close()
