"""Times as the order of rows: precision, forms, and moments of SQLite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ottla.connect.connectors.column_times import (
    DAY,
    EPOCH,
    HOUR,
    MICROSECOND,
    MINUTE,
    SECOND,
    ZONES_APART,
    SeenTimes,
    cut,
    moment_us,
    padded,
    rezoned,
    unit_of_form,
    unit_of_value,
)

NOON = datetime(2026, 1, 5, 12)
NOON_US = (NOON - EPOCH) // MICROSECOND


@pytest.mark.parametrize(
    "form",
    [
        "2026-01-05 12:00:00",
        "2026-01-05T12:00:00",
        "2026-01-05T12:00:00Z",
        "2026-01-05 12:00:00.0",
        "2026-01-05 12:00:00.000000000",
        "2026-01-05 12:00",
        "2026-01-05T14:00:00+02:00",
        "2026-01-05 14:00:00 +02:00",
        "2026-01-05T14:00:00+0200",
        "2026-01-05T07:00:00.000-05:00",
        "20260105T120000",
        "20260105120000",
        20260105120000,
        NOON_US // 10**6,
        NOON_US / 10**6,
        NOON_US // 10**3,
        NOON_US,
        NOON_US * 10**3,
        str(NOON_US // 10**6),
        2461046.0,
        2461046,
    ],
)
def test_forms_of_one_moment(form):
    """SQLite's columns hold them all, and they are the same time."""
    assert moment_us(form, UTC) == NOON_US


@pytest.mark.parametrize(
    "value",
    ["", "abc", "noon", "infinity", "nan", b"x", None, float("inf"), 1e300, "-", "2026-13-01"],
)
def test_what_is_no_time(value):
    """It has no place among times, and no error comes of it."""
    assert moment_us(value, UTC) is None


def test_texts_without_a_zone_are_in_that_of_the_setting():
    """Those with one are not."""
    zone = ZoneInfo("America/New_York")
    assert moment_us("2026-01-05 07:00:00", zone) == NOON_US
    assert moment_us("2026-01-05 12:00:00Z", zone) == NOON_US
    assert moment_us("0001-01-01 00:00:00", ZoneInfo("Asia/Tokyo")) is not None


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("2026-01-05", DAY, DAY),
        ("20260105", DAY, MICROSECOND),
        ("2026-01-05 12", HOUR, HOUR),
        ("2026-01-05T12:30", MINUTE, MINUTE),
        ("2026-01-05 12:30+02:00", MINUTE, MINUTE),
        ("2026-01-05 00:00:00", MICROSECOND, DAY),
        ("2026-01-05 00:00:00.000000+00", MICROSECOND, DAY),
        ("2026-01-05 12:00:00", MICROSECOND, HOUR),
        ("2026-01-05 12:30:00.000Z", MICROSECOND, MINUTE),
        ("2026-01-05 12:30:07", MICROSECOND, SECOND),
        ("2026-01-05 12:30:07.5", MICROSECOND, MICROSECOND),
        ("0044-03-15 12:00:00 BC", MICROSECOND, HOUR),
        (datetime(2026, 1, 5), MICROSECOND, DAY),
        (1767614400, MICROSECOND, MICROSECOND),
        ("abc", MICROSECOND, MICROSECOND),
    ],
)
def test_units_of_a_time(text, form, value):
    """What its form cannot tell apart, and what its value may have been cut to."""
    assert (unit_of_form(text), unit_of_value(text)) == (form, value)


