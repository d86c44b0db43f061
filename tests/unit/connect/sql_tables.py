"""A table of orders in SQLite, for the tests of SqlSource and SqlSink."""

from __future__ import annotations

from datetime import datetime

from ottla.connect.data import SinkRecord

TABLE = """
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, name TEXT, price NUMERIC(10, 2), day DATE, changed TIMESTAMP NOT NULL
)
"""
UPSERT = {"insert.mode": "upsert", "primary.key": "id", "auto.create": "true"}
NOON = datetime(2020, 2, 3, 12)


def insert(database, number, at=NOON, name="x"):
    database(
        "INSERT INTO orders VALUES (?, ?, 9.5, '2020-02-03', ?)",
        number,
        name,
        at.isoformat(" ", "microseconds"),
    )


def ids(records):
    return [record.value["id"] for record in records]


def record(offset, value, **more):
    return SinkRecord(topic="people", partition=0, offset=offset, value=value, **more)
