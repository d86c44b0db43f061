"""Taking files away in two steps: their names now, and the rest when nobody reads them any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.log.log_files import DELETED_SUFFIX
from ottla.log.log_segment import LogSegment
from ottla.runtime import Runtime


def delete_segments(runtime: Runtime, segments: Sequence[LogSegment], delay_ms: int) -> None:
    """Rename the files to `.deleted` now, and close and remove them after a delay.

    A read may be on its way to the network. The file of the batches goes first: if the broker
    stops in between, the next start sweeps away what has no batches.
    """
    disk = runtime.disk
    deleted: list[str] = []
    for segment in segments:
        for path in segment.files():
            disk.rename(path, path + DELETED_SUFFIX)
            deleted.append(path + DELETED_SUFFIX)

    def unlink() -> None:
        for path in deleted:
            if disk.exists(path):
                disk.unlink(path)

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
    """Give a log's directory another name now, and after a delay close it and remove it."""
    runtime.disk.rename(directory, deleted_dir)

    def finish() -> None:
        close()
        if is_kept:
            return
        runtime.background.submit(lambda: runtime.disk.remove_tree(deleted_dir))

    runtime.scheduler.call_later(delay_ms, finish)
