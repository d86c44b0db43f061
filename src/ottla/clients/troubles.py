"""Says which tasks fail for long, as clients try again for as long as they are used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.errors import ErrorCode, KafkaError
    from ottla.runtime import Clock

logger = logging.getLogger(__name__)

SILENCE_MS: Final = 5000
"""A change of leaders, or a broker that starts again, is no news."""


class Troubles:
    """The tasks of a client that fail; each kind of error is logged once until it is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str, int] = {}
        self._said: dict[ErrorCode, str] = {}

    def failed(self, task: str, error: KafkaError) -> None:
        """The task has failed with an error that may pass, and is tried again."""
        now_ms = self._clock.monotonic_ms()
        since_ms = self._since_ms.setdefault(task, now_ms)
        if now_ms - since_ms >= SILENCE_MS and error.error not in self._said:
            self._said[error.error] = task
            seconds = (now_ms - since_ms) // 1000
            logger.warning("%s has failed for %d s, and is tried again: %s", task, seconds, error)

    def worked(self, task: str) -> None:
        """The task has not failed."""
        if self._since_ms.pop(task, None) is not None:
            self._said = {code: each for code, each in self._said.items() if each != task}
