"""Every way in which a log file is rotated, while its task runs and while it is down.

What is written before, during and after it comes once, in order, or a line of the worker's log says
what cannot come.
"""

from __future__ import annotations

import gzip
import os
import shutil
from random import Random

import pytest
from contexts import LoneContext

from ottla.connect.connectors.log_folder import LogFolderSource, RotatedLog
from ottla.connect.connectors.log_listing import log_name
from ottla.errors import ConfigError

POLLS = 6
NEXT = "app.log*"
PLAIN = "*.log"


class Host:
    """A program that writes numbered lines to its log, and what rotates that log."""

    def __init__(self, folder):
        self.path = folder / "web-1" / "app.log"
        self.path.parent.mkdir()
        self.written = []

    def write(self, count, path=None):
        lines = [f"line {len(self.written) + number}" for number in range(count)]
        self.written += lines
        with (path or self.path).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def beside(self, name):
        return self.path.with_name(name)

    def shift(self, most=60):
        """What was rotated before gets the next number."""
        for number in range(most, 0, -1):
            if (old := self.beside(f"app.log.{number}")).exists():
                old.rename(self.beside(f"app.log.{number + 1}"))

    def copy_and_empty(self):
        self.shift()
        shutil.copy(self.path, self.beside("app.log.1"))
        os.truncate(self.path, 0)


def rename(host):
    """logrotate's default, without what creates the new file."""
    host.shift()
    host.path.rename(host.beside("app.log.1"))


def rename_and_create(host):
    """The new file is there before its first line."""
    rename(host)
    host.path.touch()


def rename_while_it_is_written(host):
    """The program keeps the old file open for some lines more."""
    rename(host)
    host.write(2, host.beside("app.log.1"))


def rename_with_date(host):
    """logrotate's dateext."""
    host.path.rename(host.beside(f"app.log-2026112{len(host.written) % 10}"))


def rename_before_extension(host):
    """logrotate's extension: the date stands before .log."""
    host.path.rename(host.beside(f"app-2026112{len(host.written) % 10}.log"))


def rename_to_old(host):
    """A script's mv."""
    host.path.rename(host.beside("app.log.old"))


def copy_and_empty(host):
    """logrotate's copytruncate: the new content is shorter than what was read."""
    host.copy_and_empty()


def copy_and_empty_then_longer(host):
    """The new content is longer than what was read, so that no length tells of it."""
    host.copy_and_empty()
    host.write(40)


def copy_and_empty_under_a_writer(host):
    """A writer that does not append goes on at its place: before it there are NULs."""
    size = host.path.stat().st_size
    host.copy_and_empty()
    os.truncate(host.path, size)


def rotate_three_times(host):
    """As much as a weekend without the worker."""
    for _ in range(3):
        rename(host)
        host.write(3)


def copy_three_times(host):
    """The same with copies."""
    for _ in range(3):
        host.copy_and_empty()
        host.write(3)


def compress_what_is_older(host):
    """logrotate's compress and delaycompress: what was read to its end is compressed."""
    rename(host)
    host.write(3)
    rename(host)
    with gzip.open(host.beside("app.log.2.gz"), "wb") as packed:
        packed.write(host.beside("app.log.2").read_bytes())
    host.beside("app.log.2").unlink()


RENAMES = [
    rename,
    rename_and_create,
    rename_while_it_is_written,
    rename_with_date,
    rename_before_extension,
    rename_to_old,
    rotate_three_times,
]
ONCE = [way for way in RENAMES if way is not rotate_three_times]
COPIES = [
    copy_and_empty,
    copy_and_empty_then_longer,
    copy_and_empty_under_a_writer,
    copy_three_times,
]


class Worker:
    """Starts tasks over the same stored offsets."""

    def __init__(self, folder, pattern):
        self.given = {"path": f"{folder}/*/{pattern}", "topic": "logs"}
        self.stored, self.lines, self.task = {}, [], None
        self.start()

    def start(self):
        settings = LogFolderSource.Settings.parse(self.given)
        self.task = LogFolderSource(settings, LoneContext(self.stored))
        self.task.start()

    def stop(self):
        self.task.stop()

    def read(self):
        for _ in range(POLLS):
            for record in self.task.poll():
                place = tuple(sorted(record.source_partition.items()))
                self.stored[place] = record.source_offset
                self.lines.append(record.value)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def follow(tmp_path):
    """Starts workers that follow all logs of a folder, and stops them after the test."""
    made = []

    def follow(pattern=PLAIN):
        made.append(Worker(tmp_path, pattern))
        return made[-1]

    yield follow
    for worker in made:
        worker.stop()


