"""The files of segments as a whole: forced to disk, renamed, and deleted in two steps.

They are renamed now, and removed when no read can be under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final

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
        refusals: dict[str, OSError] = {}
        for path in deleted:
            try:
                with suppress(FileNotFoundError):
                    disk.unlink(path)
            except OSError as error:  # it names the file
                refusals[path] = error
        deleted[:] = refusals
        if refusals:
            raise next(iter(refusals.values()))

    def finish() -> None:
        for segment in segments:
            segment.close()
        _remove(runtime, "a deleted segment", unlink)

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
MAX_REMOVAL_RETRY_MS: Final = 3_600_000


def remove_later(runtime: Runtime, directory: str, delay_ms: int) -> None:
    """Remove a directory that nothing refers to, in the background."""
    remove = partial(runtime.disk.remove_tree, directory)
    runtime.scheduler.call_later(delay_ms, partial(_remove, runtime, directory, remove))


def _remove(
    runtime: Runtime, name: str, remove: Callable[[], None], retry_ms: int = REMOVAL_RETRY_MS
) -> None:
    """Remove something in the background; where the disk refuses it, again after growing pauses.

    The next start of the broker, which would remove it, may be years away, and nobody else does:
    a disk may refuse for as long as too many files are open, or until it was mounted again.
    """

    def on_refusal(error: BaseException) -> None:
        if isinstance(error, FileNotFoundError) and not runtime.disk.exists(name):
            return  # where it is there, one of its files was gone
        logger.warning("%s cannot be removed: %s", name, error)
        if isinstance(error, OSError):
            longer_ms = min(2 * retry_ms, MAX_REMOVAL_RETRY_MS)
            again = partial(_remove, runtime, name, remove, longer_ms)
            runtime.scheduler.call_later(retry_ms, again)

    runtime.background.submit(remove, on_error=on_refusal)


def sync_files(disk: Disk, segment: LogSegment) -> None:
    """Force batches and indexes to disk; their names are not forced with them."""
    segment.file.fsync()
    for path in segment.files()[1:]:
        with closing(disk.open(path)) as file:
            file.fsync()


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
