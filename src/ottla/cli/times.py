"""Times and durations as users write them: Kafka's forms of ISO 8601, or `1h ago`."""

from __future__ import annotations

import re
from typing import Final

from ottla.cli.command_error import UsageError

_NUMBER = r"[-+]?[0-9]{1,18}"
_DURATION: Final = (
    rf"(?i)(?P<sign>[-+]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?P<time>T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER}(?:\.[0-9]{{0,9}})?)S)?)?"
)
_AGO: Final = r"(?i)(?P<number>[0-9]{1,15}) *(?P<unit>[smhd])(?: +ago)?"
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def timestamp_ms(text: str) -> int:
    """`YYYY-MM-DDTHH:mm:SS.sss` as milliseconds since 1970; without a zone it is UTC."""
    try:
        if "T" not in text:
            raise ValueError(text)
        return _utc_ms(text)
    except ValueError:
        raise UsageError(
            f"--to-datetime takes YYYY-MM-DDTHH:mm:SS.sss with an optional zone, not '{text}'"
        ) from None


def _utc_ms(text: str) -> int:
    """A moment in a form of ISO 8601, without a zone in UTC; ValueError for other text."""
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """`PnDTnHnMnS` in milliseconds."""
    match = re.fullmatch(_DURATION, text)
    parts = {} if match is None else {name: match[name] for name in _MS if match[name]}
    if match is None or not parts or (match["time"] or "").upper() == "T":
        raise UsageError(f"--by-duration takes a duration like P7D or PT1H30M, not '{text}'")
    total = sum(round(float(number) * _MS[name]) for name, number in parts.items())
    return -total if match["sign"] == "-" else total


def moment_ms(text: str, now_ms: int) -> int | None:
    """A date, a date with a time (UTC without a zone), or `1h ago`; None for anything else."""
    ago = re.fullmatch(_AGO, text.strip())
    if ago:
        return now_ms - int(ago["number"]) * _UNIT_MS[ago["unit"].lower()]
    try:
        return _utc_ms(text.strip())
    except ValueError:
        return None


CALENDAR_YEARS: Final = 400
CALENDAR_MS: Final = 146_097 * 86_400_000
"""The calendar repeats itself after this many years, or milliseconds."""


def moment_text(timestamp: int) -> str:
    """`2026-03-02T08:00:00.000Z` for milliseconds since 1970.

    Clients write any number of 64 bits as a timestamp, but `datetime` ends with the year 9999.
    Later years have a sign, as Java and ISO 8601 write them: `+292278994-08-17T07:12:55.807Z`.
    """
    from datetime import UTC, datetime, timedelta

    cycles, rest = divmod(timestamp, CALENDAR_MS)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=rest)
    year = moment.year + cycles * CALENDAR_YEARS
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{shown}-{moment:%m-%dT%H:%M:%S}.{rest % 1000:03}Z"


def age_text(ms: int) -> str:
    """How long ago in its largest unit: `3 s`, `5 min`, `2 h`, `12 days`."""
    for unit, length in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * length:
            return f"{ms // length} {unit}"
    return f"{max(0, ms) // 1000} s"
