"""A disk in memory: what survives a crash, what fails on demand, when it is full."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.runtime import File, FileRegion
from ottla.testing import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/data/topic-0")
    disk.sync_all()
    return disk


def create(disk: MemoryDisk, name: str, content: bytes) -> File:
    file = disk.open(f"/data/topic-0/{name}", create=True)
    file.pwrite(content, 0)
    return file


def test_file_reads_what_was_written(disk: MemoryDisk) -> None:
    """Positions, gaps, the end of the file, and regions work as on a real disk."""
    file = create(disk, "log", b"abc")
    file.pwrite(b"xyz", 5)

    assert file.size() == 8 == disk.file_size("/data/topic-0/log")
    assert file.pread(100, 0) == b"abc\0\0xyz"
    assert file.pread(5, 8) == b""
    assert FileRegion(file, 5, 2).read() == b"xy"
    assert file.fileno() is None
    file.truncate(2)
    assert disk.read_bytes("/data/topic-0/log") == b"ab"


def test_crash_loses_bytes_that_were_not_synced(disk: MemoryDisk) -> None:
    """Truncation is a change like any other."""
    file = create(disk, "log", b"synced")
    file.fsync()
    disk.fsync_dir("/data/topic-0")
    file.pwrite(b"lost", 6)
    file.truncate(2)
    disk.crash()

    assert disk.read_bytes("/data/topic-0/log") == b"synced"


def test_crash_loses_names_whose_directory_was_not_synced(disk: MemoryDisk) -> None:
    """A new file, a rename and an unlink are all undone, though the bytes were synced."""
    for name in ("renamed", "removed"):
        create(disk, name, b"old").fsync()
    disk.fsync_dir("/data/topic-0")
    create(disk, "new", b"new").fsync()
    disk.rename("/data/topic-0/renamed", "/data/topic-0/other")
    disk.unlink("/data/topic-0/removed")
    assert disk.list_dir("/data/topic-0") == ["new", "other"]
    disk.crash()

    assert disk.list_dir("/data/topic-0") == ["removed", "renamed"]


def test_directory_that_was_not_synced_is_gone_with_everything_in_it(disk: MemoryDisk) -> None:
    """The parent's entry counts."""
    disk.make_dirs("/data/topic-1")
    disk.replace("/data/topic-1/checkpoint", b"1")
    disk.crash()

    assert disk.list_dir("/data") == ["topic-0"]


def test_replace_survives_a_crash_whole(disk: MemoryDisk) -> None:
    """The old contents are gone, the new ones there."""
    disk.replace("/data/topic-0/checkpoint", b"one")
    disk.replace("/data/topic-0/checkpoint", b"two")
    disk.crash()

    assert disk.read_bytes("/data/topic-0/checkpoint") == b"two"


def test_crash_with_chance_keeps_a_prefix_of_the_writes() -> None:
    """The last write that is kept may be torn at any byte; nothing synced is lost."""
    outcomes = set()
    for seed in range(60):
        disk = MemoryDisk()
        file = disk.open("/log", create=True)
        file.pwrite(b"synced", 0)
        file.fsync()
        disk.fsync_dir("/")
        file.pwrite(b"one", 6)
        file.pwrite(b"two", 9)
        disk.crash(random.Random(seed))
        outcomes.add(disk.read_bytes("/log"))

    assert outcomes <= {b"syncedonetwo"[:size] for size in range(6, 13)}
    assert len(outcomes) > 4


def test_file_that_was_open_at_the_crash_is_of_no_use(disk: MemoryDisk) -> None:
    """The process that had it open is gone."""
    file = create(disk, "log", b"x")
    disk.sync_all()
    disk.crash()

    with pytest.raises(OSError, match="before the crash"):
        file.pread(1, 0)
    assert disk.open("/data/topic-0/log").pread(1, 0) == b"x"


def test_fault_strikes_matching_calls_only_and_as_often_as_was_said(disk: MemoryDisk) -> None:
    """Second fsync of logs: fails once with EIO, then works again."""
    log, index = create(disk, "1.log", b"x"), create(disk, "1.index", b"x")
    disk.fail("fsync", "*.log", skip=1)
    log.fsync()
    index.fsync()
    with pytest.raises(OSError, match=r"1\.log") as failed:
        log.fsync()
    log.fsync()

    assert failed.value.errno == errno.EIO


@pytest.mark.parametrize(
    "operation", ["open", "replace", "rename", "unlink", "list_dir", "fsync_dir", "make_dirs"]
)
def test_every_operation_of_the_disk_can_fail(disk: MemoryDisk, operation: str) -> None:
    """Each call fails with the error that was asked for, and without effect."""
    create(disk, "a", b"x")
    disk.fail(operation, error=errno.EACCES)
    calls = {
        "open": lambda: disk.open("/data/topic-0/b", create=True),
        "replace": lambda: disk.replace("/data/topic-0/b", b"x"),
        "rename": lambda: disk.rename("/data/topic-0/a", "/data/topic-0/b"),
        "unlink": lambda: disk.unlink("/data/topic-0/a"),
        "list_dir": lambda: disk.list_dir("/data/topic-0"),
        "fsync_dir": lambda: disk.fsync_dir("/data/topic-0"),
        "make_dirs": lambda: disk.make_dirs("/data/topic-0/b"),
    }
    with pytest.raises(PermissionError):
        calls[operation]()

    assert disk.list_dir("/data/topic-0") == ["a"]


