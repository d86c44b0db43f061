"""The files of segments as a whole: forced to disk, renamed, and deleted in two steps.

They are renamed now, and removed when no read can be under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.log.log_dir import PASSING_ERRORS
from ottla.log.log_files import DELETED_SUFFIX
from ottla.log.log_segment import LogSegment
from ottla.runtime import Disk, Runtime

logger = logging.getLogger(__name__)


def delete_segments(runtime: Runtime, segments: Sequence[LogSegment], delay_ms: int) -> None:
    """Rename the files to `.deleted` now, and close and remove them after a delay.

    An answer that is being sent may still read from them. The file of the batches is renamed
    first: if the broker stops in between, the next start removes the files without batches.
    """
    disk = runtime.disk
    deleted: list[str] = []
    for segment in segments:
        for path in segment.files():
            disk.rename(path, path + DELETED_SUFFIX)
            deleted.append(path + DELETED_SUFFIX)

    def unlink() -> None:
        for path in deleted:
            try:
                if disk.exists(path):
                    disk.unlink(path)
            except OSError as error:  # the next start removes it
                logger.warning("%s is not removed: %s", path, error)

    def finish() -> None:
        for segment in segments:
            segment.close()
        runtime.background.submit(unlink)

    runtime.scheduler.call_later(delay_ms, finish)


def delete_directory(
    runtime: Runtime,
    directory: str,
    deleted_dir: str,
    delay_ms: int,
    close: Callable[[], object],
    *,
    is_kept: bool = False,
) -> None:
    """Rename a log's directory now; close it after a delay, and remove it unless `is_kept`."""
    runtime.disk.rename(directory, deleted_dir)

    def finish() -> None:
        close()
        if not is_kept:
            remove_later(runtime, deleted_dir, 0)

    runtime.scheduler.call_later(delay_ms, finish)


REMOVAL_RETRY_MS: Final = 15_000


def remove_later(runtime: Runtime, directory: str, delay_ms: int) -> None:
    """Remove a directory that nothing refers to, in the background.

    Where the disk refuses it with an error that can pass, such as too many open files, it is tried
    again and again: the next start of the broker, which would remove it, may be years away.
    """

    def remove() -> None:
        runtime.background.submit(lambda: runtime.disk.remove_tree(directory), on_error=on_refusal)

    def on_refusal(error: BaseException) -> None:
        logger.warning("%s cannot be removed: %s", directory, error)
        if isinstance(error, OSError) and error.errno in PASSING_ERRORS:
            runtime.scheduler.call_later(REMOVAL_RETRY_MS, remove)

    runtime.scheduler.call_later(delay_ms, remove)


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
    """Expect the files under names with this suffix, by which recovery knows them."""
    previous, segment.suffix = segment.suffix, suffix
    for index in (segment.offset_index, segment.time_index, segment.txn_index):
        index.path = index.path.removesuffix(previous) + suffix


def rename_files(disk: Disk, segment: LogSegment, suffix: str) -> None:
    """Give the files another suffix, the file of the batches first."""
    for path in segment.files():
        disk.rename(path, path.removesuffix(segment.suffix) + suffix)
    set_suffix(segment, suffix)
