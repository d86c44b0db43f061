"""The disk of the machine: positioned I/O, atomic replacement, locks, closing under a reader."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.runtime import FileRegion, LocalDisk, LocalFile
from ottla.runtime.disk import claim_shared_folder


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk()


def open_file(disk: LocalDisk, path: Path) -> LocalFile:
    file = disk.open(str(path), create=True)
    assert isinstance(file, LocalFile)
    return file


def test_file_reads_what_was_written_at_a_position(disk: LocalDisk, tmp_path: Path) -> None:
    """Bytes beyond the end extend the file; a gap reads as zeros."""
    file = open_file(disk, tmp_path / "log")
    file.pwrite(b"abc", 2)
    file.pwrite(memoryview(b"xyz"), 5)

    assert file.size() == 8
    assert file.pread(100, 0) == b"\0\0abcxyz"
    assert file.pread(2, 3) == b"bc"
    assert file.pread(5, 8) == b""
    file.close()


def test_file_tracks_its_size(disk: LocalDisk, tmp_path: Path) -> None:
    """Overwriting does not grow it, truncating shrinks it, opening again finds it."""
    path = tmp_path / "log"
    file = open_file(disk, path)
    file.pwrite(b"0123456789", 0)
    file.pwrite(b"ab", 3)
    assert file.size() == 10
    file.truncate(4)
    file.fsync()
    file.close()

    again = disk.open(str(path))
    assert again.size() == 4 == disk.file_size(str(path))
    assert again.pread(10, 0) == b"012a"
    again.close()


def test_short_reads_and_writes_of_the_kernel_are_continued(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that moves three bytes per call still moves all of them."""
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, memoryview(data)[:3], at))
    file = open_file(disk, tmp_path / "log")
    file.pwrite(b"0123456789", 1)

    assert file.size() == 11
    assert file.pread(20, 0) == b"\x000123456789"
    file.close()


def test_closed_file_refuses_every_call(disk: LocalDisk, tmp_path: Path) -> None:
    """Its descriptor may belong to another file by now."""
    file = open_file(disk, tmp_path / "log")
    file.close()
    file.close()
    calls = [
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.fsync,
        file.fileno,
    ]

    for call in calls:
        with pytest.raises(OSError, match="the file is closed"):
            call()


