"""Directories that nothing refers to are removed later, however often the disk refuses."""

from __future__ import annotations

import errno

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log_segment import LogSegment
from ottla.log.segment_files import (
    MAX_REMOVAL_RETRY_MS,
    REMOVAL_RETRY_MS,
    delete_directory,
    delete_segments,
    remove_later,
)
from ottla.testing import MockRuntime, mock_runtime

GONE = "/data/t-0.-delete"


@pytest.fixture
def runtime() -> MockRuntime:
    runtime = mock_runtime()
    runtime.disk.make_dirs("/data/t-0")
    runtime.disk.make_dirs(GONE)
    return runtime


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_removal_that_is_refused_is_tried_again(runtime, error, caplog):
    """After pauses that double, until the disk agrees: no start of the broker may come for long."""
    runtime.disk.fail("remove_tree", GONE, error=error, times=3)
    remove_later(runtime, GONE, 500)
    runtime.advance(499 + (1 + 2 + 4) * REMOVAL_RETRY_MS)
    remains = runtime.disk.exists(GONE)
    runtime.advance(1)

    assert remains
    assert not runtime.disk.exists(GONE)
    assert caplog.text.count(f"{GONE} cannot be removed") == 3


def test_removal_from_a_broken_disk_fills_no_log(runtime, caplog):
    """It is tried once an hour in the end."""
    runtime.disk.fail("remove_tree", GONE, error=errno.EIO, times=1000)
    remove_later(runtime, GONE, 0)
    runtime.advance(24 * MAX_REMOVAL_RETRY_MS)

    assert caplog.text.count(f"{GONE} cannot be removed") == 31


def test_directory_that_somebody_has_removed_is_let_be(runtime, caplog):
    """There is nothing to say of it, and nothing to try again."""
    remove_later(runtime, GONE, 500)
    runtime.disk.remove_tree(GONE)
    runtime.advance(MAX_REMOVAL_RETRY_MS)

    assert GONE not in caplog.text


def test_directory_that_somebody_empties_meanwhile_is_removed(runtime):
    """A file of it was gone: the rest stayed until the next start of the broker."""
    runtime.disk.fail("remove_tree", GONE, error=errno.ENOENT)
    remove_later(runtime, GONE, 0)
    runtime.advance(REMOVAL_RETRY_MS)

    assert not runtime.disk.exists(GONE)


@pytest.mark.parametrize("is_kept", [False, True])
def test_deleted_log_is_closed_once_and_removed_unless_it_is_kept(runtime, is_kept):
    """Under its new name from the first moment on."""
    closed: list[int] = []
    runtime.disk.fail("remove_tree", "/data/other", error=errno.EMFILE)
    delete_directory(
        runtime, "/data/t-0", "/data/other", 500, lambda: closed.append(1), is_kept=is_kept
    )
    is_renamed = runtime.disk.exists("/data/other") and not runtime.disk.exists("/data/t-0")
    runtime.advance(500)
    before = list(closed)
    runtime.advance(2 * REMOVAL_RETRY_MS)

    assert is_renamed
    assert before == closed == [1]
    assert runtime.disk.exists("/data/other") is is_kept


def test_deleted_segment_is_readable_until_its_files_are_removed(runtime, caplog):
    """Then nothing of it is open; a file that cannot be removed holds up no other."""
    config = TopicConfig.of(BrokerConfig.parse({}), {})
    segments = [LogSegment(runtime.disk, "/data/t-0", base, config, 0) for base in (0, 5)]
    for segment in segments:
        segment.create()
        segment.file.pwrite(b"batch", 0)
    runtime.disk.fail("unlink", "*0.index.deleted")
    delete_segments(runtime, segments, 500)
    runtime.advance(499)
    before = [segment.file.pread(5, 0) for segment in segments]
    names = runtime.disk.list_dir("/data/t-0")
    runtime.advance(1)

    assert before == [b"batch"] * 2
    assert len(names) == 6
    assert all(name.endswith(".deleted") for name in names)
    assert runtime.disk.open_files == []
    assert runtime.disk.list_dir("/data/t-0") == [f"{0:020d}.index.deleted"]
    assert caplog.text.count("cannot be removed") == 1
    runtime.advance(REMOVAL_RETRY_MS)
    assert runtime.disk.list_dir("/data/t-0") == []
