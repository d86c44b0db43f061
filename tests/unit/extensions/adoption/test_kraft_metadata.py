"""What is read from the metadata log of a KRaft broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.extensions.adoption.kraft_metadata import KraftMetadata, read_kraft_metadata
from ottla.protocol.message import encode
from ottla.protocol.metadata_records import (
    METADATA_RECORDS,
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.record.batch_builder import build_batch
from ottla.testing import MemoryDisk

DIRECTORY = "/data/__cluster_metadata-0"
LOG = f"{DIRECTORY}/{0:020d}.log"
ID = UUID(int=7)
KEYS = {cls: key for key, cls in METADATA_RECORDS.items()}


def framed(record):
    return bytes((1, KEYS[type(record)], 0)) + encode(record, 0)


def setting(topic, name, value, resource_type=2):
    return ConfigRecord(resource_type=resource_type, resource_name=topic, name=name, value=value)


def batch(*records, base_offset=0):
    values = (record if isinstance(record, bytes) else framed(record) for record in records)
    return build_batch([(0, None, value, ()) for value in values], base_offset=base_offset)


@pytest.fixture
def disk():
    disk = MemoryDisk()
    disk.make_dirs(DIRECTORY)
    return disk


def test_directory_without_a_metadata_log_says_nothing():
    """Brokers on ZooKeeper have none, nor has Ottla."""
    assert read_kraft_metadata(MemoryDisk(), "/data") is None


def test_last_words_are_valid(disk):
    """Settings are set and taken away, topics go with theirs, blocks of ids follow each other."""
    first = batch(
        TopicRecord(name="gone", topic_id=ID),
        setting("gone", "retention.ms", "1"),
        setting("t", "retention.ms", "1"),
        setting("t", "segment.bytes", "1000"),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
    )
    second = batch(
        RemoveTopicRecord(topic_id=ID),
        setting("t", "retention.ms", "2"),
        setting("t", "segment.bytes", None),
        setting("1", "log.retention.ms", "5", resource_type=4),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
        base_offset=5,
    )
    disk.replace(LOG, first + second)

    assert read_kraft_metadata(disk, "/data") == KraftMetadata({"t": {"retention.ms": "2"}}, 2000)


def test_snapshot_stands_for_the_log_before_it(disk):
    """Records that the snapshot covers are not applied again, even inside of a batch."""
    disk.replace(f"{DIRECTORY}/{1:020d}-{1:010d}.checkpoint", batch(setting("t", "a", "old")))
    snapshot = batch(setting("t", "retention.ms", "3"))
    disk.replace(f"{DIRECTORY}/{4:020d}-{1:010d}.checkpoint", snapshot)
    stale = [setting("t", "retention.ms", "stale")] * 4
    disk.replace(LOG, batch(*stale[:2]) + batch(*stale[2:], setting("t", "x", "4"), base_offset=2))

    found = read_kraft_metadata(disk, "/data")

    assert found == KraftMetadata({"t": {"retention.ms": "3", "x": "4"}}, 0)


def test_what_is_not_known_is_passed_over(disk):
    """Other kinds of records, versions to come, control batches and a torn end do no harm."""
    later = bytes((1, KEYS[ConfigRecord], 9)) + b"whatever"
    known = setting("t", "retention.ms", "3")
    control = build_batch([(0, b"\0\0\0\0", b"\0\0", ())], is_control=True)
    torn = batch(setting("t", "retention.ms", "torn"), base_offset=4)[:-1]
    disk.replace(LOG, control + batch(b"\x01\x1b\x00", later, b"", known, base_offset=1) + torn)

    found = read_kraft_metadata(disk, "/data")

    assert found is not None
    assert found.topic_configs == {"t": {"retention.ms": "3"}}
