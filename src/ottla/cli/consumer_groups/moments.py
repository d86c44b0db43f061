"""Moments and durations as users write them: ISO 8601, in Kafka's selection."""

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
