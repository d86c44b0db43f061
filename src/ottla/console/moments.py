"""Times as people type them: `1h ago`, `13:00`, `2026-11-22 13:00`, or milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ottla.config.config_type import UNITS_MS

AGO: Final = re.compile(r"(\d{1,9}) *(ms|s|m|min|h|d) +ago", re.IGNORECASE)
CLOCK_TIME: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
LAST_YEAR_MS: Final = 253_402_214_400_000
"""The last day of the year 9999, after which Python has no dates."""


def moment_ms(text: str, now_ms: int) -> int | None:
    """The milliseconds since 1970 of a time in this machine's zone.

    None for other text, and for times after the year 9999.
    """
    found = _moment_ms(text.strip(), now_ms)
    return None if found is None or found >= LAST_YEAR_MS else found


def _moment_ms(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    if found := AGO.fullmatch(text):
        return now_ms - int(found[1]) * UNITS_MS[found[2].lower()]
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        if CLOCK_TIME.fullmatch(text):
            today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
            text = f"{today:%Y-%m-%d} {text.zfill(5) if text.count(':') == 1 else text}"
        there = datetime.fromisoformat(text)
        return round(there.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
