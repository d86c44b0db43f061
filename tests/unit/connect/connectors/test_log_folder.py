"""The logs of many hosts: new files, rotated files, restarts; no line twice, none lost (U21)."""

from __future__ import annotations

import os
import re
from itertools import count
from random import Random

import pytest
from contexts import LoneContext

from ottla.connect.connectors.log_folder import LogFolderSource
from ottla.connect.data import STRING, Header
from ottla.errors import ConfigError

TICKS = count(1)


@pytest.fixture
def start(tmp_path):
    """Starts tasks that go on where the stored offsets say, and stops them after the test."""
    stored, made = {}, []

    def start(**settings):
        given = {"path": f"{tmp_path}/*/*.log", "topic": "logs"} | settings
        task = LogFolderSource(LogFolderSource.Settings.parse(given), LoneContext(stored))
        made.append(task)
        task.start()
        return task

    def read(task):
        found = task.poll()
        for record in found:
            stored[tuple(sorted(record.source_partition.items()))] = record.source_offset
        return [record.value for record in found]

    start.read = read
    yield start
    for task in made:
        task.stop()


def write(folder, host, text, name="app.log"):
    path = folder / host / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    os.utime(path, ns=(0, next(TICKS)))  # the file system's own clock is too coarse for a test
    return path


def test_a_line_is_a_record_of_its_host(tmp_path, start):
    """Key, value and header; the offset says which file it was."""
    path = write(tmp_path, "web-1", "one\n")

    (record,) = start().poll()

    assert (record.topic, record.key, record.value) == ("logs", "web-1", "one")
    assert record.headers == (Header("file", str(path), STRING),)
    assert record.source_partition == {"filename": str(path)}
    assert record.source_offset == {"position": 4, "inode": path.stat().st_ino}


def test_new_files_are_found(tmp_path, start):
    """While it runs; and what is appended."""
    task = start(**{"host.pattern": r".*/(web|db)-\d/.*"})
    assert start.read(task) == []
    write(tmp_path, "db-1", "a\nhalf")
    assert start.read(task) == ["a"]
    write(tmp_path, "db-1", " b\n")
    write(tmp_path, "web-2", "c\n")
    assert start.read(task) == ["half b", "c"]


def test_a_restart_goes_on(tmp_path, start):
    """Behind the last line that was stored."""
    write(tmp_path, "a", "1\n2\n")
    assert start.read(start()) == ["1", "2"]
    write(tmp_path, "a", "3\n")
    assert start.read(start()) == ["3"]


def test_rotation_loses_nothing(tmp_path, start):
    """The rest of the old file comes first, while the task runs and while it is down."""
    path = write(tmp_path, "a", "1\n")
    task = start()
    assert start.read(task) == ["1"]
    write(tmp_path, "a", "2\n")
    path.rename(path.with_name("app.log.1"))
    write(tmp_path, "a", "3\n")
    lines = [line for _ in range(4) for line in start.read(task)]
    assert lines == ["2", "3"]

    write(tmp_path, "a", "4\n")
    path.rename(path.with_name("app.log.2"))
    write(tmp_path, "a", "5\n")
    again = start()
    assert [line for _ in range(4) for line in start.read(again)] == ["4", "5"]


def test_the_last_line_of_a_moved_file_needs_no_end(tmp_path, start):
    """Nobody writes its rest."""
    path = write(tmp_path, "a", "1\nlast")
    task = start()
    assert start.read(task) == ["1"]
    path.rename(path.with_name("app.log-20200203"))
    write(tmp_path, "a", "2\n")
    assert [line for _ in range(4) for line in start.read(task)] == ["last", "2"]


def test_a_shorter_file_is_read_from_its_start(tmp_path, start):
    """It was emptied in place."""
    path = write(tmp_path, "a", "one\ntwo\n")
    task = start()
    assert start.read(task) == ["one", "two"]
    path.write_text("3\n")
    assert start.read(task) == ["3"]


def test_a_deleted_file_is_let_go(tmp_path, start):
    """And read from its start if it comes back."""
    path = write(tmp_path, "a", "1\n")
    task = start()
    assert start.read(task) == ["1"]
    path.unlink()
    assert [start.read(task) for _ in range(3)] == [[], [], []]
    write(tmp_path, "a", "2\n")
    assert [line for _ in range(3) for line in start.read(task)] == ["2"]


def test_long_lines_are_cut(tmp_path, start):
    """A file without line ends does not fill the memory."""
    write(tmp_path, "a", "x" * 25 + "\n")

    assert start.read(start(**{"max.line.bytes": "10"})) == ["x" * 10, "x" * 10, "x" * 5]


def test_tasks_share_the_files(tmp_path, start):
    """Each file has one task, and each line comes once."""
    for number in range(20):
        write(tmp_path, f"host-{number}", f"{number}\n")
    planned = start().tasks(3)
    read = [start.read(start(**settings)) for settings in planned]

    assert sorted(int(line) for lines in read for line in lines) == list(range(20))
    assert all(read)


@pytest.mark.parametrize("seed", range(20))
def test_every_line_once_whatever_happens(tmp_path, start, seed):
    """20 seeds of appends, rotations, new hosts and restarts."""
    random, written, read = Random(seed), {}, {}
    task, number = start(), 0

    def take():
        for line in start.read(task):
            host, _, text = line.partition(" ")
            read.setdefault(host, []).append(text)

    for step in range(60):
        host = f"h{random.randrange(4)}"
        match random.randrange(6):
            case 0:
                path = tmp_path / host / "app.log"
                if path.exists():
                    path.rename(path.with_name(f"app.log.{step}"))
                    take()
            case 1:
                task.stop()
                task = start()
            case 2:
                take()
            case _:
                for _ in range(random.randrange(1, 5)):
                    number += 1
                    write(tmp_path, host, f"{host} {number}\n")
                    written.setdefault(host, []).append(str(number))
                take()
    for _ in range(60):
        take()

    assert read == written


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"path": ""}, "path=: must not be empty"),
        ({"host.pattern": "/logs/.*"}, re.escape("host.pattern=/logs/.*: must be a regular expr")),
    ],
)
def test_settings_are_checked(settings, text):
    """The error names key, value and rule."""
    with pytest.raises(ConfigError, match=text):
        LogFolderSource.Settings.parse({"path": "x", "topic": "t"} | settings)