def test_file_closed_during_a_call_of_another_thread_stays_open_for_that_call(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor is closed when the fsync under way has ended, not before."""
    file = open_file(disk, tmp_path / "log")
    fd = file.fileno()
    assert fd is not None
    entered, release = threading.Event(), threading.Event()

    def slow_fsync(fd: int) -> None:
        entered.set()
        release.wait()
        os.fstat(fd)  # raises if it was closed

    monkeypatch.setattr(os, "fsync", slow_fsync)
    errors: list[OSError] = []

    def work() -> None:
        try:
            file.fsync()
        except OSError as error:
            errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    entered.wait()
    file.close()
    os.fstat(fd)
    release.set()
    worker.join()

    assert errors == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_open_needs_the_file_unless_it_may_create_it(disk: LocalDisk, tmp_path: Path) -> None:
    """A missing file is an error that names it."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        disk.open(str(tmp_path / "nowhere"))


def test_replace_swaps_the_contents_and_leaves_nothing_behind(
    disk: LocalDisk, tmp_path: Path
) -> None:
    """The temporary file is gone afterwards."""
    path = str(tmp_path / "checkpoint")
    disk.replace(path, b"one")
    disk.replace(path, b"two")

    assert disk.read_bytes(path) == b"two"
    assert disk.list_dir(str(tmp_path)) == ["checkpoint"]


def test_directories_can_be_made_listed_renamed_and_removed(
    disk: LocalDisk, tmp_path: Path
) -> None:
    """The life of a partition's directory."""
    parent = str(tmp_path / "data")
    disk.make_dirs(f"{parent}/topic-0")
    disk.make_dirs(f"{parent}/topic-0")
    open_file(disk, tmp_path / "data" / "topic-0" / "b").close()
    open_file(disk, tmp_path / "data" / "topic-0" / "a").close()
    assert disk.list_dir(f"{parent}/topic-0") == ["a", "b"]
    assert disk.is_dir(f"{parent}/topic-0")
    assert not disk.is_dir(f"{parent}/topic-0/a")

    disk.unlink(f"{parent}/topic-0/a")
    disk.rename(f"{parent}/topic-0", f"{parent}/topic-0.gone-delete")
    disk.fsync_dir(parent)
    assert not disk.exists(f"{parent}/topic-0")
    assert disk.exists(f"{parent}/topic-0.gone-delete/b")

    disk.remove_tree(f"{parent}/topic-0.gone-delete")
    assert disk.list_dir(parent) == []


def test_link_to_a_directory_goes_without_what_it_leads_to(disk: LocalDisk, tmp_path: Path) -> None:
    """An operator has put a partition on another drive so: its removal was tried for ever."""
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive" / "others").touch()
    (tmp_path / "topic-0.gone-delete").symlink_to(tmp_path / "drive")

    disk.remove_tree(str(tmp_path / "topic-0.gone-delete"))
    assert disk.list_dir(str(tmp_path)) == ["drive"]
    assert disk.list_dir(str(tmp_path / "drive")) == ["others"]


def test_path_that_cannot_be_looked_at_is_not_taken_for_missing(
    disk: LocalDisk, tmp_path: Path
) -> None:
    """Only a name that is not there is: a link that leads round in a circle is an error."""
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    assert not disk.exists(str(tmp_path / "file" / "below"))
    assert not disk.is_dir(str(tmp_path / "missing"))

    with pytest.raises(OSError, match="symbolic links"):
        disk.exists(str(tmp_path / "circle" / "below"))
    with pytest.raises(OSError, match="symbolic links"):
        disk.is_dir(str(tmp_path / "circle"))


def test_lock_is_exclusive_until_it_is_released(disk: LocalDisk, tmp_path: Path) -> None:
    """The second holder is refused by name of the path, the third gets it."""
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(OSError, match="another process holds the lock"):
        disk.lock(path)
    lock.release()
    lock.release()

    disk.lock(path).release()


def test_region_reads_its_part_of_the_file(disk: LocalDisk, tmp_path: Path) -> None:
    """A region that ends beyond the file reads what there is."""
    file = open_file(disk, tmp_path / "log")
    file.pwrite(b"0123456789", 0)

    assert FileRegion(file, 2, 4).read() == b"2345"
    assert FileRegion(file, 8, 4).read() == b"89"
    file.close()


def test_bytes_on_the_disk_alone_are_not_cached_until_they_were_read_ahead(tmp_path):
    """What was dropped from the page cache is found missing, read, and found there."""
    path = tmp_path / "cold"
    path.write_bytes(os.urandom(1 << 20))
    file = LocalDisk().open(str(path))
    assert file.is_cached(1 << 20, 0)
    fd = file.fileno()
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(1 << 20, 0):
        pytest.skip("this file system keeps everything in memory")

    file.read_ahead(1 << 20, 0)

    assert file.is_cached(1 << 20, 0)
    file.close()


def test_tail_that_was_just_written_counts_as_cached(tmp_path):
    """It is not looked for: reading at the end of a log stays as quick as it was."""
    file = LocalDisk().open(str(tmp_path / "hot"), create=True)
    file.pwrite(bytes(100), 0)
    file.close()

    assert file.is_cached(100, 0)  # a look would be refused, since the file is closed


def test_private_folder_is_kept_from_other_users(tmp_path):
    """What lies in it has credentials."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o755)
    (folder / "journal").write_text("salt and keys")
    (folder / "journal").chmod(0o644)
    LocalDisk().make_private(str(folder))

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "journal").stat().st_mode) == 0o600


@pytest.fixture
def shared(tmp_path):
    """A place such as /tmp, where all users may make folders."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


def test_folder_in_a_shared_place_is_made_for_its_user_alone(shared):
    """Nobody else can put a link into it, or read it."""
    claim_shared_folder(f"{shared}/logs", "log.dirs")
    claim_shared_folder(f"{shared}/logs", "log.dirs")

    assert stat.S_IMODE((shared / "logs").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folder_of_another_user_is_refused(shared):
    """It may be full of links to files of who starts a server in it."""
    (shared / "logs").mkdir(mode=0o700)
    os.chown(shared / "logs", 65534, 65534)
    with pytest.raises(ConfigError, match=r"log\.dirs=.*/logs: belongs to the user with id 65534"):
        claim_shared_folder(f"{shared}/logs", "log.dirs")


def test_folder_that_everybody_may_write_to_is_refused(shared):
    """A link is refused as well, which another user may have made."""
    (shared / "open").mkdir()
    (shared / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="every user may write to it"):
        claim_shared_folder(f"{shared}/open", "dataDir")
    (shared / "link").symlink_to(shared / "open")
    with pytest.raises(ConfigError, match="must be a folder, and no link to one"):
        claim_shared_folder(f"{shared}/link", "dataDir")


def test_folder_elsewhere_is_left_as_it_is(tmp_path):
    """An operator has made the places of /var for the broker's user."""
    claim_shared_folder(f"{tmp_path}/data/logs", "log.dirs")

    assert not (tmp_path / "data").exists()
