"""Offsets of sources, in memory and in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

import numpy
import pytest

from ottla.connect.offset_storage import (
    FileOffsetStorage,
    OffsetStorage,
    OwnOffsets,
    SourceOffset,
    check_simple,
    check_stored,
    partition_key,
)
from ottla.errors import ConfigError, KafkaError, KafkaTimeoutError


def test_order_of_keys_does_not_matter():
    """Two maps with the same pairs are one partition: Kafka's own would lose the place."""
    assert partition_key({"a": 1, "b": 2}) == partition_key({"b": 2, "a": 1})


def test_offsets_come_back_from_the_file(tmp_path):
    """A line of compact JSON for each partition; None takes one away."""
    path = tmp_path / "folder" / "offsets"
    storage = FileOffsetStorage(str(path))
    storage.write([SourceOffset("c", {"f": "č"}, {"n": 1}), SourceOffset("d", {}, {"n": 2})], 1)
    storage.write([SourceOffset("d", {}, None)], 1)

    again = FileOffsetStorage(str(path))
    assert path.read_text() == '[["c",{"f":"č"}],{"n":1}]\n'
    assert again.table.get("c", {"f": "č"}) == {"n": 1}
    assert again.table.get("d", {}) is None
    assert again.table.of("c") == [SourceOffset("c", {"f": "č"}, {"n": 1})]


@pytest.mark.parametrize("text", ["not JSON\n", "[1,2,3]\n", '[["c",{}],{"n":1}]\n{"c'])
def test_damaged_file_is_no_file_without_offsets(tmp_path, text):
    """Everything would be read again: the line is named instead."""
    path = tmp_path / "offsets"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"line \d must be"):
        FileOffsetStorage(str(path))


def test_file_of_kafkas_worker_is_named(tmp_path):
    """It holds serialised objects of Java."""
    path = tmp_path / "offsets"
    path.write_bytes(b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap")

    with pytest.raises(ConfigError, match="objects of Java are not read here"):
        FileOffsetStorage(str(path))


RECURSIVE = {}
RECURSIVE["n"] = RECURSIVE
NOT_JSON = [
    {"n": Decimal(1)},
    {"n": datetime(2026, 11, 26, tzinfo=UTC)},
    {"n": b"1"},
    {"n": numpy.int64(1)},
    {"n": {1, 2}},
    {"n": float("nan")},
    {"n": float("-inf")},
    {"n": object()},
    {1: 2},
    {None: 2},
    {"n": {1: 2}},
    {"n": [{True: 2}]},
    {"n": "cut \ud83d"},
    {"cut \ud83d": 1},
    RECURSIVE,
]


@pytest.mark.parametrize("place", NOT_JSON)
def test_what_json_cannot_hold_is_refused_and_spoils_nothing(tmp_path, place):
    """Neither in the file nor in the table: what other connectors have stored stays readable."""
    path = tmp_path / "offsets"
    storage = FileOffsetStorage(str(path))
    storage.write([SourceOffset("good", {"f": 1}, {"n": 1})], 1)
    for entry in (SourceOffset("bad", place, {"n": 1}), SourceOffset("bad", {"f": 1}, place)):
        with pytest.raises(KafkaError, match="must have names and"):
            storage.write([entry], 1)
    storage.write([SourceOffset("good", {"f": 1}, {"n": 2})], 1)

    assert FileOffsetStorage(str(path)).table.all() == [SourceOffset("good", {"f": 1}, {"n": 2})]


@pytest.mark.parametrize(
    "place",
    [
        {},
        {"n": 1 << 70, "f": 1.5, "t": "č\u2028\u0085\n", "b": False, "none": None, "": ""},
        MappingProxyType({"n": 1}),
        {"deep": [{"a": [1, None]}]},
    ],
    ids=repr,
)
def test_what_json_holds_comes_back(tmp_path, place):
    """Offsets come back as they were, with line ends of Unicode within a text."""
    path = tmp_path / "offsets"
    check_stored(place, "offset")
    FileOffsetStorage(str(path)).write([SourceOffset("c", {"p": "a\u2028b"}, place)], 1)

    assert FileOffsetStorage(str(path)).table.get("c", {"p": "a\u2028b"}) == dict(place)


def test_place_that_changes_later_is_not_what_was_stored(tmp_path):
    """A connector may use the dict again that it has handed over."""
    path, offset = tmp_path / "offsets", {"n": 1}
    storage = FileOffsetStorage(str(path))
    storage.write([SourceOffset("a", {}, offset)], 1)
    offset["n"] = Decimal(2)
    storage.write([SourceOffset("b", {}, {"n": 3})], 1)

    assert FileOffsetStorage(str(path)).table.get("a", {}) == {"n": 1}


def test_place_has_simple_values():
    """Names and values that JSON has one form for."""
    check_simple({"n": 1, "t": "x", "b": True, "none": None}, "offset")
    with pytest.raises(ConfigError, match=r"offset=\{'n': \[1\]\}: must have names and simple"):
        check_simple({"n": [1]}, "offset")


class FlakyStorage(OffsetStorage):
    """Keeps offsets in memory, until it fails."""

    topic = "offsets"
    is_down = False

    def encode(self, entries):
        return self.topic, [(b"key", None) for _ in entries]

    def write(self, entries, timeout_ms):
        if self.is_down:
            raise KafkaTimeoutError("no broker takes it")
        self.note_committed(entries)

    def start(self):
        pass


@pytest.mark.parametrize("way", ["write", "transaction"])
def test_offset_that_is_removed_from_a_topic_of_its_own_does_not_come_back(way):
    """It was copied to the workers' topic, which counts where the other has none."""
    own, of_worker = FlakyStorage(), FlakyStorage()
    offsets = OwnOffsets(own, of_worker)

    def store(offset):
        entries = [SourceOffset("c", {"f": 1}, offset)]
        if way == "write":
            offsets.write(entries, 1)
        else:
            offsets.encode(entries)
            offsets.note_committed(entries)

    store({"n": 1})
    of_worker.is_down = True
    store({"n": 2})  # the copy of what is kept may be late
    assert offsets.table.get("c", {"f": 1}) == {"n": 2}
    with pytest.raises(KafkaTimeoutError):
        store(None)
    assert offsets.table.get("c", {"f": 1}) == {"n": 2}
    of_worker.is_down = False
    store(None)
    assert offsets.table.get("c", {"f": 1}) is None
    assert offsets.table.of("c") == []
