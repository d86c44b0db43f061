"""How `ottla warehouse load` merges small files and reports its commits."""

from __future__ import annotations

from io import StringIO

import pytest
from table_rows import COLUMNS, P0, load_of, write

from ottla.cli.terminal import Terminal
from ottla.cli.warehouse_loading import Commits, Compaction
from ottla.warehouse.delta import DeltaHome, open_delta
from ottla.warehouse.loads import Load
from ottla.warehouse.table_location import Place
from ottla.warehouse.warehouse_load import Loaded


def test_small_files_are_merged_after_every_so_many_commits(tmp_path):
    """Rows stay as they are, and a load does not fail where the table cannot be compacted."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    home.prepare(COLUMNS, ())
    terminal = Terminal(out=StringIO(), err=StringIO())
    compaction = Compaction(home.place, 3, terminal)
    for number in range(1, 8):
        load = load_of(number, {P0: number - 1}, {P0: number})
        home.snapshot().commit(load, write(home, load))
        compaction.after_commit()

    assert terminal.out.getvalue().splitlines() == [
        "3 files became 1",
        "4 files became 1",
    ]
    assert len(open_delta(home.place).to_pyarrow_table()) == 7
    for path in (tmp_path / "table").glob("*.parquet"):
        path.unlink()
    for _ in range(2):
        compaction.after_commit()
    assert terminal.out.getvalue().splitlines()[2].startswith("not compacted this time: ")


class Screen(StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [StringIO, Screen])
def test_commits_are_lines_for_a_log_and_a_bar_for_a_person(monkeypatch, stream):
    """The bar ends where the topics ended when the load began."""
    monkeypatch.setenv("COLUMNS", "120")
    times = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(Terminal, "now_ms", lambda self: next(times))
    terminal = Terminal(out=stream(), err=stream())

    with terminal.progress("loading", "rows") as progress:
        commits = Commits(terminal, progress)
        commits.add(Loaded(4, Load("warehouse", 1, {}, {}), 300, 2, left=100))
        commits.print_sum()

    *lines, last = terminal.out.getvalue().splitlines()
    assert last.startswith("300 rows in 1 commits")
    if stream is Screen:
        assert lines == []
        bar = "loading  ############....  75 %  300 rows  300/s  0 s left  version 4"
        assert bar in terminal.err.getvalue()
    else:
        assert [line.partition("s  ")[2] for line in lines] == ["version 4: 300 rows in 2 files"]
        assert terminal.err.getvalue() == ""
