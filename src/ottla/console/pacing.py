"""How often the console asks by itself, so that the brokers spend 1 % of their time on it."""

from __future__ import annotations

from typing import Final

SHARE: Final = 100
"""The pause is this many times the time of the question."""
MOST_PAUSE_MS: Final = 60_000
"""Numbers that are older than this would be taken for wrong, however slow the brokers are."""


def pause_after(took_ms: int, every_ms: int) -> int:
    """How long to wait after a question that took so long, to ask every so often."""
    return max(every_ms - took_ms, min(SHARE * took_ms, MOST_PAUSE_MS), 1)
