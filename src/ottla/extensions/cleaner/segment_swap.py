"""The swap of segments for the cleaned one that takes their place, so that a crash does no harm.

    1. `.cleaned` files are written and synced         a crash: they are thrown away
    2. they are renamed to `.swap`, and that is synced  a crash: the swap is finished at the start
    3. the sources are renamed to `.deleted`,
       `.swap` files get their names, and the log
       gets its new list of segments
    4. that is synced

Steps 2 and 3 are renames on the loop's thread, and the syncs they wait for run in the background.
The log may have changed meanwhile: then the cleaned segment is thrown away, and so is the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.extensions.cleaner.cleaning import CleanedGroup
from ottla.extensions.cleaner.log_to_clean import CleaningAbortedError
from ottla.log.flush_job import FlushJob
from ottla.log.log import Log
from ottla.log.log_files import SWAP_SUFFIX
from ottla.log.log_segment import LogSegment
from ottla.log.segment_files import delete_segments, rename_files
from ottla.log.segments import Segments
from ottla.runtime import Runtime


class SegmentSwap:
    """The swaps of one round of compaction of a log."""

    __slots__ = ("_log", "_runtime", "_sizes", "_sources")

    def __init__(self, runtime: Runtime, log: Log, sources: Sequence[LogSegment]) -> None:
        self._runtime = runtime
        self._log = log
        self._sources = {segment.base_offset: segment for segment in sources}
        self._sizes = {segment.base_offset: segment.size for segment in sources}

    async def run(self, group: CleanedGroup, cleaned_offset: int) -> None:
        """Swap one group in; the log counts as clean up to an offset once the last one is."""
        cleaned = group.segment
        sync = FlushJob(self._runtime.disk, [], [], [], [self._log.dir])
        try:
            self.check()
            self._on_disk(partial(rename_files, self._runtime.disk, cleaned, SWAP_SUFFIX))
            await self._runtime.background.run(sync)
            self.check()
        except BaseException:
            await self._throw_away(cleaned)
            raise
        self._on_disk(partial(self._replace, group))
        if group.is_last:
            self._log.cleaned_offset = cleaned_offset
        await self._runtime.background.run(sync)

    def check(self) -> None:
        """CleaningAbortedError unless all sources that must still be replaced are as they were.

        The keys of the newest source decided which records of the oldest one survive.
        """
        if not self._log.is_available:
            raise CleaningAbortedError(f"{self._log.topic_partition} is gone")
        present = set(map(id, self._log.segments))
        for base_offset, size in self._sizes.items():
            segment = self._sources[base_offset]
            if id(segment) not in present or segment.size != size:
                raise CleaningAbortedError(
                    f"segment {base_offset} of {self._log.topic_partition} has changed"
                )

    def _replace(self, group: CleanedGroup) -> None:
        log, cleaned = self._log, group.segment
        gone = [self._sources[source.base_offset] for source in group.sources]
        for segment in gone:
            del self._sizes[segment.base_offset]
        delete_segments(self._runtime, gone, log.config.file_delete_delay_ms)
        rename_files(self._runtime.disk, cleaned, "")
        log.segments = _replaced(log.segments, gone, cleaned)
        bases = {segment.base_offset for segment in gone} - {cleaned.base_offset}
        log.producer_state_manager.delete_snapshots(bases.__contains__)

    async def _throw_away(self, cleaned: LogSegment) -> None:
        """Remove a cleaned segment; a start that found it would finish the swap."""
        try:
            await self._runtime.background.run(partial(_discard, self._runtime, cleaned))
        except OSError as error:
            self._log.log_dir.fail(error)

    def _on_disk(self, renames: partial[None]) -> None:
        """Run renames; if they fail half-way, only a start can mend the log."""
        try:
            renames()
        except OSError as error:
            self._log.log_dir.fail(error)
            raise


def _replaced(segments: Segments, gone: Sequence[LogSegment], cleaned: LogSegment) -> Segments:
    kept, _ = segments.split(lambda segment: segment not in gone)
    return Segments(sorted([*kept, cleaned], key=lambda segment: segment.base_offset))


def _discard(runtime: Runtime, cleaned: LogSegment) -> None:
    for path in cleaned.files():
        runtime.disk.unlink(path)
