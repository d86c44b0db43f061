"""Dates as Java's SimpleDateFormat writes and reads them, in UTC.

A pattern is made of letters, each of which stands for a part of the date, and of other characters,
which stand for themselves; what stands between single quotes does too ('' is one of them).

    y  year: yyyy 2020, yy 20        a  AM or PM
    M  month: M 2, MM 02, MMM Feb,   H  hour, 0 to 23     h  hour, 1 to 12
       MMMM February                 k  hour, 1 to 24     K  hour, 0 to 11
    d  day of the month              m  minute            s  second
    D  day of the year               S  millisecond: SSS
    E  day of the week: E Mon,       z  zone: UTC         Z  zone: +0000
       EEEE Monday                   X  zone: Z           u  day of the week, 1 to 7

Reading is strict, where Java takes the 45th of a month for a day of the next, and passes over what
follows the date. Letters that are not here are refused: `Y`, which is mostly meant to be `y`, and
those that differ from country to country. Two digits of a year stand for 1969 to 2068.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", re.DOTALL)
_ZONE: Final = re.compile(r"([+-])(\d\d):?(\d\d)?")
_PIVOT: Final = 69
NUMBER: Final = r"\d+"


class _Part(NamedTuple):
    """A letter of a pattern: how it is written, which values it has, and as what it is read."""

    write: Callable[[datetime], int]
    lowest: int
    highest: int


_NUMBERS: Final = {
    "y": _Part(lambda at: at.year, 1, 9999),
    "M": _Part(lambda at: at.month, 1, 12),
    "d": _Part(lambda at: at.day, 1, 31),
    "D": _Part(lambda at: at.timetuple().tm_yday, 1, 366),
    "H": _Part(lambda at: at.hour, 0, 23),
    "k": _Part(lambda at: at.hour or 24, 1, 24),
    "K": _Part(lambda at: at.hour % 12, 0, 11),
    "h": _Part(lambda at: at.hour % 12 or 12, 1, 12),
    "m": _Part(lambda at: at.minute, 0, 59),
    "s": _Part(lambda at: at.second, 0, 59),
    "S": _Part(lambda at: at.microsecond // 1000, 0, 999),
    "u": _Part(lambda at: at.isoweekday(), 1, 7),
}
_ZONES: Final = {"z": "UTC", "Z": "+0000", "X": "Z"}


class JavaDateFormat:
    """A pattern, ready to write and to read moments."""

    def __init__(self, pattern: str) -> None:
        """ValueError for a pattern that is not one."""
        self.pattern = pattern
        self._tokens = list(_tokens(pattern))
        self._regex = re.compile(self._as_regex(), re.IGNORECASE)

    def format(self, moment: datetime) -> str:
        """The text of a moment."""
        at = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return "".join(_written(letter, text, at) for letter, text in self._tokens)

    def parse(self, text: str) -> datetime:
        """The moment; ValueError for a text that does not match, as a whole, or is no date."""
        match = self._regex.fullmatch(text)
        if match is None:
            raise ValueError(f"match the pattern {self.pattern}")
        found = {
            token[0]: group
            for token, group in zip(
                [token for token in self._tokens if token[0]], match.groups(), strict=True
            )
        }
        return _moment(found, self.pattern)

    def _as_regex(self) -> str:
        parts = []
        for index, (letter, text) in enumerate(self._tokens):
            following = self._tokens[index + 1 : index + 2]
            is_followed = bool(following) and _is_number(*following[0])
            parts.append(_regex_of(letter, text, is_followed))
        return "".join(parts)


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """Letter and run of letters; for other characters an empty letter and the characters."""
    found, at = [], 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise ValueError(f"have a quote at the end of what begins with one (it is {pattern})")
        at = match.end()
        letter = match[2]
        if letter is None:
            quoted = match[1]
            text = match[0] if quoted is None else quoted.replace("''", "'") or "'"
            found.append(("", text))
            continue
        if letter not in _NUMBERS and letter not in _ZONES and letter not in "Ea":
            hint = "; y is the year" if letter == "Y" else ""
            raise ValueError(f"have no letter {letter}, which is not known here{hint}")
        if letter == "S" and len(match[0]) > 3:
            raise ValueError(f"have no more than SSS for milliseconds (it has {match[0]})")
        found.append((letter, match[0]))
    return found


def _is_number(letter: str, text: str) -> bool:
    return letter in _NUMBERS and not (letter == "M" and len(text) > 2)


def _written(letter: str, text: str, at: datetime) -> str:
    width = len(text)
    if not letter:
        return text
    if letter == "a":
        return "AM" if at.hour < 12 else "PM"
    if letter == "E":
        return DAYS[at.weekday()] if width > 3 else DAYS[at.weekday()][:3]
    if letter in _ZONES:
        return _ZONES[letter]
    if letter == "M" and width > 2:
        return MONTHS[at.month - 1] if width > 3 else MONTHS[at.month - 1][:3]
    number = _NUMBERS[letter].write(at)
    if letter == "y" and width == 2:
        number %= 100
    return str(number).zfill(width)


def _regex_of(letter: str, text: str, is_followed_by_number: bool) -> str:
    if not letter:
        return re.escape(text)
    if letter == "a":
        return "(AM|PM)"
    if letter == "E":
        return f"({'|'.join([*DAYS, *(name[:3] for name in DAYS)])})"
    if letter in _ZONES:
        return r"(?:UTC|GMT)?([+-]\d\d(?::?\d\d)?|Z|)"
    if letter == "M" and len(text) > 2:
        return f"({'|'.join([*MONTHS, *(name[:3] for name in MONTHS)])})"
    return f"(\\d{{{len(text)}}})" if is_followed_by_number else f"({NUMBER})"


def _moment(found: dict[str, str], pattern: str) -> datetime:
    values: dict[str, int] = {
        letter: _value(letter, text, pattern) for letter, text in found.items()
    }
    hour = values.get("H", values.get("k", 0) % 24)
    if "h" in values or "K" in values:
        hour = values.get("h", values.get("K", 0)) % 12 + 12 * values.get("a", 0)
    first = datetime(values.get("y", 1970), values.get("M", 1), 1, tzinfo=UTC)
    try:
        day = first.replace(day=values.get("d", 1))
    except ValueError:
        raise ValueError("be a day that its month has") from None
    if "D" in values and "M" not in values:
        day = first + timedelta(days=values["D"] - 1)
    zone: int = next((values[letter] for letter in _ZONES if letter in values), 0)
    since = timedelta(
        hours=hour,
        minutes=values.get("m", 0) - zone,
        seconds=values.get("s", 0),
        milliseconds=values.get("S", 0),
    )
    try:
        return day + since
    except OverflowError:
        raise ValueError("be in the years 1 to 9999 in UTC") from None


def _value(letter: str, text: str, pattern: str) -> int:
    """What a part stands for: a number; for zones minutes, for AM and PM 0 and 1."""
    if letter == "a":
        return int(text.upper() == "PM")
    if letter in _ZONES:
        return _zone_minutes(text)
    if letter == "E":
        return 0  # the date says it
    if not text.isdigit():
        return next(
            # In all spellings that `re` takes for the same: it knows a long s.
            number
            for number, name in enumerate(MONTHS, 1)
            if name[:3].casefold() == text[:3].casefold()
        )
    part, number = _NUMBERS[letter], int(text)
    if letter == "y" and len(text) == 2 and "yyy" not in pattern:
        number += 2000 if number < _PIVOT else 1900
    if not part.lowest <= number <= part.highest:
        raise ValueError(f"have {part.lowest} to {part.highest} for {letter} of {pattern}")
    return number


def _zone_minutes(text: str) -> int:
    match = _ZONE.fullmatch(text)
    if match is None:
        return 0
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes
