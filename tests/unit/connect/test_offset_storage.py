"""Offsets of sources, in memory and in a file."""

from __future__ import annotations

import pytest

from ottla.connect.offset_storage import (
    FileOffsetStorage,
    SourceOffset,
    check_simple,
    partition_key,
)
from ottla.errors import ConfigError


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


def test_place_has_simple_values():
    """Names and values that JSON has one form for."""
    check_simple({"n": 1, "t": "x", "b": True, "none": None}, "offset")
    with pytest.raises(ConfigError, match=r"offset=\{'n': \[1\]\}: must have names and simple"):
        check_simple({"n": [1]}, "offset")
