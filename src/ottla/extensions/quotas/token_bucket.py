"""The measure of changes of topics: a bucket that fills up with time."""

from __future__ import annotations

from ottla.network.rate import MAX_DELAY_MS


class TokenBucket:
    """Tokens that come in at the limit, up to the sum of all windows (KIP-599).

    A use may take the bucket below zero; until it is filled up again there is a delay.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._seconds = window_count * window_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """How many there are now; a bucket begins full."""
        most = self._seconds * limit
        if self._tokens is None:
            self._tokens = most
        else:
            came = (now_ms - self._updated_ms) * limit / 1000
            self._tokens = min(most, self._tokens + came)
        self._updated_ms = now_ms
        return self._tokens

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self._seconds * limit, self.tokens(limit, now_ms) - amount)

    def delay_ms(self, limit: float, now_ms: int) -> int:
        tokens = self.tokens(limit, now_ms)
        return int(min(-tokens / limit * 1000 + 0.5, MAX_DELAY_MS)) if tokens < 0 else 0

    def is_idle(self, limit: float, now_ms: int) -> bool:
        return self.tokens(limit, now_ms) >= self._seconds * limit
