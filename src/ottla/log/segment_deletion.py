"""Taking the files of segments away: first their names, later, when nobody reads them, the rest."""

from __future__ import annotations

from collections.abc import Sequence

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
