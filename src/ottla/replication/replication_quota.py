"""How many bytes a second of replication a broker allows itself, so that moves do no harm.

Only the replicas count that `leader.replication.throttled.replicas` and its counterpart name, and
only those that are behind are held up: a replica in sync must stay so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ottla.config.config_type import LONG_MAX
from ottla.runtime import Clock

ALL_REPLICAS: Final = "*"


class ReplicationQuota:
    """Bytes over a window of samples, against a limit. Without a limit nothing is counted."""

    def __init__(
        self, clock: Clock, broker_id: int, window_count: int, window_size_seconds: int
    ) -> None:
        self.bytes_per_second = LONG_MAX
        self._clock = clock
        self._broker_id = broker_id
        self._window_count = window_count
        self._window_size_ms = window_size_seconds * 1000
        self._samples: deque[tuple[int, int, int]] = deque()
        """Window, when it got its first bytes, and how many it got."""

    def applies(self, throttled_replicas: Sequence[str], partition: int) -> bool:
        """Whether this broker's replica of a partition is among those that a topic throttles."""
        if not throttled_replicas:
            return False
        return (
            throttled_replicas[0] == ALL_REPLICAS
            or f"{partition}:{self._broker_id}" in throttled_replicas
        )

    def record(self, size: int) -> None:
        """Count the bytes of a throttled replica that were sent or received."""
        if self.bytes_per_second >= LONG_MAX:
            return
        began_ms = self._clock.monotonic_ms()
        window = began_ms // self._window_size_ms
        if self._samples and self._samples[-1][0] == window:
            _, began_ms, before = self._samples.pop()
            size += before
        self._samples.append((window, began_ms, size))

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.bytes_per_second < LONG_MAX

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate over the last windows is above the limit."""
        samples = self._samples
        if not samples or self.bytes_per_second >= LONG_MAX:
            return False
        now_ms = self._clock.monotonic_ms()
        oldest = now_ms // self._window_size_ms - self._window_count + 1
        while samples and samples[0][0] < oldest:
            samples.popleft()
        if not samples:
            return False
        total = sum(size for _, _, size in samples)
        # Since the first sample, not over all windows: or a move would begin with a burst of all
        # that was not sent before it.
        elapsed_ms = max(now_ms - samples[0][1], self._window_size_ms)
        return total * 1000 / elapsed_ms > self.bytes_per_second
