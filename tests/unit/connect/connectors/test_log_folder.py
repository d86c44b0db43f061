"""The logs of many hosts: new files, rotated files, restarts; no line twice, none lost."""

from __future__ import annotations

import json
import os
import re
from itertools import count
from random import Random

import pytest
from contexts import LoneContext

from ottla.config.client_config import ProducerConfig
from ottla.connect.connectors.log_folder import (
    BLOCK,
    ENVELOPE_BYTES,
    MOST_AT_ONCE,
    LogFolderSource,
)
from ottla.connect.converters import StringConverter
from ottla.connect.data import STRING, Header
from ottla.connect.json_converter import JsonConverter
from ottla.errors import ConfigError
from ottla.testing.connector_contract import SourceContract

TICKS = count(1)


@pytest.fixture
def start(tmp_path):
    """Starts tasks that go on where the stored offsets say, and stops them after the test."""
    stored, made = {}, []

    def start(properties=None, **settings):
        given = {"path": f"{tmp_path}/*/*.log", "topic": "logs"} | settings
        context = LoneContext(stored, properties)
        task = LogFolderSource(LogFolderSource.Settings.parse(given), context)
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
    assert record.source_offset["position"] == 4
    assert record.source_offset["inode"] == path.stat().st_ino


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
    """A deleted file is closed, and read from its start if it comes back."""
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


def content(tmp_path, data, name="app.log"):
    path = tmp_path / "a" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    os.utime(path, ns=(0, next(TICKS)))
    return path


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\r\r\r\n", ["a", "b"]),
        (b"10%\r50%\r100%\rdone\n", ["10%", "50%", "100%", "done"]),
        (b"a\rb\rc", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"\r\ra\n", ["", "", "a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\0\0\0a\n\0\0\nb\0c\n", ["a", "b\0c"]),
        (b"M\xfcnchen\n\xe2\x82\n", ["M\ufffdnchen", "\ufffd"]),
        ("Zoë\u2028\x85\x0b\x0c\x1e\n".encode(), ["Zoë\u2028\x85\x0b\x0c\x1e"]),
    ],
)
def test_what_ends_a_line(tmp_path, start, data, lines):
    """The same lines come however the file was written: at once, or a byte at a time."""
    content(tmp_path, data)
    assert start.read(start()) == lines

    task, found = start(path=f"{tmp_path}/b/*.log"), []
    (tmp_path / "b").mkdir()
    for number in range(len(data)):
        content(tmp_path, data[number : number + 1], "../b/app.log")
        found += start.read(task)
    assert found == lines


def test_a_file_of_ends_alone_is_read_in_its_time(tmp_path, start):
    """Half a million carriage returns, and no line that they could be the end of."""
    content(tmp_path, b"a\n" + b"\r" * 200_000 + b"\nb\n")
    task = start()
    lines = [line for _ in range(4) for line in start.read(task)]
    assert [line for line in lines if line] == ["a", "b"]


def test_nuls_at_the_end_are_waited_for(tmp_path, start):
    """A program that writes into a file of its final size fills them; no line is passed over."""
    path = content(tmp_path, b"a\n" + b"\0" * 1_000_000)
    task = start()
    assert [start.read(task) for _ in range(3)] == [["a"], [], []]
    with path.open("rb+") as file:
        file.seek(2)
        file.write(b"b\n")
    os.utime(path, ns=(0, next(TICKS)))
    assert start.read(task) == ["b"]


def test_a_long_run_of_nuls_is_one_step(tmp_path, start, caplog):
    """What a file has that was emptied under its writer; the log says it once."""
    content(tmp_path, b"\0" * 3_000_000 + b"a\n\0\0b\n")
    assert start.read(start()) == ["a", "b"]
    assert len([text for text in caplog.messages if "NULs" in text]) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("length", [9, 10, 11, 20, 21])
def test_no_record_is_empty_that_was_cut(tmp_path, start, length, end):
    """Pieces are as long as they may be, and a line's end alone is none."""
    content(tmp_path, b"x" * length + end + b"y" + end)
    *pieces, last = start.read(start(**{"max.line.bytes": "10"}))
    assert [len(piece) for piece in pieces] == [
        min(10, length - start) for start in range(0, length, 10)
    ]
    assert last == "y"


@pytest.mark.parametrize("text", ["ü" * 20, "€" * 20, "😀" * 20, "a😀é€" * 9])
@pytest.mark.parametrize("most", range(4, 12))
def test_no_character_is_cut(tmp_path, start, text, most):
    """Each piece is text, and they are the line together."""
    content(tmp_path, f"{text}\n".encode())
    pieces = start.read(start(**{"max.line.bytes": str(most)}))
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= most for piece in pieces)


