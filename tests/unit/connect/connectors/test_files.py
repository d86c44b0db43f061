"""Lines of files as records, and back."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from io import FileIO
from types import SimpleNamespace

import pytest
from contexts import LoneContext

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors import files
from ottla.connect.connectors.files import FileStreamSink, FileStreamSource
from ottla.connect.data import STRING, SinkRecord
from ottla.errors import ConfigError
from ottla.testing.connector_contract import SourceContract


@pytest.fixture
def source():
    """Makes sources, and stops them after the test."""
    made = []

    def make(path, position=None, **settings):
        stored = {} if position is None else {(("filename", str(path)),): {"position": position}}
        found = FileStreamSource(
            FileStreamSource.Settings(file=str(path), topic="t", **settings), LoneContext(stored)
        )
        made.append(found)
        found.start()
        return found

    yield make
    for each in made:
        each.stop()


def lines(records):
    return [record.value for record in records]


def test_lines_are_records_with_their_places(tmp_path, source):
    """Partition and offset are Kafka's, the value is a string with its schema."""
    path = tmp_path / "test.txt"
    path.write_bytes(b"foo\nbar\n")

    first, second = source(path).poll()

    assert (first.topic, first.value, first.value_schema, first.key) == ("t", "foo", STRING, None)
    assert second.source_partition == {"filename": str(path)}
    assert second.source_offset == {"position": 8}


def test_lines_may_be_one_batch(tmp_path, source):
    """Where no record is looked at: the offset is that behind the last line."""
    path = tmp_path / "test.txt"
    path.write_bytes(b"foo\r\nbar\nbaz\nha")
    reader = source(path, batch_size=2)
    taken = []
    reader.context.batch = lambda topic, values, schema: taken.append((topic, *values)) or "content"

    first = reader.poll()
    second = reader.poll()

    assert taken == [("t", "foo", "bar"), ("t", "baz")]
    assert [(each.content, each.source_offset) for each in (*first, *second)] == [
        ("content", {"position": 9}),
        ("content", {"position": 13}),
    ]
    assert reader.poll() == []


def test_line_counts_once_it_has_ended(tmp_path, source):
    """Half a line waits for its rest, and \\r for what comes after it."""
    path = tmp_path / "test.txt"
    path.write_bytes(b"foo\nha")
    reader = source(path)

    assert lines(reader.poll()) == ["foo"]
    assert lines(reader.poll()) == []
    with path.open("ab") as file:
        file.write(b"lf\r")
    assert lines(reader.poll()) == []
    with path.open("ab") as file:
        file.write(b"\nmac\rx")
    assert lines(reader.poll()) == ["half", "mac"]


