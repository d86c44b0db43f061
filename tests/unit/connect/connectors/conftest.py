"""A database of SQLite, and sources and sinks of it that are stopped after the test."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace

import pytest
from contexts import LoneContext
from sql_tables import TABLE

from ottla.connect.connectors.sql import SqlSource
from ottla.connect.connectors.sql_sink import SqlSink


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "shop.db"

    def execute(statement, *values):
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    execute.url = f"sqlite:///{path}"
    execute(TABLE)
    return execute


@pytest.fixture
def read(database):
    """Starts a source that goes on where the last one was; stops them after the test."""
    stored, made = {}, []

    def start(**settings):
        given = {"url": database.url, "tables": "orders", "timestamp.column": "changed"} | settings
        source = SqlSource(SqlSource.Settings.parse(given), LoneContext(stored))
        made.append(source)
        source.start()

        def poll():
            found = source.poll()
            for record in found:
                stored[tuple(record.source_partition.items())] = record.source_offset
            return found

        poll.source = source
        return poll

    def behind(offset, **settings):
        """A source that goes on behind a stored offset."""
        stored.clear()
        stored[("table", "orders"),] = offset
        return start(**settings).source

    start.behind = behind
    yield start
    for source in made:
        source.stop()


@pytest.fixture
def sink(database):
    """Starts sinks, and keeps what they report; stops them after the test."""
    made = []

    def start(**settings):
        reported = []

        def report(record, error):
            reported.append((record.offset, str(error)))
            return Future()

        given = {"url": database.url} | settings
        found = SqlSink(SqlSink.Settings.parse(given), SimpleNamespace(report=report))
        made.append(found)
        found.start()
        return found, reported

    yield start
    for each in made:
        each.stop()
