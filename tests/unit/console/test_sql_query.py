"""A statement from the console's side: its process, and the names of its columns."""

from __future__ import annotations

import pytest
from visitor import Visitor, visit

from ottla.console import sql_query
from ottla.console.refusals import NotFound, Refused
from ottla.console.sql_query import SqlColumn, failure, named_columns


def test_names_stand_once():
    """Rows are by the names of their columns."""
    columns = [["a", "INTEGER"], ["a", "VARCHAR"], ["a_2", "DOUBLE"]]
    assert named_columns(columns) == [
        SqlColumn("a", "INTEGER"),
        SqlColumn("a_2", "VARCHAR"),
        SqlColumn("a_2_2", "DOUBLE"),
    ]
    assert [each.is_number for each in named_columns(columns)] == [True, False, True]


def test_columns_of_numbers_and_times_are_known():
    """With their precision, and not lists of them."""
    types = ["DECIMAL(10,2)", "HUGEINT", "UINTEGER", "TIMESTAMP WITH TIME ZONE", "DATE"]
    columns = [SqlColumn("a", each) for each in (*types, "INTEGER[]", "DATE[]", "VARCHAR")]
    assert [each.is_number for each in columns] == [True, True, True, *[False] * 5]
    assert [each.is_time for each in columns] == [False] * 3 + [True] * 2 + [False] * 3


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (400, Refused), (502, Refused)])
def test_reason_of_a_worker_is_that_of_the_page(status, kind):
    """With names that are alike, where a topic is not there."""
    found = failure({"error": "why", "status": status, "near": {"/t/a/records": "a"}})
    assert (type(found), found.message) == (kind, "why")


def test_worker_that_never_answers_is_stopped(shop, monkeypatch):
    """As DuckDB may not look at its interrupt."""
    words = ("sh", "-c", "exec sleep 60")
    monkeypatch.setattr(sql_query, "WORKER", sql_query.WORKER._replace(words=words))
    for name in ("SEARCH_MS", "SQL_MS"):
        monkeypatch.setattr(sql_query, name, 100)
    monkeypatch.setattr(sql_query, "SEARCH_GRACE_MS", 0)

    async def walk(visitor: Visitor) -> str:
        return (await visitor.get("/sql?q=select+1")).text

    assert "was stopped after" in visit(shop.bootstrap_servers, walk)