def test_offset_is_in_bytes(tmp_path, source):
    """After a line that is not ASCII it still continues at the right place."""
    path = tmp_path / "test.txt"
    path.write_text("žluťoučký\nkůň\n", encoding="utf-8")
    first, _ = source(path).poll()

    assert lines(source(path, first.source_offset["position"]).poll()) == ["kůň"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_lines_are_the_same_in_blocks_of_any_size(tmp_path, source, monkeypatch, size):
    """Ends may fall on both sides of one."""
    monkeypatch.setattr(files, "BLOCK_BYTES", size)
    content = b"one\r\ntwo\rthree\n\r\r\nfour and more\n\n\rfive\r\n"
    path = tmp_path / "test.txt"
    path.write_bytes(content)
    reader = source(path)
    found = [record for _ in content for record in reader.poll()]

    assert lines(found) == content.decode().splitlines()
    assert found[-1].source_offset == {"position": len(content)}


def test_a_line_of_many_blocks_is_put_together_once(tmp_path, source, monkeypatch):
    """A line of 200 MB took minutes: all of it was copied for each block."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 10)
    looks = []
    is_whole = files._is_whole
    monkeypatch.setattr(files, "_is_whole", lambda line: looks.append(line) or is_whole(line))
    path = tmp_path / "test.txt"
    path.write_bytes(b"x" * 9_995 + b"\nend\n")
    reader = source(path)
    found = [record for _ in range(5) for record in reader.poll()]

    assert [len(line) for line in lines(found)] == [9_995, 3]
    assert len(looks) < 5


def test_missing_file_is_waited_for(tmp_path, source):
    """It may be created later."""
    path = tmp_path / "later.txt"
    reader = source(path)

    assert reader.poll() == []
    path.write_text("now\n")
    assert lines(reader.poll()) == ["now"]


def test_shorter_file_is_another_file(tmp_path, source):
    """A file that was replaced is read from its start."""
    path = tmp_path / "test.txt"
    path.write_text("a long line\n")
    reader = source(path)
    reader.poll()
    path.write_text("new\n")

    assert lines(reader.poll()) == ["new"]


@pytest.mark.parametrize("content", ["new\n", "a new file that is longer\n"])
def test_file_that_was_rotated_is_read_to_its_end(tmp_path, source, content):
    """Then the new one of its name, however long it is; before it is there, nothing is lost."""
    path = tmp_path / "test.txt"
    path.write_text("1\n")
    reader = source(path)
    assert lines(reader.poll()) == ["1"]
    with path.open("a") as file:
        file.write("2\nlast")
    path.rename(tmp_path / "test.txt.1")
    assert lines(reader.poll()) == ["2"]
    assert lines(reader.poll()) == []
    path.write_text(content)
    assert lines(reader.poll()) == ["last", content.strip()]


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"a\rb\r\nc\r\r\nd\n", ["a", "b", "c", "", "d"]),
        (b"\0\0a\0\n", ["\0\0a\0"]),
        (b"\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b"M\xfcnchen\n\xe2\x82\n", ["M\ufffdnchen", "\ufffd"]),
        (b"x" * 1_200_000 + b"\n", ["x" * 1_200_000]),
        (b"a\nno end", ["a"]),
    ],
)
def test_lines_are_kafkas(tmp_path, source, data, values):
    """What is in a line stays in it, as in Kafka's own; bytes that are no UTF-8 are replaced."""
    path = tmp_path / "test.txt"
    path.write_bytes(data)
    reader = source(path)
    assert [value for _ in range(3) for value in lines(reader.poll())] == values


def test_batches_are_as_large_as_said(tmp_path, source):
    """batch.size bounds what one poll returns."""
    path = tmp_path / "test.txt"
    path.write_text("1\n2\n3\n")
    reader = source(path, batch_size=2)

    assert [lines(reader.poll()) for _ in range(2)] == [["1", "2"], ["3"]]


def test_stopped_source_has_closed_its_file(tmp_path, source):
    """Stop closes what was opened, twice if need be."""
    path = tmp_path / "test.txt"
    path.write_text("1\n")
    reader = source(path)
    reader.poll()
    reader.stop()
    reader.stop()

    assert reader._file is None


def test_offsets_of_a_person_are_checked():
    """Only a position in a file can be set (KIP-875)."""
    settings = FileStreamSource.Settings(file="f", topic="t")
    good = {"filename": "f"}

    assert FileStreamSource.alter_offsets(settings, [(good, {"position": 3}), (good, None)])
    with pytest.raises(ConfigError, match=r"position=-1: must be a whole number"):
        FileStreamSource.alter_offsets(settings, [(good, {"position": -1})])
    with pytest.raises(ConfigError, match="must have the one key filename"):
        FileStreamSource.alter_offsets(settings, [({"file": "f"}, {"position": 3})])
    with pytest.raises(ConfigError, match="standard input has no offsets"):
        FileStreamSource.alter_offsets(FileStreamSource.Settings(topic="t"), [])


def test_only_files_have_exactly_once():
    """Standard input cannot be read again."""
    assert FileStreamSource.is_exactly_once(FileStreamSource.Settings(file="f", topic="t"))
    assert not FileStreamSource.is_exactly_once(FileStreamSource.Settings(topic="t"))


class TestSource(SourceContract):
    """What every source keeps."""

    connector = FileStreamSource
    bad_settings = ({"topic": ""}, {"batch.size": "0"})

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.path = tmp_path / "lines.txt"

    def own_settings(self):
        return {"topic": self.topic, "file": str(self.path)}

    def bring(self, count):
        with self.path.open("a") as file:
            file.writelines(f"{number}\n" for number in range(count))

    def test_a_line_above_the_producers_limit_is_left_out_if_tolerated(self):
        """The lines beside it come; by default the task fails at it, as in Kafka."""
        self.path.write_text("a\n" + "x" * 1_500_000 + "\nb\n")
        with self.worker() as worker:
            worker.create(self.properties(errors_tolerance="all"))
            assert [value for _, value in self.wait_for(2)] == [b"a", b"b"]


def test_sink_appends_lines(tmp_path):
    """A null is written as null, as Kafka's does."""
    path = tmp_path / "test.sink.txt"
    path.write_text("before\n")
    sink = FileStreamSink(FileStreamSink.Settings(file=str(path)), LoneContext())
    sink.start()
    sink.put([SinkRecord(topic="t", partition=0, offset=n, value=v) for n, v in enumerate("ab")])
    sink.put([SinkRecord(topic="t", partition=0, offset=2, value=None)])
    sink.flush({})

    assert path.read_text() == "before\na\nb\nnull\n"
    sink.stop()
    assert FileStreamSink.alter_offsets(sink.settings, {})


NOT_A_LINE = {
    "lone surrogate": "cut \ud83d",
    "inner lone surrogate": {"a": ["\udfff"]},
    "bytes": b"x",
    "set": {1},
    "own class": object(),
}


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("value", NOT_A_LINE.values(), ids=NOT_A_LINE)
def test_what_is_no_line_is_reported_and_the_rest_is_written(tmp_path, value, at):
    """With any error of one record each is a line or was reported, once."""
    path, reported = tmp_path / "lines", []
    context = SimpleNamespace(report=lambda record, error: reported.append(record.offset))
    sink = FileStreamSink(FileStreamSink.Settings(file=str(path)), context)
    sink.start()
    values = ["a", "b", "c"]
    values[at] = value
    sink.put([SinkRecord(topic="t", partition=0, offset=n, value=v) for n, v in enumerate(values)])
    sink.stop()

    assert reported == [at]
    assert path.read_text().splitlines() == [v for v in "abc" if v in values]


def test_half_a_line_of_a_crash_spoils_no_other(tmp_path):
    """Its record comes again, and has a line of its own."""
    path = tmp_path / "lines"
    path.write_text("whole\nha")
    sink = FileStreamSink(FileStreamSink.Settings(file=str(path)), LoneContext())
    sink.start()
    sink.put([SinkRecord(topic="t", partition=0, offset=1, value="half")])
    sink.stop()

    assert path.read_text() == "whole\nha\nhalf\n"


class SmallDisk(FileIO):
    """A file on a disk that is full behind so many bytes."""

    room = 0

    def write(self, data):
        count = min(len(data), SmallDisk.room)
        if not count:
            raise OSError(errno.ENOSPC, "No space left on device")
        SmallDisk.room -= count
        return super().write(data[:count])


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize("again", ["the same", "others"])
def test_full_disk_is_waited_for_and_no_line_is_cut_or_doubled(tmp_path, monkeypatch, room, again):
    """The same records go on where the disk became full; before others a begun line gets its end.

    A record that is no line is reported once, however often its neighbours come.
    """
    monkeypatch.setattr(files, "FileIO", SmallDisk)
    path, reported = tmp_path / "lines", []
    context = SimpleNamespace(report=lambda record, error: reported.append(record.offset))
    sink = FileStreamSink(FileStreamSink.Settings(file=str(path)), context)
    sink.start()
    values = ["abc", "\ud83d", "def", "ghi"]
    given = [SinkRecord(topic="t", partition=0, offset=n, value=v) for n, v in enumerate(values)]
    SmallDisk.room = room
    is_full = room < len("abc\ndef\nghi\n")
    for _ in range(3):
        with pytest.raises(TryAgainError, match="No space left") if is_full else nullcontext():
            sink.put(given)
        if not is_full:
            break
    assert reported == [1]
    SmallDisk.room = 1000
    lines = ["abc", "def", "ghi"]
    if again == "others":
        whole = -(-room // 4)  # with the line that was begun
        sink.put([SinkRecord(topic="t", partition=1, offset=0, value="xyz")])
        lines = [*lines[:whole], "xyz"] if is_full else [*lines, "xyz"]
    elif is_full:
        sink.put(given)
    sink.stop()

    assert path.read_text().splitlines() == lines
    assert reported == [1]


@pytest.mark.parametrize("how", ["rename", "unlink"])
@pytest.mark.parametrize("is_made_again", [True, False])
def test_lines_go_into_the_file_that_has_the_name(tmp_path, caplog, how, is_made_again):
    """One that was renamed or deleted is held by nobody: its lines would be committed and gone."""
    path, old = tmp_path / "lines", tmp_path / "lines.1"
    sink = FileStreamSink(FileStreamSink.Settings(file=str(path)), LoneContext())
    sink.start()
    sink.put([SinkRecord(topic="t", partition=0, offset=0, value="before")])
    path.rename(old) if how == "rename" else path.unlink()
    if is_made_again:
        path.write_text("another\nha")
    for offset, value in enumerate(["after", "and on"], 1):
        sink.put([SinkRecord(topic="t", partition=0, offset=offset, value=value)])
    sink.stop()

    there = ["another", "ha"] if is_made_again else []
    assert path.read_text().splitlines() == [*there, "after", "and on"]
    if how == "rename":
        assert old.read_text() == "before\n"
    assert caplog.text.count("was renamed or deleted") == 1
