"""A log directory: its lock, its owner, its clean mark, and its end."""

from __future__ import annotations

import errno

import pytest

from ottla.errors import ConfigError, ErrorCode
from ottla.log.log_dir import LogDir, MetaProperties
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk


def new_dir(disk: MemoryDisk | None = None, on_failure=None) -> LogDir:
    log_dir = LogDir(disk or MemoryDisk(), "/var/data/", on_failure)
    log_dir.disk.make_dirs("/var")
    return log_dir


def test_second_broker_cannot_use_the_directory():
    """Until the first one lets it go."""
    disk = MemoryDisk()
    first = new_dir(disk)
    first.acquire()
    with pytest.raises(ConfigError, match=r"log.dirs=/var/data: another process"):
        new_dir(disk).acquire()

    first.release()
    new_dir(disk).acquire()


def test_directory_made_by_a_process_that_was_killed_is_on_disk_as_well():
    """It may have been killed before it had forced the name to disk; then comes a power loss."""
    disk = MemoryDisk()
    disk.make_dirs("/var")
    disk.sync_all()
    disk.make_dirs("/var/data")
    disk.end_process()
    new_dir(disk).acquire()
    disk.crash()

    assert disk.is_dir("/var/data")


def test_meta_properties_are_those_of_kafka():
    """Version 0 names broker and cluster."""
    log_dir = new_dir()
    log_dir.acquire()
    assert log_dir.read_meta_properties() is None
    log_dir.write_meta_properties(MetaProperties(3, "abc-_DEF"))

    assert log_dir.disk.read_bytes("/var/data/meta.properties") == (
        b"version=0\nbroker.id=3\ncluster.id=abc-_DEF\n"
    )
    assert log_dir.read_meta_properties() == (3, "abc-_DEF")


def test_meta_properties_of_others_are_understood():
    """Java's comments, other keys, and the node.id of version 1."""
    log_dir = new_dir()
    log_dir.acquire()
    text = b"#\n#Mon Jan 01\ncluster.id=x\nversion=1\nnode.id=4\ndirectory.id=zz==\n"
    log_dir.disk.replace("/var/data/meta.properties", text)

    assert log_dir.read_meta_properties() == (4, "x")


@pytest.mark.parametrize("text", [b"", b"version=0\n", b"broker.id=x\ncluster.id=y\n", bytes(9)])
def test_damaged_meta_properties_are_refused(text):
    """The operator must say whose data these are."""
    log_dir = new_dir()
    log_dir.acquire()
    log_dir.disk.replace("/var/data/meta.properties", text)

    with pytest.raises(ConfigError, match=r"meta.properties"):
        log_dir.read_meta_properties()


def test_directory_that_was_let_go_is_not_let_go_again():
    """Another broker has it by then."""
    disk = MemoryDisk()
    first, second, third = (LogDir(disk, "/var/data") for _ in range(3))
    first.acquire()
    first.release()
    second.acquire()
    first.release()

    with pytest.raises(ConfigError, match="locked"):
        third.acquire()


def test_clean_mark_lasts_until_the_directory_is_used():
    """Its removal is on disk before anything else changes."""
    log_dir = new_dir()
    log_dir.acquire()
    log_dir.mark_in_use()
    log_dir.mark_clean()
    assert log_dir.is_clean

    log_dir.mark_in_use()
    log_dir.disk.crash()
    assert not log_dir.is_clean


def test_damaged_checkpoint_is_as_good_as_none(caplog):
    """A warning names it."""
    log_dir = new_dir()
    log_dir.acquire()
    log_dir.recovery_points.write({TopicPartition("t", 0): 5})
    assert log_dir.read_offsets(log_dir.recovery_points) == {("t", 0): 5}
    log_dir.disk.replace("/var/data/recovery-point-offset-checkpoint", b"x")

    assert log_dir.read_offsets(log_dir.recovery_points) is None
    assert "recovery-point-offset-checkpoint" in caplog.text


def test_failed_directory_tells_once():
    """The broker hears of it, and it stays offline."""
    told: list[LogDir] = []
    log_dir = new_dir(on_failure=told.append)
    error = log_dir.failed(OSError(errno.EIO, "broken"), "append to t-0")
    log_dir.fail(OSError(errno.EIO, "again"))

    assert log_dir.is_offline
    assert told == [log_dir]
    assert error.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "append to t-0" in str(error)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_errors_that_may_pass_are_not_the_end(number):
    """A full disk may have room again: but in the middle of a change they are like all others."""
    log_dir = new_dir()
    log_dir.refused(OSError(number, "no room"), "append")
    assert not log_dir.is_offline

    log_dir.failed(OSError(number, "no room"), "deletion")
    assert log_dir.is_offline
