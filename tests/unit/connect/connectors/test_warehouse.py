"""Loads in a process of their own: their progress, their deaths, and their end.

A small program takes the place of the Spark driver here. It commits to a real Delta table what
the test has written as `ottla warehouse load` does.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

import pyarrow
import pytest
from contexts import LoneContext
from deltalake import CommitProperties, Transaction, write_deltalake

from ottla.connect.connectors.warehouse import LoadProcess, WarehouseSink
from ottla.errors import ConfigError
from ottla.structs import TopicPartition
from ottla.testing import wait_until
from ottla.warehouse.delta import ANY_ID, _app_id, _topic_app_id

PLACE = TopicPartition("t", 0)
COMMITS = """
import os, pathlib, shutil, signal, sys
table = pathlib.Path(sys.argv[1])
table.with_suffix(".pid").write_text(str(os.getpid()))
log, made = table / "_delta_log", table.with_suffix(".made")
log.mkdir(parents=True, exist_ok=True)
for path in made.glob("*.parquet"):
    shutil.copy(path, table)
entry = f"{len(list(log.glob('*.json'))):020}.json"
shutil.copy(made / "_delta_log" / entry, log)
print("    0.1 s  version 0: 1 rows in 1 files", flush=True)
signal.pause()
"""
DIES = "print('no memory', flush=True); raise SystemExit(3)"


class LoadContext(LoneContext):
    """Keeps what the sink asks of its worker."""

    id = ""

    def topic_id(self, topic):
        return self.id

    def rewind(self, offsets):
        self.asked.append(("rewind", dict(offsets)))

    def request_commit(self):
        self.asked.append(("commit",))

    def pause(self, partitions):
        self.asked.append(("pause", list(partitions)))


def make_commits(folder, count, offset, *others):
    """What the program commits: so many versions of a table, with this progress."""
    names = (_app_id("warehouse", PLACE), *others)
    progress = [Transaction(name, offset) for name in names]
    for _ in range(count):
        write_deltalake(
            folder / "table.made",
            pyarrow.table({"x": [1]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=progress),
        )


@contextmanager
def load(folder, program, **settings):
    """A started sink whose driver is a small program."""

    class Load(WarehouseSink):
        """Runs the program."""

        def command(self):
            return [sys.executable, "-c", program, str(folder / "table")]

    given = {"bootstrap.servers": "h:1", "table": str(folder / "table"), "restart.backoff.ms": "1"}
    given |= {key.replace("_", "."): value for key, value in settings.items()}
    context = LoadContext(properties={"topics": "t"})
    made = Load(WarehouseSink.Settings.parse(given), context)
    made.start()
    try:
        yield made
    finally:
        context.is_over = True
        made.stop()


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_progress_is_that_of_the_table(tmp_path):
    """The consumer follows the table, reads nothing, and commits what is there."""
    make_commits(tmp_path, 1, offset=7)
    with load(tmp_path, COMMITS) as sink:
        sink.open([PLACE])
        assert sink.context.asked == [("pause", [PLACE])]
        wait_until(lambda: ("commit",) in sink.context.asked, "the first commit")
        assert sink.pre_commit({PLACE: 0}) == {}
        assert ("rewind", {PLACE: 7}) in sink.context.asked
        assert sink.pre_commit({PLACE: 7}) == {PLACE: 7}
        number = int((tmp_path / "table.pid").read_text())
        assert is_alive(number)
    assert not is_alive(number)


def test_offsets_of_a_topic_that_was_made_again_are_not_those_of_the_table(tmp_path):
    """The load refuses it, or adds it from its beginning: the group has nothing of the former."""
    load_name = _topic_app_id("warehouse", "t", ANY_ID), _topic_app_id("warehouse", "t", "one")
    make_commits(tmp_path, 1, 7, *load_name)
    with load(tmp_path, COMMITS) as sink:
        wait_until(lambda: ("commit",) in sink.context.asked, "the first commit")
        sink.context.id = "one"
        assert sink.pre_commit({PLACE: 7}) == {PLACE: 7}
        sink.context.id = "two"
        assert sink.pre_commit({PLACE: 7}) == {}


def test_new_topic_is_added_if_it_is_asked_for(tmp_path):
    """The option of the load."""
    for value, is_there in (("true", True), ("false", False)):
        given = {"bootstrap.servers": "h:1", "table": "x", "accept.new.topic": value}
        context = LoadContext(properties={"topics": "t"})
        words = WarehouseSink(WarehouseSink.Settings.parse(given), context).command()
        assert ("--accept-new-topic" in words) == is_there


def test_nothing_is_committed_before_there_is_a_table(tmp_path):
    """A load that has only begun."""
    with load(tmp_path, "import signal; signal.pause()") as sink:
        assert sink.pre_commit({PLACE: 0}) == {}


def test_a_driver_that_dies_is_started_again(tmp_path):
    """Killed: the next one goes on."""
    make_commits(tmp_path, 2, offset=7)
    with load(tmp_path, COMMITS) as sink:
        wait_until(lambda: sink.context.asked.count(("commit",)) == 1, "the first driver")
        os.kill(int((tmp_path / "table.pid").read_text()), 9)
        wait_until(lambda: sink.context.asked.count(("commit",)) == 2, "the second driver")
        assert not [each for each in sink.context.asked if each[0] == "fail"]


def test_a_load_that_never_comes_far_fails(tmp_path):
    """With what it has said last."""
    with load(tmp_path, DIES, max_restarts="2") as sink:
        wait_until(lambda: [a for a in sink.context.asked if a[0] == "fail"], "the failure")
        ((_, error),) = [each for each in sink.context.asked if each[0] == "fail"]
    assert "the load ended 3 times, with 3, saying:\nno memory\nno memory" in str(error)


def test_settings_become_options():
    """Those of `ottla warehouse load`."""
    given = {
        "bootstrap.servers": "h:1",
        "table": "lake/t",
        "fields": "path string",
        "partition.by": "day",
        "max.records": "5",
        "with.headers": "true",
        "spark.conf": "a=1,b=2",
    }
    settings = WarehouseSink.Settings.parse(given)
    words = WarehouseSink(settings, LoadContext(properties={"topics": "t, u"})).command()

    line = " ".join(words[1:])
    assert line.startswith(
        "-P -m ottla warehouse load --continuous --bootstrap-server h:1 --topic t,u"
    )
    assert "--table lake/t --name warehouse --partition-by day" in line
    assert line.endswith("--fields path string --max-records 5 --headers")
    assert "a=1" not in line, "every user of the machine sees the words of a process"
    with pytest.raises(ConfigError, match=r"topics\.regex is not loaded"):
        WarehouseSink(settings, LoadContext()).command()


def test_offsets_are_the_tables():
    """Nobody sets them by REST."""
    with pytest.raises(ConfigError, match="ottla warehouse rewind"):
        WarehouseSink.alter_offsets(None, {PLACE: 0})


def test_settings_of_spark_are_handed_on_by_the_environment():
    """They may have the keys of an object store."""
    program = "import os; print(os.environ['OTTLA_SPARK_CONF'])"
    process = LoadProcess([sys.executable, "-c", program], ["a=1 2", "fs.s3a.secret.key=x"])
    try:
        assert list(process.lines()) == ["a=1 2", "fs.s3a.secret.key=x"]
    finally:
        process.stop()
