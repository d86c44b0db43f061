"""Times as the order of rows: how precise they are, when they are over, and the forms of SQLite.

A row is read once its time is over, that is, once no other row can be given the same time any
more. How long that takes follows from the precision of the times: the type of a column has one,
and views, triggers and programs cut times further (`date_trunc`). SQLite has no type for times:
texts of several forms, unix times and Julian days stand in one column, and compare as moments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final

EPOCH: Final = datetime(1970, 1, 1)
MICROSECOND: Final = timedelta(microseconds=1)
MILLISECOND, SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
PRECISIONS: Final = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
}
ENOUGH: Final = 5
"""So many different times that are whole minutes are not so by chance."""
ZONES_APART: Final = timedelta(hours=26)
"""The zones lie between 12 hours behind UTC and 14 ahead of it."""
IN_UTC: Final = "+00"
_TIME: Final = re.compile(
    r"(?P<day>[^ T]+)(?:[ T](?P<time>(?P<hour>\d\d)(?::(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?)(?P<zone> ?[+-]\d\d.*|Z)?)?"
    r"(?P<era> BC)?"
)
"""A time as databases write it, in any year."""
_DAY: Final = re.compile(r"[+-]?([0-9]{4,6})-([0-9]{2})-([0-9]{2})")
_COMPACT: Final = re.compile(r"(\d{8})(?:T?(\d{6}))?")
"""Digits that are a day, or a time: 20260105120000."""
LAST_JULIAN_DAY, JULIAN_EPOCH = 5_373_484.5, 2_440_587.5
"""The end of the year 9999, and 1970, in the days of SQLite's julianday()."""
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999 as a unix time: a larger number has milliseconds, or finer units."""


def moment_us(value: Any, zone: tzinfo) -> int | None:
    """Microseconds since 1970 of a time as SQLite has it; None for other text.

    Texts without a zone are in `zone`, the first of two that are the same. Small numbers are
    Julian days, larger ones unix times in seconds, milliseconds, microseconds or nanoseconds.
    """
    if isinstance(value, str):
        if (found := _text_us(value.strip(), zone)) is not None:
            return found
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if value == int(value) and (found := _text_us(str(int(value)), zone)) is not None:
        return found
    return _number_us(value)


def _text_us(text: str, zone: tzinfo) -> int | None:
    if match := _COMPACT.fullmatch(text):
        text = match[1] + (f"T{match[2]}" if match[2] else "")
    elif "-" not in text[1:]:
        return None  # a number, or no time
    try:
        found = datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
        aware = found if found.tzinfo is not None else found.replace(tzinfo=zone)
        offset = aware.utcoffset() or timedelta()
    except (ValueError, OverflowError):
        return None
    return (aware.replace(tzinfo=None) - EPOCH - offset) // MICROSECOND


def _number_us(value: float) -> int | None:
    if abs(value) < LAST_JULIAN_DAY:
        return round((value - JULIAN_EPOCH) * (DAY / MICROSECOND))
    for per_second in (1, 10**3, 10**6, 10**9):
        if abs(value) <= LAST_SECOND * per_second:
            return round(value * 10**6) if per_second == 1 else int(value) * 10**6 // per_second
    return None


SCALES: Final = (
    (0, LAST_JULIAN_DAY, 1 / (DAY // MICROSECOND), JULIAN_EPOCH),
    (99_991_231, LAST_SECOND + 1, 1e-6, 0),
    (LAST_SECOND, 10**13, 1e-3, 0),
    (99_991_231_235_959, LAST_SECOND * 10**3 + 1, 1e-3, 0),
    (LAST_SECOND * 10**3, LAST_SECOND * 10**6 + 1, 1, 0),
    (LAST_SECOND * 10**6, LAST_SECOND * 10**9 + 1, 1e3, 0),
)
"""Between which numbers, without these, one is a time, and the number of a moment: so many for each
microsecond since 1970, and so many at 1970. Digits that may be a day, or a time, are left out."""


def numbers_outside(first_us: int | None, last_us: int | None) -> list[tuple[float, float]]:
    """Numbers between which, in whatever unit, no time is from one moment to another."""
    found: list[tuple[float, float]] = []
    for low, high, per_us, epoch in SCALES:
        if first_us is not None:
            found.append((low, min(high, (first_us - SECOND // MICROSECOND) * per_us + epoch)))
        if last_us is not None:
            found.append((max(low, (last_us + SECOND // MICROSECOND) * per_us + epoch), high))
    return [(float(low), float(high)) for low, high in found if low < high]


def scale_of(number: float, first_us: int | None) -> tuple[float, float] | None:
    """The numbers between which times have the unit of this one, and are behind a moment; None for
    digits of a day."""
    for low, high, per_us, epoch in SCALES:
        if low < number < high:
            first = low if first_us is None else (first_us + SECOND // MICROSECOND) * per_us + epoch
            return float(max(low, first)), float(high)
    return None


def unit_of_form(value: Any) -> timedelta:
    """The least time that a text without seconds, or without a time of day, can tell apart."""
    match = _TIME.fullmatch(str(value).strip())
    if match is None or (match["time"] is None and "-" not in match["day"][1:]):
        return DAY if _COMPACT.fullmatch(str(value)) and len(str(value)) == 8 else MICROSECOND
    if match["second"] is not None:
        return MICROSECOND
    return MINUTE if match["minute"] else HOUR if match["hour"] else DAY


def unit_of_value(value: Any) -> timedelta:
    """The coarsest unit that a time is a multiple of; a microsecond unless it is text."""
    match = _TIME.fullmatch(value.strip() if isinstance(value, str) else str(value))
    if match is None or "-" not in match["day"][1:]:
        return MICROSECOND
    parts = (("fraction", MICROSECOND), ("second", SECOND), ("minute", MINUTE), ("hour", HOUR))
    for part, unit in parts:
        if int(match[part] or 0):
            return unit
    return DAY


def precision_of(unit: timedelta) -> str:
    """The name of a unit in PRECISIONS."""
    return next(name for name, each in PRECISIONS.items() if each == unit)


class SeenTimes:
    """The times of a table that were read, until one is as fine as its column's type."""

    def __init__(self) -> None:
        self.unit = DAY
        """The coarsest unit that all of them are multiples of."""
        self._different: set[Any] = set()
        self._is_done = False

    def note(self, unit: timedelta, raws: Iterable[Any]) -> bool:
        """Take in times; whether they are coarser than a unit, once that cannot be chance."""
        if self._is_done:
            return False
        for raw in raws:
            self.unit = min(self.unit, unit_of_value(raw))
            if len(self._different) < ENOUGH:
                self._different.add(raw)
            if self.unit <= unit:
                self._is_done = True
                return False
        self._is_done = len(self._different) == ENOUGH
        return self._is_done


