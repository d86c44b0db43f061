"""Lines of the log that say how far the loading of a log directory is, and at which logs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.log.recovery import LogSource
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS: Final = 5000
MEGABYTE: Final = 1_000_000


class LoadingProgress:
    """Reports how many logs of a directory are loaded, every few seconds and at the end.

    The background threads count in their `LogSource`; the loop only reads the counts.
    """

    def __init__(self, runtime: Runtime, path: str, sources: Sequence[LogSource]) -> None:
        self._clock = runtime.clock
        self._path = path
        self._sources = sources
        self._began_ms = self._clock.monotonic_ms()
        self._timer = runtime.scheduler.call_every(PROGRESS_INTERVAL_MS, self._report)

    def _report(self) -> None:
        unread = [each for each in self._sources if each.scanned_bytes < each.bytes_to_scan]
        under_way = [source for source in unread if not source.is_loaded]
        logger.info(
            "%s: %d of %d logs are loaded%s",
            self._path,
            sum(source.is_loaded for source in self._sources),
            len(self._sources),
            "".join(f"; {_scanned(source)}" for source in under_way),
        )

    def end(self) -> None:
        """End the reports; log how long loading took if there was anything to load."""
        self._timer.cancel()
        if self._sources:
            logger.info(
                "%s: %d of %d logs are loaded, after %d ms; %.1f MB of records were checked",
                self._path,
                sum(source.is_loaded for source in self._sources),
                len(self._sources),
                self._clock.monotonic_ms() - self._began_ms,
                sum(source.scanned_bytes for source in self._sources) / MEGABYTE,
            )


def _scanned(source: LogSource) -> str:
    done, size = source.scanned_bytes / MEGABYTE, source.bytes_to_scan / MEGABYTE
    return f"{source.topic_partition}: {done:.1f} of {size:.1f} MB are checked"
