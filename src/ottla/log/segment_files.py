"""The files of a segment as a whole: forcing them to disk, and giving them other names."""

from __future__ import annotations

from ottla.log.log_segment import LogSegment
from ottla.runtime import Disk


def sync_files(disk: Disk, segment: LogSegment) -> None:
    """Force batches and indexes to disk; their names are not forced with them."""
    segment.file.fsync()
    for path in segment.files()[1:]:
        file = disk.open(path)
        try:
            file.fsync()
        finally:
            file.close()


def set_suffix(segment: LogSegment, suffix: str) -> None:
    """Have the files named with a suffix, which tells recovery what they are."""
    previous, segment.suffix = segment.suffix, suffix
    for index in (segment.offset_index, segment.time_index, segment.txn_index):
        index.path = index.path.removesuffix(previous) + suffix


def rename_files(disk: Disk, segment: LogSegment, suffix: str) -> None:
    """Give the files another suffix, that of the batches first."""
    for path in segment.files():
        disk.rename(path, path.removesuffix(segment.suffix) + suffix)
    set_suffix(segment, suffix)