@pytest.mark.parametrize("has_tail", [False, True], ids=["read", "tail"])
@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("pattern", [PLAIN, NEXT], ids=["named", "glob"])
@pytest.mark.parametrize("rotate", [*RENAMES, *COPIES], ids=lambda way: way.__name__)
def test_each_line_comes_once(host, follow, rotate, pattern, is_up, has_tail):
    """Two rotations in each way, with and without lines that were not read before."""
    worker = follow(pattern)
    host.write(10)
    worker.read()
    for _ in range(2):
        if not is_up:
            worker.stop()
        if has_tail:
            host.write(3)
        rotate(host)
        host.write(2)
        if not is_up:
            worker.start()
        worker.read()
        host.write(2)
        worker.read()
    worker.stop()
    worker.start()
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("is_emptied", [False, True], ids=["copied", "emptied"])
@pytest.mark.parametrize("pattern", [PLAIN, NEXT], ids=["named", "glob"])
def test_a_copy_that_is_made_during_a_look_is_no_new_file(
    host, follow, pattern, is_emptied, monkeypatch
):
    """The original was looked at before it grew, the copy after it was made."""
    worker = follow(pattern)
    host.write(10)
    worker.read()
    look = RotatedLog._beside

    def copying(log, *arguments):
        monkeypatch.undo()
        host.write(2)
        shutil.copy(host.path, host.beside("app.log.1"))
        if is_emptied:
            os.truncate(host.path, 0)
        return look(log, *arguments)

    monkeypatch.setattr(RotatedLog, "_beside", copying)
    worker.read()
    os.truncate(host.path, 0)
    host.write(2)
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("has_older", [False, True], ids=["alone", "older"])
@pytest.mark.parametrize("is_read", [False, True], ids=["new", "read"])
@pytest.mark.parametrize("pattern", [PLAIN, NEXT], ids=["named", "glob"])
@pytest.mark.parametrize("rotate", ONCE, ids=lambda way: way.__name__)
def test_a_name_that_goes_to_another_file_behind_a_look_is_not_believed(
    host, follow, rotate, pattern, is_read, has_older, monkeypatch
):
    """The file of that name was opened for the one that was looked at, and read as two files."""
    worker = follow(pattern)
    if is_read:
        host.write(10)
        worker.read()
    if has_older:
        rename(host) if is_read else host.beside("app.log.1").touch()
    host.write(5)
    lines = RotatedLog.lines

    def rotated(log):
        monkeypatch.undo()
        rotate(host)
        host.write(3)
        return lines(log)

    monkeypatch.setattr(RotatedLog, "lines", rotated)
    worker.read()
    host.write(2)
    worker.read()

    assert worker.lines == host.written


def test_a_copy_that_takes_long_is_no_new_file(host, follow):
    """Looked at when half of it is there, and when the original was emptied meanwhile."""
    worker = follow(NEXT)
    host.write(10)
    worker.read()
    host.write(2)
    content = host.path.read_bytes()
    for size in (10, 40, len(content)):
        host.beside("app.log.1").write_bytes(content[:size])
        if size == 40:
            worker.read()
        if size == len(content):
            os.truncate(host.path, 0)
    host.write(2)
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("pattern", [PLAIN, NEXT], ids=["named", "glob"])
def test_what_was_compressed_after_it_was_read_is_not_missed(host, follow, pattern, is_up, caplog):
    """Neither a line comes twice, nor a compressed file as lines; the log names it once."""
    worker = follow(pattern)
    host.write(10)
    worker.read()
    if not is_up:
        worker.stop()
    compress_what_is_older(host)
    if not is_up:
        worker.start()
    worker.read()
    host.write(2)
    worker.read()

    assert worker.lines == host.written
    named = [text for text in caplog.messages if "as it is compressed" in text]
    assert len(named) == (pattern == NEXT)


def test_a_tail_that_was_compressed_is_told_of(host, follow, caplog):
    """Its lines cannot come: the log says of which file, and from which byte on."""
    worker = follow()
    host.write(10)
    worker.read()
    worker.stop()
    size = host.path.stat().st_size
    host.write(3)
    compress_what_is_older(host)
    host.write(2)
    worker.start()
    worker.read()

    assert worker.lines == host.written[:10] + host.written[13:]
    (said,) = [text for text in caplog.messages if "is lost" in text]
    assert str(host.path) in said
    assert f"up to byte {size}" in said


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("count", [2, 50], ids=["shorter", "longer"])
def test_a_file_that_was_emptied_without_a_copy_is_told_of(host, follow, count, is_up, caplog):
    """All of the new content comes; the log names the file and the byte."""
    worker = follow()
    host.write(10)
    worker.read()
    size = host.path.stat().st_size
    if not is_up:
        worker.stop()
    os.truncate(host.path, 0)
    host.write(count)
    if not is_up:
        worker.start()
    worker.read()

    assert worker.lines == host.written
    (said,) = [text for text in caplog.messages if "was emptied" in text]
    assert str(host.path) in said
    assert f"up to byte {size}" in said


