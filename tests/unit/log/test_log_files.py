"""Names of files and directories, and which names are no logs."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.log.log_dir import read_topic_id, write_topic_id
from ottla.log.log_files import (
    deleted_dir_name,
    parse_partition_dir,
    parse_segment_name,
    segment_path,
)
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk


def test_segment_path_has_twenty_digits():
    """So that names sort as offsets do."""
    assert segment_path("/d/t-0", 42, ".log") == "/d/t-0/00000000000000000042.log"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.index.deleted", (42, ".index", ".deleted")),
        ("00000000000000000042.log.swap", (42, ".log", ".swap")),
        ("42.log", None),
        ("leader-epoch-checkpoint", None),
        ("00000000000000000042.log\n", None),
    ],
)
def test_segment_names_are_taken_apart(name, parsed):
    """Other files in the directory are none of the segments'."""
    assert parse_segment_name(name) == parsed


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("a-b.c_d-12", TopicPartition("a-b.c_d", 12)),
        ("__consumer_offsets-0", TopicPartition("__consumer_offsets", 0)),
        ("topic", None),
        ("topic-01", None),
        ("topic--1", TopicPartition("topic-", 1)),
        ("topic-0.0123456789abcdef0123456789abcdef-delete", None),
        ("topic-0.0123456789abcdef0123456789abcdef-future", None),
        (".-0", None),
        ("..-0", None),
        ("-0", None),
    ],
)
def test_partition_directories_are_recognised(name, parsed):
    """A topic may hold dashes and digits; the last number is the partition."""
    assert parse_partition_dir(name) == parsed


def test_deleted_directory_has_a_name_that_a_file_system_takes():
    """The longest topic is cut, the suffix never is."""
    name = deleted_dir_name(TopicPartition("t" * 249, 1234567), "0" * 32)

    assert len(name) == 255
    assert name.endswith(f"t-1234567.{'0' * 32}-delete")


def test_topic_id_takes_the_place_of_a_longer_text():
    """Somebody has edited the file; nothing of it is left behind the id, and it is closed."""
    disk = MemoryDisk()
    disk.replace("/partition.metadata", b"version: 0\n" * 20 + b"topic_id: x\n")
    topic_id = UUID("01234567-89ab-cdef-0123-456789abcdef")
    write_topic_id(disk, "/partition.metadata", topic_id)

    assert read_topic_id(disk, "/partition.metadata") == topic_id
    assert disk.contents("/partition.metadata").count(b"\n") == 2
    assert disk.open_files == []
