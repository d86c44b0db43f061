"""A folder of plain Parquet as the home of loads: staged, linked, moved."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from power_loss import PowerLoss
from table_rows import COLUMNS, P0, P1, load_of, wider, write

from ottla.warehouse import plain_parquet
from ottla.warehouse.plain_parquet import LOADS, STAGING, ParquetHome
from ottla.warehouse.table_location import Place, WarehouseError


@pytest.fixture
def home(tmp_path):
    home = ParquetHome(Place.of(tmp_path / "table"))
    home.prepare(COLUMNS, ())
    return home


def root(home):
    from pathlib import Path

    return Path(home.place.uri)


def visible(home):
    """The offsets that a reader finds who knows nothing of loads."""
    return sorted(
        offset
        for path in root(home).glob("*.parquet")
        for offset in pq.read_table(path)["offset"].to_pylist()
    )


def do(home, load):
    return home.snapshot().commit(load, write(home, load))


def test_commit_shows_the_files_and_keeps_the_offsets(home):
    """Of each name and partition, over many loads."""
    assert do(home, load_of(1, {P0: 0, P1: 0}, {P0: 3, P1: 0})) == 1
    assert do(home, load_of(2, {P0: 3}, {P0: 5})) == 2
    assert do(home, load_of(1, {P1: 7}, {P1: 8}, name="other")) == 3

    found = ParquetHome(home.place).snapshot()
    assert found.offsets("load", [P0, P1]) == {P0: 5, P1: 0}
    assert (found.number("load"), found.number("other")) == (2, 1)
    assert visible(home) == [0, 1, 2, 3, 4, 7]


def test_topic_of_another_id_is_known_as_another(home):
    """The manifest has the ids of a name; where none was kept nothing is claimed."""
    do(home, load_of(1, {P0: 0}, {P0: 3}))
    assert not home.snapshot().is_other_topic("load", "t", "one")

    do(home, replace(load_of(2, {P0: 3}, {P0: 4}), topic_ids={"t": "one"}))
    do(home, load_of(1, {P0: 0}, {P0: 1}, name="other"))

    snapshot = home.snapshot()
    assert not snapshot.is_other_topic("load", "t", "one")
    assert snapshot.is_other_topic("load", "t", "two")
    assert not snapshot.is_other_topic("other", "t", "two")


def test_load_that_dies_before_its_commit_is_not_seen(home):
    """What it wrote lies in a folder that readers pass over."""
    write(home, load_of(1, {P0: 0}, {P0: 3}))

    assert visible(home) == []
    assert home.snapshot().number("load") == 0


def test_load_that_dies_behind_its_commit_is_ended_by_the_next(home, monkeypatch):
    """Whoever opens the table moves the files that are not moved yet, and no other."""
    load = load_of(1, {P0: 0, P1: 0}, {P0: 3, P1: 2})
    files = [*write(home, load), *write(home, load_of(1, {P0: 3}, {P0: 4}))]
    moves = []
    rename = os.rename

    def rename_once(source, target):
        if moves:
            raise KeyboardInterrupt
        moves.append(target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_once)
    with pytest.raises(KeyboardInterrupt):
        home.snapshot().commit(load, files)
    monkeypatch.undo()

    assert len(visible(home)) < 6
    for _ in range(2):
        assert home.snapshot().number("load") == 1
        assert visible(home) == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("dies_at", ["before its commit", "before its move", "behind its move"])
def test_load_that_has_committed_survives_a_loss_of_power(home, monkeypatch, dies_at):
    """Manifests, files and their names are on the disk before anything builds on them."""
    disk = PowerLoss(root(home), monkeypatch)
    do(home, load_of(1, {P0: 0}, {P0: 3}))
    snapshot, second = home.snapshot(), load_of(2, {P0: 3}, {P0: 5})
    files = write(home, second)
    if dies_at == "before its move":
        monkeypatch.setattr(plain_parquet, "publish", lambda *arguments: None)
    if dies_at != "before its commit":
        snapshot.commit(second, files)
    disk.strike()
    monkeypatch.undo()

    end = 3 if dies_at == "before its commit" else 5
    assert home.snapshot().offsets("load", [P0]) == {P0: end}
    assert visible(home) == list(range(end))


def test_load_that_is_not_durably_moved_is_moved_before_the_next_commits(home, monkeypatch):
    """Nobody looks for the files of a load again that is not the newest."""
    disk = PowerLoss(root(home), monkeypatch)
    first = load_of(1, {P0: 0}, {P0: 3})
    files = [in_folder(home, each, "day=1") for each in write(home, first)]
    with monkeypatch.context() as patch:
        patch.setattr(plain_parquet, "sync_names", lambda *arguments: None)
        home.snapshot().commit(first, files)
    do(home, load_of(2, {P0: 3}, {P0: 5}))
    disk.strike()

    assert home.snapshot().offsets("load", [P0]) == {P0: 5}
    assert [path.name for path in root(home).glob("day=1/*.parquet")] == [
        each.path.rpartition("/")[2] for each in files
    ]


def in_folder(home, file, folder):
    """A file as the task would have written it for a partition of the table."""
    staging, _, name = file.path.rpartition("/")
    (root(home) / staging / folder).mkdir(exist_ok=True)
    os.rename(root(home) / file.path, root(home) / staging / folder / name)
    return replace(file, path=f"{staging}/{folder}/{name}")


def test_of_two_loads_one_commits(home):
    """The number of a load is a file that can be made once."""
    load = load_of(1, {P0: 0}, {P0: 3})
    first, second = home.snapshot(), home.snapshot()
    first.commit(load, write(home, load))

    with pytest.raises(WarehouseError, match="another load has committed meanwhile"):
        second.commit(load, write(home, load))

    assert visible(home) == [0, 1, 2]
    assert [path.name for path in (root(home) / LOADS).iterdir()] == [f"{1:020}.json"]


def test_vacuum_removes_what_dead_loads_have_left(home):
    """Not what is younger than the retention: it may be a load that is alive."""
    load = load_of(1, {P0: 0}, {P0: 3})
    do(home, load)
    write(home, load)

    assert home.vacuum(1, delete=True) == []
    assert len(home.vacuum(0, delete=False)) == 2
    assert len(home.vacuum(0, delete=True)) == 2
    assert list((root(home) / STAGING).iterdir()) == []
    assert visible(home) == [0, 1, 2]


def test_columns_and_partitioning_stay(home):
    """New columns may come; types stay as they are."""
    home.prepare(wider("path"), ())
    do(home, load_of(1, {P0: 0}, {P0: 1}))
    fields = [{"name": "path", "type": "long", "nullable": True, "metadata": {}}]
    changed = wider().fromJson({"type": "struct", "fields": fields})

    with pytest.raises(WarehouseError, match="column path is string, and cannot take bigint"):
        home.prepare(changed, ())
    with pytest.raises(WarehouseError, match="by nothing, and cannot be by topic"):
        home.prepare(COLUMNS, ("topic",))


def test_object_storage_is_refused():
    """It has no links."""
    with pytest.raises(WarehouseError, match="plain Parquet needs a folder"):
        ParquetHome(Place.of("s3://bucket/table"))
