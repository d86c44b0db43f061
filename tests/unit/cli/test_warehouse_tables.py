"""What `ottla warehouse` does with a table that is there, without Spark and brokers."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ottla.cli.main import main
from ottla.cli.terminal import Terminal


@pytest.fixture
def table(tmp_path):
    """A table of two small files."""
    path = str(tmp_path / "table")
    for number in range(2):
        write_deltalake(path, pa.table({"n": [number], "text": ["x"]}), mode="append")
    return path


@pytest.fixture
def warehouse(table):
    """Runs an action on the table, and returns its status, output and errors."""

    def run(action, *words, table=table):
        out, err = io.StringIO(), io.StringIO()
        status = main(["warehouse", action, "--table", table, *words], Terminal(out=out, err=err))
        return status, out.getvalue().splitlines(), err.getvalue()

    return run


def test_query_prints_rows(warehouse):
    """Rows are printed as columns; also those of an older version."""
    status, lines, _ = warehouse("query", "--sql", "SELECT sum(n) AS s, count(*) AS c FROM records")

    assert (status, lines) == (0, ["s  c", "1  2"])
    _, lines, _ = warehouse("query", "--sql", "SELECT n FROM records", "--at-version", "0")
    assert lines == ["n", "0"]


def test_compact_and_vacuum_say_what_they_did(warehouse):
    """Vacuum only shows what it would delete, unless it is told to."""
    assert warehouse("compact")[1] == ["2 files became 1"]
    assert warehouse("vacuum")[1] == ["0 could be deleted (--delete)"]

    _, lines, _ = warehouse("vacuum", "--retain-hours", "0")
    assert lines[-1] == "2 could be deleted (--delete)"
    assert warehouse("vacuum", "--retain-hours", "0", "--delete")[1][-1] == "2 deleted"
    assert warehouse("query", "--sql", "SELECT count(*) AS c FROM records")[1] == ["c", "2"]


def test_history_has_a_line_for_each_commit(warehouse):
    """The newest first, and no more than asked for."""
    _, lines, _ = warehouse("history")
    assert [line.split()[0] for line in lines] == ["1", "0"]
    assert [line.split()[2] for line in lines] == ["WRITE", "WRITE"]

    assert len(warehouse("history", "--limit", "1")[1]) == 1


def test_failures_are_one_line(warehouse, tmp_path):
    """A table that is not there, and SQL that is none."""
    status, _, said = warehouse("compact", table=str(tmp_path / "nothing"))
    assert (status, said.count("\n")) == (1, 1)
    assert "there is no Delta table" in said

    status, _, said = warehouse("query", "--sql", "SELECT nope FROM records")
    assert (status, said.count("\n")) == (1, 1)
    assert "nope" in said