def test_each_call_is_asked_about_and_can_fail(disk: MemoryDisk) -> None:
    """The callable gets the method and the path; what it raises is the error of that call."""
    asked: list[tuple[str, str]] = []

    def refuse_renames(operation: str, path: str) -> None:
        asked.append((operation, path))
        if operation == "rename":
            raise OSError(errno.EDQUOT, "quota", path)

    file = create(disk, "a", b"x")
    disk.on_call = refuse_renames
    file.fsync()
    disk.exists("/data/topic-0/b")
    disk.file_size("/data/topic-0/a")
    with pytest.raises(OSError, match="quota"):
        disk.rename("/data/topic-0/a", "/data/topic-0/b")

    assert disk.list_dir("/data/topic-0") == ["a"]
    assert asked == [
        ("fsync", "/data/topic-0/a"),
        ("exists", "/data/topic-0/b"),
        ("file_size", "/data/topic-0/a"),
        ("rename", "/data/topic-0/a"),
        ("list_dir", "/data/topic-0"),
    ]


def test_short_write_is_continued_and_may_fail_then(disk: MemoryDisk) -> None:
    """What was written before the error stays in the file, as on a real disk."""
    shorts: list[int | None] = [2, 1, None]
    disk.on_call = lambda operation, path: shorts.pop(0) if operation == "pwrite" else None
    file = create(disk, "log", b"abcdef")
    assert file.pread(9, 0) == b"abcdef"
    assert not shorts

    shorts[:] = [2]
    with pytest.raises(IndexError):
        file.pwrite(b"xyz", 6)

    assert file.pread(9, 0) == b"abcdefxy"


def test_replaced_file_whose_name_cannot_be_synced_is_new_until_a_crash(disk: MemoryDisk) -> None:
    """The sync of the directory comes last: an error of it says nothing about the contents."""
    disk.replace("/data/topic-0/checkpoint", b"old")
    disk.fail("fsync_dir")
    with pytest.raises(OSError, match="Input/output"):
        disk.replace("/data/topic-0/checkpoint", b"new")
    assert disk.read_bytes("/data/topic-0/checkpoint") == b"new"
    disk.crash()

    assert disk.read_bytes("/data/topic-0/checkpoint") == b"old"


def test_full_disk_takes_what_fits_and_refuses_the_rest(disk: MemoryDisk) -> None:
    """The kernel does the same: a short write, then ENOSPC; overwriting needs no room."""
    disk.capacity_in_bytes = 10
    file = create(disk, "log", b"12345678")
    with pytest.raises(OSError, match="No space left") as failed:
        file.pwrite(b"abcd", 8)

    assert failed.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"12345678ab"
    file.pwrite(b"ABCD", 0)
    with pytest.raises(OSError, match="No space left"):
        disk.replace("/data/topic-0/checkpoint", b"x")
    assert not disk.exists("/data/topic-0/checkpoint")


def test_missing_and_wrong_kinds_of_paths_are_the_usual_errors(disk: MemoryDisk) -> None:
    """Named as `os` names them."""
    create(disk, "file", b"")
    with pytest.raises(FileNotFoundError):
        disk.open("/data/topic-0/missing")
    with pytest.raises(FileNotFoundError):
        disk.open("/nowhere/file", create=True)
    with pytest.raises(IsADirectoryError):
        disk.open("/data/topic-0")
    with pytest.raises(NotADirectoryError):
        disk.list_dir("/data/topic-0/file")
    with pytest.raises(FileExistsError):
        disk.make_dirs("/data/topic-0/file")
    with pytest.raises(OSError, match="not empty"):
        disk.rename("/data/topic-0/file", "/data")


def test_directories_can_be_renamed_and_removed(disk: MemoryDisk) -> None:
    """Everything below moves along; unlinked files stay readable for who has them open."""
    file = create(disk, "log", b"content")
    disk.rename("/data/topic-0", "/data/topic-0.1-delete")
    assert disk.read_bytes("/data/topic-0.1-delete/log") == b"content"
    assert not disk.is_dir("/data/topic-0")
    disk.remove_tree("/data/topic-0.1-delete")

    assert disk.list_dir("/data") == []
    assert file.pread(7, 0) == b"content"


def test_lock_is_exclusive_until_released_or_crashed(disk: MemoryDisk) -> None:
    """A crash ends the process that held it."""
    lock = disk.lock("/data/.lock")
    with pytest.raises(OSError, match="another process"):
        disk.lock("/data/.lock")
    lock.release()
    disk.lock("/data/.lock")
    disk.crash()

    disk.lock("/data/.lock").release()


def test_closed_file_refuses_calls(disk: MemoryDisk) -> None:
    """A closed real file does the same."""
    file = create(disk, "log", b"x")
    file.close()

    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)
