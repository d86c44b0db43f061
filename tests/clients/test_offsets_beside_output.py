"""Consumers that keep their offset where their output is, so that both are of the same moment."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

import ottla

VISITS = [f"member-{number * 7 % 5}" for number in range(60)]


@pytest.fixture
def visits(broker, unique):
    """A topic of one partition with the visits in their order."""
    name = unique("visits")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 1)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for member in VISITS:
            producer.send(name, member.encode())
    return ottla.TopicPartition(name, 0)


class PowerCutError(Exception):
    """What ends a process in these tests."""


def records(broker, where, start, end):
    """The records from an offset on; `end` of them are there. No group is used."""
    with ottla.Consumer(broker.bootstrap_servers, enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.seek(where, start)
        while consumer.position(where) < end:
            yield from consumer.poll(1)


class VisitCounter:
    """An OLTP consumer: counters and the next offset change in the same transaction of a database.

    It loses its power before it commits the transaction of the record at `cut_at`.
    """

    def __init__(self, path, broker, where, cut_at=None):
        self.broker, self.where, self.cut_at = broker, where, cut_at
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS counts (member PRIMARY KEY, n)")
        self.database.execute("CREATE TABLE IF NOT EXISTS next (topic PRIMARY KEY, offset)")

    def run(self):
        found = self.database.execute("SELECT offset FROM next").fetchone()
        try:
            for record in records(self.broker, self.where, found[0] if found else 0, len(VISITS)):
                with self.database:  # a transaction
                    self.count(record)
        finally:
            self.database.close()

    def count(self, record):
        self.database.execute(
            "INSERT INTO counts VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1",
            (record.value.decode(),),
        )
        if record.offset == self.cut_at:
            raise PowerCutError
        self.database.execute(
            "INSERT OR REPLACE INTO next VALUES (?, ?)", (record.topic, record.offset + 1)
        )


def test_counters_of_a_database_are_exact_although_the_consumer_dies(broker, visits, tmp_path):
    """Whatever was not committed was not counted either, and is counted by the next run."""
    path = tmp_path / "counts.db"
    for cut_at in (0, 17, 17, 59):
        with pytest.raises(PowerCutError):
            VisitCounter(path, broker, visits, cut_at).run()

    VisitCounter(path, broker, visits).run()

    with closing(sqlite3.connect(path)) as database:
        assert dict(database.execute("SELECT member, n FROM counts")) == Counter(VISITS)


class SearchIndex:
    """Where each member was seen; a segment is a file with its entries and the offset behind them.

    What is in memory is lost with the process; `flush_every` records make a segment.
    """

    def __init__(self, folder, flush_every):
        self.folder, self.flush_every = folder, flush_every
        self.segments = [json.loads(path.read_text()) for path in sorted(folder.glob("*.segment"))]
        self.entries = []

    @property
    def next_offset(self):
        return self.segments[-1]["next"] if self.segments else 0

    def add(self, record):
        self.entries.append((record.value.decode(), record.offset))
        if len(self.entries) == self.flush_every:
            self.flush(record.offset + 1)

    def flush(self, next_offset):
        segment = {"next": next_offset, "entries": self.entries}
        draft = self.folder / "draft"
        draft.write_text(json.dumps(segment))
        os.replace(draft, self.folder / f"{len(self.segments):05}.segment")
        self.segments.append(segment)
        self.entries = []

    def found(self, member):
        pairs = [pair for segment in self.segments for pair in segment["entries"]]
        return [offset for name, offset in [*pairs, *self.entries] if name == member]


def test_search_index_goes_on_behind_its_last_segment(broker, visits, tmp_path):
    """Entries that were not flushed are lost with the process, and read again: none is twice."""
    for died_at in (5, 23, 31):
        index = SearchIndex(tmp_path, flush_every=10)
        for record in records(broker, visits, index.next_offset, len(VISITS)):
            index.add(record)
            if record.offset == died_at:
                break
    assert SearchIndex(tmp_path, 10).next_offset == 30

    index = SearchIndex(tmp_path, flush_every=10)
    for record in records(broker, visits, index.next_offset, len(VISITS)):
        index.add(record)

    for member in set(VISITS):
        assert index.found(member) == [n for n, name in enumerate(VISITS) if name == member]


def test_old_records_are_read_again_without_disturbing_others(broker, visits, unique):
    """After a mistake in the code: one group goes back to an old offset, another one stays."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    groups = {name: unique(name) for name in ("mended", "other")}
    for group in groups.values():
        with ottla.Consumer(broker.bootstrap_servers, group_id=group, **settings) as consumer:
            consumer.assign([visits])
            while consumer.position(visits) < len(VISITS):
                consumer.poll(1)
            consumer.commit()

    with ottla.Consumer(broker.bootstrap_servers, group_id=groups["mended"], **settings) as again:
        again.assign([visits])
        again.seek(visits, 20)
        seen = []
        while again.position(visits) < len(VISITS):
            seen += [record.value.decode() for record in again.poll(1)]
            again.commit()

    assert seen == VISITS[20:]
    with ottla.Admin(broker.bootstrap_servers) as admin:
        kept = admin.list_group_offsets(groups["other"])[visits].offset
    assert kept == len(VISITS)