def is_time_text(text: str) -> bool:
    """Whether it is a time as databases write it, of a day that there is, in any year."""
    match = _TIME.fullmatch(text)
    day = None if match is None else _DAY.fullmatch(match["day"])
    if match is None or day is None:
        return False
    try:
        date(2000 + int(day[1]) % 400, int(day[2]), int(day[3]))
        time.fromisoformat(match["time"] or "00")
    except ValueError:
        return False
    return True


def padded(text: str, digits: int) -> str:
    """A time with so many digits behind the seconds: they say how precise its column was."""
    match = _TIME.fullmatch(text)
    if match is None or match["second"] is None:
        return text
    fraction = (match["fraction"] or "").ljust(digits, "0")
    whole = f"{match['hour']}:{match['minute']}:{match['second']}"
    time = f"{whole}.{fraction}" if fraction else whole
    start, end = match.span("time")
    return text[:start] + time + text[end:]


def cut(text: str, digits: int | None) -> str:
    """A time with no more than so many digits behind the seconds; with None only its day."""
    match = _TIME.fullmatch(text)
    if match is None or match["time"] is None:
        return text
    ending = match["era"] or ""
    if digits is None:
        return match["day"] + ending
    if match["fraction"] is None or len(match["fraction"]) <= digits:
        return text
    start, end = match.span("fraction")
    kept = text[: start + digits] if digits else text[: start - 1]
    return kept + text[end:]


def rezoned(text: str, zone: tzinfo, *, is_zoned: bool) -> str:
    """The earliest time that a stored one can be in a column that has got a zone, or has lost it.

    Whoever alters a column does so in a zone of their own. So it is the same moment in `zone`, less
    the time that two zones can be apart.
    """
    match = _TIME.fullmatch(text)
    if match is None or (match["zone"] is not None) == is_zoned:
        return text
    try:
        found = datetime.fromisoformat(text)
        moved = found.replace(tzinfo=zone).astimezone(UTC) if is_zoned else found.astimezone(zone)
        plain = (moved.replace(tzinfo=None) - ZONES_APART).isoformat(" ", "microseconds")
    except (ValueError, OverflowError):
        return text  # of a year that Python does not have
    digits = len(match["fraction"] or "")
    return cut(plain, digits) + (IN_UTC if is_zoned else "")


def earliest_after(moment: datetime, zone: tzinfo) -> datetime:
    """The earliest time that clocks of a zone show from a moment on, without the zone.

    It is the time at the moment, unless clocks are put back soon: times that they show by then
    come again, and rows get them that are new.
    """
    local = moment.astimezone(zone)
    again = local.replace(fold=1)
    first, second = local.utcoffset() or timedelta(), again.utcoffset() or timedelta()
    if local.fold or first == second:
        return local.replace(tzinfo=None)
    before = moment.replace(microsecond=0)
    after = before + (first - second)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == second:
            after = middle
        else:
            before = middle
    return after.astimezone(zone).replace(tzinfo=None)


def begin_of_unit(at: datetime, unit: timedelta) -> datetime:
    """The last whole number of units of a day; of a whole day its beginning."""
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (at - day) // unit * unit
