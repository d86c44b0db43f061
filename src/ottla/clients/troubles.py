"""Says which tasks fail for long, as clients try again for as long as they are used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.errors import ErrorCode, KafkaError
    from ottla.runtime import Clock
    from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

SILENCE_MS: Final = 5000
"""A change of leaders, or a broker that starts again, is no news."""


class Troubles:
    """The tasks of a client that fail; each kind of error is logged once until it is over.

    A partition stands for reading it, so that an answer without an error makes no text.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[str | TopicPartition, int] = {}
        self._said: dict[ErrorCode, str | TopicPartition] = {}

    def failed(self, task: str | TopicPartition, error: KafkaError) -> None:
        """The task has failed with an error that may pass, and is tried again."""
        now_ms = self._clock.monotonic_ms()
        since_ms = self._since_ms.setdefault(task, now_ms)
        if now_ms - since_ms >= SILENCE_MS and error.error not in self._said:
            self._said[error.error] = task
            seconds = (now_ms - since_ms) // 1000
            name = task if isinstance(task, str) else f"reading of {task}"
            logger.warning("%s has failed for %d s, and is tried again: %s", name, seconds, error)

    def worked(self, task: str | TopicPartition) -> None:
        """The task has not failed."""
        if self._since_ms.pop(task, None) is not None:
            self._said = {code: each for code, each in self._said.items() if each != task}
