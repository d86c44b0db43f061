"""The lines of the log about clients that do not get in: in a storm some of them, and a count.

Most clients that are refused come again at once. A line for each would cost the broker more than
the client does, and fill a disk.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.runtime import Clock

logger = logging.getLogger(__name__)

TOLD_EVERY_MS: Final = 10_000
MAX_CAUSES: Final = 100


class RefusalLog:
    """Lets each cause have a line once in ten seconds, and a hundred causes together.

    The others are counted: the first line after that time comes behind their number.
    """

    __slots__ = ("_causes", "_clock", "_ends_ms", "_more")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms()
        self._causes: set[tuple[str, ...]] = set()
        self._more = 0

    def is_news(self, *cause: str) -> bool:
        """Whether to write the line: it is the first one of its cause, of those that have room."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._ends_ms:
            if self._more:
                logger.info("%d more refusals like those before were not logged", self._more)
            self._ends_ms, self._more = now_ms + TOLD_EVERY_MS, 0
            self._causes.clear()
        if cause in self._causes or len(self._causes) >= MAX_CAUSES:
            self._more += 1
            return False
        self._causes.add(cause)
        return True
