"""Times and numbers of databases: the same value in Connect, or an error that names a setting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from zoneinfo import ZoneInfo

import pytest
from breadth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.connectors.databases import (
    decimal_reader,
    postgres_iso,
    postgres_micros,
    timestamp_reader,
)

NUMBERS = "decimal.handling.mode=string"
TIMES = "time.precision.mode=isostring"
MOMENTS = st.datetimes()
WIDE = Context(prec=200)


@given(MOMENTS, st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York"]))
@settings(max_examples=examples(200), deadline=None)
def test_times_are_moments_or_errors(moment, zone):
    """Never another moment: what UTC cannot have is refused."""
    read = timestamp_reader(ZoneInfo(zone))
    text = moment.isoformat(" ")
    try:
        expected = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except OverflowError:
        with pytest.raises(ValueError, match=TIMES):
            read(text)
        return
    assert read(text) == read(moment) == expected
    assert read(f"{text}+00:00") == moment.replace(tzinfo=UTC)


@given(st.integers(-(2**62), 2**62), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=examples(200), deadline=None)
def test_decimals_keep_all_digits_or_are_refused(unscaled, digits, scale):
    """Whatever the precision of Python's decimals is."""
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -digits))
    if number == number.quantize(Decimal((0, (1,), -scale)), context=WIDE):
        found = decimal_reader(scale)(str(number))
        assert found == number
        assert found.as_tuple().exponent == -scale
    else:
        with pytest.raises(ValueError, match=NUMBERS):
            decimal_reader(scale)(str(number))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1e9, max_value=1e9))
@settings(max_examples=examples(200), deadline=None)
def test_floats_stand_for_the_decimals_that_they_were(number):
    """SQLite stores decimals as floats."""
    assert decimal_reader(3)(float(number)) == number


@given(MOMENTS, st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_postgresqls_times_are_read_in_any_year(moment, is_zoned):
    """Microseconds and ISO 8601, as Python has them for its own years."""
    text = f"{moment.year:04d}{moment.isoformat(' ')[4:]}"

    assert postgres_micros(text) == (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert postgres_iso(text + "+00" * is_zoned) == text.replace(" ", "T") + "Z" * is_zoned
