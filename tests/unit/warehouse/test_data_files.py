"""What tasks write: files by partition values, in row groups that fit into memory."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from ottla.warehouse import data_files
from ottla.warehouse.data_files import described, parted, write_batches


@pytest.fixture
def files(tmp_path):
    return pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Local storage makes folders by itself; plain files of a test do not."""
    for name in ("day=2026-03-01", "day=2026-03-02", f"day={data_files.NULL_PARTITION}"):
        (tmp_path / name).mkdir()


def batch(*rows):
    days, numbers = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(days, pa.date32()), pa.array(numbers, pa.int64())], ["day", "n"]
    )


FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def test_rows_go_to_the_files_of_their_partition_values(files, tmp_path):
    """In their order, over several batches, without the columns that are in the path."""
    batches = [batch((FIRST, 1), (SECOND, 2), (FIRST, 3)), batch((None, 4), (FIRST, 5))]

    done = write_batches(batches, files, ("day",))

    found = {
        each.partition_values["day"]: pq.read_table(tmp_path / each.path, partitioning=None)
        for each in done
    }
    assert {day: table.to_pydict() for day, table in found.items()} == {
        "2026-03-01": {"n": [1, 3, 5]},
        "2026-03-02": {"n": [2]},
        None: {"n": [4]},
    }
    assert [each.row_count for each in done] == [3, 1, 1]
    assert all(each.size == (tmp_path / each.path).stat().st_size for each in done)


def test_buffer_that_is_full_becomes_a_row_group(files, tmp_path, monkeypatch):
    """So that a task needs little memory, however much it writes."""
    monkeypatch.setattr(data_files, "BUFFER_BYTES", 24)

    done = write_batches([batch((FIRST, n)).drop_columns(["day"]) for n in range(9)], files, ())

    metadata = pq.read_metadata(tmp_path / done[0].path)
    assert (len(done), metadata.num_rows, metadata.num_row_groups) == (1, 9, 3)


def test_more_values_than_open_files_close_the_open_ones(files, monkeypatch):
    """A value may have several files then; no row is lost."""
    monkeypatch.setattr(data_files, "BUFFER_BYTES", 1)
    monkeypatch.setattr(data_files, "MAX_OPEN_FILES", 1)
    batches = [batch((day, 1)) for day in (FIRST, SECOND, FIRST)]

    done = write_batches(batches, files, ("day",))

    assert [each.partition_values["day"][-1] for each in done] == ["1", "2", "1"]
    assert sum(each.row_count for each in done) == 3


def test_task_without_rows_writes_no_file(files):
    """A task without rows writes no file, and returns no line."""
    empty = batch((FIRST, 1)).slice(0, 0)

    assert write_batches([empty], files, ()) == []
    assert write_batches([empty], files, ("day",)) == []
    assert described([]).num_rows == 0


def test_partition_values_are_texts():
    """Numbers, booleans and days as Delta writes them."""
    rows = pa.record_batch(
        [pa.array([7]), pa.array([True]), pa.array([FIRST]), pa.array(["x"])], ["h", "b", "d", "n"]
    )

    ((values, rest),) = parted(rows, ("h", "b", "d"))

    assert values == ("7", "true", "2026-03-01")
    assert rest.to_pydict() == {"n": ["x"]}