def test_a_new_file_with_the_number_of_a_deleted_one_is_read_from_its_start(host, follow):
    """The disk gives a number again: what is stored of the old file says nothing of the new one."""
    worker = follow()
    host.write(10)
    worker.read()
    worker.stop()
    number = host.path.stat().st_ino
    host.path.write_bytes(b"")
    host.path.rename(host.path.with_name("new.log"))
    host.path = host.path.with_name("new.log")
    host.write(30)
    assert host.path.stat().st_ino == number
    worker.start()
    worker.read()

    assert worker.lines == host.written


def test_only_the_end_of_a_file_is_other_and_it_is_seen(host, follow):
    """Files of one program begin alike: the last line that was read tells them apart."""
    worker = follow()
    banner = [f"banner {number:04}" for number in range(200)]
    host.path.write_text("".join(f"{line}\n" for line in [*banner, "monday"]))
    worker.read()
    worker.stop()
    again = [*banner, "friday", "more"]
    host.path.write_text("".join(f"{line}\n" for line in again))
    worker.start()
    worker.read()

    assert worker.lines == [*banner, "monday", *again]


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("name", ["web-1/other.log", "web-2/app.log"])
def test_a_file_that_got_another_name_is_read_on(host, follow, name, is_up, tmp_path):
    """In its folder or in another that is followed: no line comes again, and the new file too."""
    (tmp_path / "web-2").mkdir()
    worker = follow()
    host.write(10)
    worker.read()
    if not is_up:
        worker.stop()
    host.write(3)
    host.path.rename(tmp_path / name)
    host.write(3)
    if not is_up:
        worker.start()
    worker.read()

    assert worker.lines == host.written


def test_a_file_that_is_moved_in_is_read_from_its_start(host, follow, tmp_path):
    """Where it was before, nobody has read it."""
    worker = follow()
    worker.read()
    host.write(5, tmp_path / "elsewhere.log")
    (tmp_path / "elsewhere.log").rename(host.path)
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_with_two_names_is_read_once(host, follow, link, is_up):
    """A hard link and a symbolic one lead to the same file."""
    worker = follow()
    host.write(3)
    worker.read()
    if not is_up:
        worker.stop()
    link(host.path, host.beside("also.log"))
    host.write(2)
    if not is_up:
        worker.start()
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
def test_a_link_is_followed_to_the_next_file(host, follow, tmp_path, is_up):
    """The link leads to today's file; the tail of yesterday's comes first."""
    days = tmp_path / "days"
    days.mkdir()
    link = host.beside("current.log")
    worker = follow("current.log")
    link.symlink_to(days / "out-20261125.txt")
    host.write(3, days / "out-20261125.txt")
    worker.read()
    if not is_up:
        worker.stop()
    host.write(2, days / "out-20261125.txt")
    link.unlink()
    link.symlink_to(days / "out-20261126.txt")
    host.write(2, days / "out-20261126.txt")
    if not is_up:
        worker.start()
    worker.read()

    assert worker.lines == host.written


def test_a_file_that_is_deleted_right_after_its_rotation_is_read_to_its_end(host, follow):
    """logrotate's rotate 0: only the open file has its last lines."""
    worker = follow()
    host.write(3)
    worker.read()
    host.write(3)
    host.path.unlink()
    host.write(2)
    worker.read()

    assert worker.lines == host.written


def test_what_was_there_before_is_left_to_the_setting(host, follow):
    """Older files are read, oldest first, only where the path fits them."""
    for _ in range(2):
        host.write(2)
        rename(host)
    host.write(1)
    for number in (2, 1):
        os.utime(host.beside(f"app.log.{number}"), ns=(0, 3 - number))
    plain, all_files = follow(), follow(NEXT)
    plain.read()
    all_files.read()

    assert plain.lines == host.written[-1:]
    assert all_files.lines == host.written


@pytest.mark.parametrize("has_grown", [False, True])
@pytest.mark.parametrize("pattern", [PLAIN, NEXT], ids=["named", "glob"])
def test_offsets_of_older_versions_are_understood(host, follow, pattern, has_grown):
    """They have a place and the file's number, by the path of each file."""
    worker = follow(pattern)
    worker.stop()
    host.write(5)
    place = host.path.stat().st_size
    worker.stored[(("filename", str(host.path)),)] = {
        "position": place,
        "inode": host.path.stat().st_ino,
    }
    worker.lines = host.written[:]
    if has_grown:
        host.write(3)
    rename(host)
    host.write(2)
    worker.start()
    worker.read()

    assert worker.lines == host.written


