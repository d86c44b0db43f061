"""Moments and durations as users write them."""

import pytest

from ottla.cli.command_error import UsageError
from ottla.cli.times import age_text, duration_ms, moment_ms, moment_text, timestamp_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T02:00:01.500+02:00", 1500),
        ("1970-01-01T02:00:01.500+0200", 1500),
        ("1970-01-01T02:00:01.500+02", 1500),
        ("1969-12-31T22:00:00.000-02:00", 0),
        ("2017-06-06T10:00:00", 1496743200000),
    ],
)
def test_datetime_is_utc_unless_it_has_a_zone(text, expected):
    """Each form that Kafka's tool takes gives milliseconds since 1970."""
    assert timestamp_ms(text) == expected


@pytest.mark.parametrize("text", ["yesterday", "2017-06-06", "2017-06-06 10:00:00", "T10:00", ""])
def test_datetime_of_another_form_is_refused(text):
    """The message shows the form."""
    with pytest.raises(UsageError, match="YYYY-MM-DDTHH:mm:SS"):
        timestamp_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("PT10M", 600_000),
        ("PT1.5S", 1500),
        ("P1DT2H3M4S", 93_784_000),
        ("pt5s", 5000),
        ("-PT1H", -3_600_000),
        ("PT-1H", -3_600_000),
        ("P0D", 0),
    ],
)
def test_duration_adds_its_parts(text, expected):
    """Days, hours, minutes and seconds, each with its own sign."""
    assert duration_ms(text) == expected


LONG = f"PT{'9' * 400}S"


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1M", "P1W", "PT1", "PT1H1H", "P\u0663D", LONG]
)
def test_duration_of_another_form_is_refused(text):
    """Months and weeks have no fixed length in Kafka's durations."""
    with pytest.raises(UsageError, match="a duration like P7D or PT1H30M"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5+00:00", 1500),
        ("1h ago", 86_400_000 - 3_600_000),
        ("30m", 86_400_000 - 1_800_000),
        ("yesterday", None),
    ],
)
def test_moment_is_a_date_or_so_long_ago(text, expected):
    """Now is the beginning of the second day."""
    assert moment_ms(text, 86_400_000) == expected


def test_moments_and_ages_are_written_for_people():
    """In UTC, and in the largest unit of which there are two."""
    assert moment_text(1999) == "1970-01-01T00:00:01.999Z"
    ages = [0, 3999, 120_000, 7_200_000, 12 * 86_400_000]
    assert [age_text(ms) for ms in ages] == ["0 s", "3 s", "2 min", "2 h", "12 days"]


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_438_400_007, "2026-03-02T08:00:00.007Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-(2**63), "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_each_timestamp_of_64_bits_has_a_text(timestamp, text):
    """A client may write any number as its record's timestamp; the tools show each as Java does."""
    assert moment_text(timestamp) == text