@pytest.mark.parametrize(
    ("text", "digits", "found"),
    [
        ("2026-01-05 12:00:00.6", 0, "2026-01-05 12:00:00"),
        ("2026-01-05 12:00:00.123456+00", 3, "2026-01-05 12:00:00.123+00"),
        ("2026-01-05 12:00:00.123456+00", 0, "2026-01-05 12:00:00+00"),
        ("2026-01-05 12:00:00.5", 6, "2026-01-05 12:00:00.5"),
        ("2026-01-05 12:00:00.5+00", None, "2026-01-05"),
        ("0044-03-15 12:00:00.5 BC", None, "0044-03-15 BC"),
        ("0044-03-15 12:00:00.5 BC", 0, "0044-03-15 12:00:00 BC"),
        ("2026-01-05", 0, "2026-01-05"),
        ("2026-01-05", None, "2026-01-05"),
        ("infinity", 0, "infinity"),
        ("-infinity", None, "-infinity"),
        ("0000-00-00 00:00:00.000000", 0, "0000-00-00 00:00:00"),
    ],
)
def test_times_lose_digits(text, digits, found):
    """In any year; what is no time stays as it is."""
    assert cut(text, digits) == found


@pytest.mark.parametrize(
    ("text", "digits", "found"),
    [
        ("2026-01-05 12:00:00", 6, "2026-01-05 12:00:00.000000"),
        ("2026-01-05 12:00:00.5+00", 3, "2026-01-05 12:00:00.500+00"),
        ("2026-01-05 12:00:00", 0, "2026-01-05 12:00:00"),
        ("0044-03-15 12:00:00 BC", 1, "0044-03-15 12:00:00.0 BC"),
        ("-infinity", 6, "-infinity"),
    ],
)
def test_times_get_all_digits_of_their_column(text, digits, found):
    """So that an offset says how precise its column was."""
    assert padded(text, digits) == found


@pytest.mark.parametrize("altered_in", ["Etc/GMT+12", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("setting", ["Etc/GMT+12", "UTC", "Europe/Berlin", "Pacific/Kiritimati"])
def test_no_time_is_missed_in_whatever_zone_its_column_is_altered(altered_in, setting):
    """Whether it gets a zone or loses it: what is read from is no later than the time became."""
    zone, altered = ZoneInfo(setting), ZoneInfo(altered_in)
    naive = datetime(2026, 1, 5, 7, 0, 0, 600_000)
    stored = naive.isoformat(" ", "microseconds")
    became = naive.replace(tzinfo=altered)
    got = datetime.fromisoformat(rezoned(stored, zone, is_zoned=True))
    assert timedelta() <= became - got <= 2 * ZONES_APART
    became = naive.replace(tzinfo=UTC).astimezone(altered).replace(tzinfo=None)
    lost = datetime.fromisoformat(rezoned(f"{stored}+00", zone, is_zoned=False))
    assert timedelta() <= became - lost <= 2 * ZONES_APART


def test_times_stay_as_they_are_where_their_zone_does():
    """Times, days, and times outside Python's years keep all digits."""
    zone = ZoneInfo("America/New_York")
    for text in ("infinity", "0044-03-15 12:00:00 BC", "2026-01-05 07:00:00+00"):
        assert rezoned(text, zone, is_zoned=True) == text
    for text in ("-infinity", "2026-01-05", "0000-00-00 00:00:00", "2026-01-05 07:00:00.6"):
        assert rezoned(text, zone, is_zoned=False) == text
    assert rezoned("2026-01-05 07:00:00.60", zone, is_zoned=True) == "2026-01-04 10:00:00.60+00"
    assert rezoned("2026-01-05", zone, is_zoned=True) == "2026-01-04 03:00:00+00"


def test_times_that_are_coarser_than_their_column_are_noted_once():
    """Five different ones are enough, and one that is finer ends it."""
    days = [f"2026-01-0{number} 00:00:00" for number in range(1, 8)]
    seen = SeenTimes()
    assert not seen.note(SECOND, days[:1] * 9)
    assert seen.note(SECOND, days)
    assert seen.unit == DAY
    assert not seen.note(SECOND, days)
    finer = SeenTimes()
    assert not finer.note(SECOND, [*days[:3], "2026-01-05 12:30:07"])
    assert not finer.note(SECOND, days)
    assert not SeenTimes().note(timedelta(days=1), days)
