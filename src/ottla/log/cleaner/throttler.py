"""A bound on the disk traffic of compaction, kept by waiting between the steps."""

from __future__ import annotations


class Throttler:
    """Says how long to wait so that no more than so many bytes a second are moved on average."""

    __slots__ = ("_free_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_ms = 0.0

    def delay_ms(self, byte_count: int, now_ms: int) -> int:
        """How long whoever has just moved so many bytes has to wait before it goes on."""
        cost_ms = 1000.0 * byte_count / self.bytes_per_second
        self._free_ms = max(self._free_ms, float(now_ms)) + cost_ms
        return int(self._free_ms - now_ms)