def test_an_older_offset_of_another_file_is_not_believed(host, follow):
    """Its place is in the middle of a line: the file is read from its start."""
    worker = follow()
    worker.stop()
    host.write(5)
    worker.stored[(("filename", str(host.path)),)] = {
        "position": 3,
        "inode": host.path.stat().st_ino,
    }
    worker.start()
    worker.read()

    assert worker.lines == host.written


def test_a_place_that_a_person_sets_is_one_in_the_file_of_that_name(host, follow):
    """A number of bytes is enough."""
    worker = follow()
    worker.stop()
    host.write(5)
    worker.stored[(("filename", str(host.path)),)] = {"position": len("line 0\n")}
    worker.start()
    worker.read()

    assert worker.lines == host.written[1:]


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"file": "x"}, None),
        ({"filename": "x"}, {}),
        ({"filename": "x"}, {"position": -1}),
        ({"filename": "x"}, {"position": True}),
        ({"filename": "x"}, {"position": "1"}),
        ({"filename": "x"}, {"position": 1, "inode": "2"}),
        ({"filename": "x"}, {"position": 1, "device": [2]}),
        ({"filename": "x"}, {"position": 1, "begins": "x"}),
        ({"filename": "x"}, {"position": 1, "begins": 7}),
        ({"filename": "x"}, {"position": 1, "begins": "1000000000000:0"}),
        ({"filename": "x"}, {"position": 1, "last": "-1:0"}),
        ({"filename": "x"}, {"position": 1, "others": "1,2,3,1025:0,1:0"}),
        ({"filename": "x"}, {"position": 1, "others": "1,2"}),
        ({"filename": "x"}, {"position": 1, "written": "now"}),
    ],
)
def test_offsets_that_are_none_are_refused(partition, offset):
    """A sentence says what they must have; also for one that is stored."""
    settings = LogFolderSource.Settings.parse({"path": "x", "topic": "t"})
    good = {"position": 1, "inode": 2}
    assert LogFolderSource.alter_offsets(settings, [({"filename": "x"}, good)])
    with pytest.raises(ConfigError, match="must have"):
        LogFolderSource.alter_offsets(settings, [(partition, offset)])
    if offset is not None:
        task = LogFolderSource(settings, LoneContext({(("filename", "x"),): offset}))
        with pytest.raises(ConfigError, match="must have"):
            task.start()


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("app.log", "app.log"),
        ("app.log.1", "app.log"),
        ("app.log.12", "app.log"),
        ("app.log-20261126", "app.log"),
        ("app.log-20261126-1764115200", "app.log"),
        ("app.log.2026-11-26_17", "app.log"),
        ("app.log.old", "app.log"),
        ("app.log~", "app.log"),
        ("app-20261126.log", "app.log"),
        ("app_2026-11-26.log", "app.log"),
        ("syslog.1", "syslog"),
        ("web-1.log", "web-1.log"),
        ("app-1", "app-1"),
        (".1", ".1"),
        ("1" * 5000 + "x", "1" * 5000 + "x"),
    ],
)
def test_a_log_has_one_name(name, log):
    """Without what a rotation adds; a number that is a part of the name stays."""
    assert log_name(f"/logs/a.1/{name}") == f"/logs/a.1/{log}"


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_rotations_and_restarts(host, follow, seed):
    """Random rotations of all kinds, appends, restarts, and polls between any two of them."""
    random = Random(seed)
    pattern = random.choice((PLAIN, NEXT))
    worker = follow(pattern)
    host.write(5)
    worker.read()
    ways = random.choice(([rename, rename_and_create, rotate_three_times], COPIES))
    for _ in range(15):
        match random.randrange(4):
            case 0:
                random.choice(ways)(host)
                host.write(1)
                if ways is COPIES:
                    worker.read()
            case 1:
                worker.stop()
                worker.start()
            case 2:
                worker.read()
            case _:
                host.write(random.randrange(1, 4))
    worker.read()

    assert worker.lines == host.written


@pytest.mark.parametrize("name", [5, None, True])
def test_place_in_a_file_without_a_path_is_refused(name):
    """It would end the task at each start; one that is stored can be deleted."""
    settings = LogFolderSource.Settings.parse({"path": "x", "topic": "t"})
    with pytest.raises(ConfigError, match="filename must be a path"):
        LogFolderSource.alter_offsets(settings, [({"filename": name}, {"position": 1})])
    assert LogFolderSource.alter_offsets(settings, [({"filename": name}, None)])