def test_defaults_fit_each_other():
    """A line of max.line.bytes, with key, path and schema, is below max.request.size."""
    longest = LogFolderSource.Settings.keys["max.line.bytes"].default
    assert longest + ENVELOPE_BYTES <= ProducerConfig.keys["max.request.size"].default
    assert 3 * os.pathconf("/", "PC_PATH_MAX") <= ENVELOPE_BYTES


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (b"x" * 1_200_000, 2),
        (b"x" * 30_000_000, 30),
        (b'"' * 1_000_000, 2),
        (b"\x1b" * 1_000_000, 6),
        (b"\xfc" * 1_000_000, 3),
        ("ü".encode() * 600_000, 2),
    ],
)
@pytest.mark.parametrize("name", ["JsonConverter", "StringConverter"])
def test_records_of_long_lines_fit_the_producer(tmp_path, start, line, count, name):
    """With default settings: as JSON too, where quotes and control characters become longer."""
    content(tmp_path, b"a\n" + line + b"\nb\n")
    task = start()
    values = [value for _ in range(count + 3) for value in start.read(task)]

    assert [values[0], values[-1]] == ["a", "b"]
    assert "".join(values[1:-1]) == line.decode("utf-8", "replace")
    assert count <= len(values) - 2 <= 2 * count + 2
    converter = {"JsonConverter": JsonConverter, "StringConverter": StringConverter}[name].of({})
    room = ProducerConfig.keys["max.request.size"].default - 10_000
    assert all(len(converter.from_connect_data("t", STRING, value)) <= room for value in values)


def test_a_smaller_producer_cuts_earlier(tmp_path, start, caplog):
    """The connector's own max.request.size counts, and the log says that it does."""
    content(tmp_path, b"x" * 50_000 + b"\n")
    task = start(properties={"producer.override.max.request.size": "40000"})
    assert [len(line) for line in start.read(task)] == [40_000 - ENVELOPE_BYTES] * 2 + [2768]
    assert "lines are cut after 23616 bytes" in caplog.text


def test_compressed_files_are_left_out_with_a_word(tmp_path, start, caplog):
    """Their bytes are no lines; the worker's log names the first of each kind."""
    for ending in ("gz", "bz2", "xz", "zst"):
        for number in (2, 3):
            content(tmp_path, b"packed\n", f"app.log.{number}.{ending}")
    content(tmp_path, b"line\n")
    task = start(path=f"{tmp_path}/*/app.log*")
    assert [start.read(task) for _ in range(3)] == [["line"], [], []]
    assert len([text for text in caplog.messages if "compressed" in text]) == 4


def test_a_file_that_cannot_be_read_stops_no_other(tmp_path, start, caplog, monkeypatch):
    """The log names it once; when it can be read, it is."""
    locked = content(tmp_path, b"secret\n", "locked.log")
    content(tmp_path, b"line\n")
    is_locked, opened = [True], open

    def refusing(path, *arguments, **named):
        if str(path) == str(locked) and is_locked:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **named)

    monkeypatch.setattr("builtins.open", refusing)
    task = start()
    assert [start.read(task) for _ in range(3)] == [["line"], [], []]
    (said,) = [text for text in caplog.messages if "Permission denied" in text]
    assert str(locked) in said
    is_locked.clear()
    assert start.read(task) == ["secret"]


def test_a_name_that_is_no_text_is_shown_in_other_characters(tmp_path, start):
    """Names on a disk are bytes: key, header and offset can be written all the same."""
    path = os.path.join(os.fsencode(tmp_path), b"web-\xff", b"app.log")
    os.mkdir(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(b"line\n")
    (record,) = start().poll()
    assert record.key == "web-\\xff"
    assert json.loads(json.dumps([record.source_partition, record.source_offset]).encode())


def test_many_files_at_once_do_not_fill_the_memory(tmp_path, start):
    """A poll ends after some megabytes, and no file waits until others have no lines."""
    for number in range(30):
        content(tmp_path, (b"x" * 9999 + b"\n") * 60, f"{number}.log")
    task = start()
    sizes = [sum(map(len, start.read(task))) for _ in range(8)]
    assert max(sizes) < MOST_AT_ONCE + 2 * BLOCK
    assert sum(sizes) == 30 * 60 * 9999


def test_tasks_share_the_files(tmp_path, start):
    """Each file has one task, and each line comes once; a name decides, so that files are many."""
    for number in range(60):
        write(tmp_path, f"host-{number}", f"{number}\n")
    planned = start().tasks(3)
    read = [start.read(start(**settings)) for settings in planned]

    assert sorted(int(line) for lines in read for line in lines) == list(range(60))
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


class TestSource(SourceContract):
    """What every source keeps, with the converters of config/connect-standalone.properties."""

    connector = LogFolderSource
    bad_settings = ({"path": ""}, {"max.line.bytes": "0"}, {"host.pattern": "("})

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.logs = tmp_path / "logs"
        self.logs.mkdir()

    def own_settings(self):
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "topic": self.topic,
            "path": f"{self.logs}/*/*.log",
            "scan.interval.ms": "10",
            "key.converter": json_converter,
            "value.converter": json_converter,
        }

    def bring(self, count):
        for number in range(count):
            write(self.logs, f"host-{number % 2}", f"{number}\n")

    def test_lines_of_any_length_reach_the_topic(self):
        """Of quotes and control characters too; the lines beside them come."""
        path = write(self.logs, "host", "")
        path.write_text("a\n" + '"' * 1_200_000 + "\n" + "\x1b" * 300_000 + "\nb\n")
        with self.worker() as worker:
            worker.create(self.properties())
            self.wait_for(7)
        values = [json.loads(value)["payload"] for _, value in self.arrived()]
        assert [values[0], values[-1]] == ["a", "b"]
        assert "".join(values[1:-1]) == '"' * 1_200_000 + "\x1b" * 300_000


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
