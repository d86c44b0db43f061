"""Times and durations as users write them: Kafka's forms of ISO 8601, or `1h ago`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ottla.cli.command_error import UsageError

_NUMBER = r"[-+]?\d+"
_DURATION: Final = re.compile(
    rf"(?P<sign>[-+]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?P<time>T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER}(?:\.\d{{0,9}})?)S)?)?",
    re.IGNORECASE,
)
_AGO: Final = re.compile(r"(?P<number>\d+) *(?P<unit>[smhd])(?: +ago)?", re.IGNORECASE)
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def timestamp_ms(text: str) -> int:
    """`YYYY-MM-DDTHH:mm:SS.sss` as milliseconds since 1970; without a zone it is UTC."""
    try:
        if "T" not in text:
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--to-datetime takes YYYY-MM-DDTHH:mm:SS.sss with an optional zone, not '{text}'"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """`PnDTnHnMnS` in milliseconds."""
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {name: match[name] for name in _MS if match[name]}
    if match is None or not parts or (match["time"] or "").upper() == "T":
        raise UsageError(f"--by-duration takes a duration like P7D or PT1H30M, not '{text}'")
    total = sum(round(float(number) * _MS[name]) for name, number in parts.items())
    return -total if match["sign"] == "-" else total


def moment_ms(text: str, now_ms: int) -> int | None:
    """A date, a date with a time (UTC without a zone), or `1h ago`; None for anything else."""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now_ms - int(ago["number"]) * _UNIT_MS[ago["unit"].lower()]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def moment_text(timestamp: int) -> str:
    """`2026-03-02T08:00:00.000Z` for milliseconds since 1970."""
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(ms: int) -> str:
    """How long ago in its largest unit: `3 s`, `5 min`, `2 h`, `12 days`."""
    for unit, length in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * length:
            return f"{ms // length} {unit}"
    return f"{max(0, ms) // 1000} s"
