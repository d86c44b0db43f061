"""Dates by the patterns of Java's SimpleDateFormat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ottla.connect.java_dates import JavaDateFormat

MOMENT = datetime(2020, 2, 3, 16, 5, 6, 78000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMdd", "20200203"),
        ("yy-M-d", "20-2-3"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2020-02-03T16:05:06.078Z"),
        ("yyyy-MM-dd HH:mm:ss.SSS Z", "2020-02-03 16:05:06.078 +0000"),
        ("EEE, d MMM yyyy", "Mon, 3 Feb 2020"),
        ("EEEE d MMMM yyyy", "Monday 3 February 2020"),
        ("yyyy.MM.dd hh:mm a", "2020.02.03 04:05 PM"),
        ("h 'o''clock' a", "4 o'clock PM"),
        ("K k u D S", "4 16 1 34 78"),
        ("yyyy/DDD", "2020/034"),
        ("yyyyMMddHHmmssSSS", "20200203160506078"),
        ("''yyyy''", "'2020'"),
        ("MM/dd/yyyy z", "02/03/2020 UTC"),
        ("'year' yyyyy", "year 02020"),
    ],
)
def test_dates_are_written_as_java_writes_them(pattern, text):
    """A run of letters is a part of the date, as wide as it is long."""
    assert JavaDateFormat(pattern).format(MOMENT) == text


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyyMMdd", "20200203", datetime(2020, 2, 3)),
        ("yyyy-M-d", "2020-02-3", datetime(2020, 2, 3)),
        ("yy", "68", datetime(2068, 1, 1)),
        ("yy", "69", datetime(1969, 1, 1)),
        ("d MMM yyyy", "3 feb 2020", datetime(2020, 2, 3)),
        ("d MMM yyyy", "3 \u017fep 2020", datetime(2020, 9, 3)),
        ("d MMMM yyyy", "3 February 2020", datetime(2020, 2, 3)),
        ("yyyy-MM-dd hh:mm a", "2020-02-03 12:05 AM", datetime(2020, 2, 3, 0, 5)),
        ("yyyy-MM-dd hh:mm a", "2020-02-03 12:05 PM", datetime(2020, 2, 3, 12, 5)),
        ("yyyy-MM-dd KK a", "2020-02-03 11 PM", datetime(2020, 2, 3, 23)),
        ("yyyy-MM-dd kk", "2020-02-03 24", datetime(2020, 2, 3)),
        ("yyyy-MM-dd'T'HH:mmX", "2020-02-03T16:05+02:00", datetime(2020, 2, 3, 14, 5)),
        ("yyyy-MM-dd'T'HH:mmX", "2020-02-03T16:05-0230", datetime(2020, 2, 3, 18, 35)),
        ("yyyy-MM-dd HH z", "2020-02-03 16 UTC", datetime(2020, 2, 3, 16)),
        ("EEE yyyy/DDD", "Mon 2020/034", datetime(2020, 2, 3)),
        ("HH:mm:ss.SSS", "16:05:06.078", datetime(1970, 1, 1, 16, 5, 6, 78000)),
    ],
)
def test_dates_are_read(pattern, text, moment):
    """Without a zone they are in UTC; numbers that touch have the width of the pattern."""
    assert JavaDateFormat(pattern).parse(text) == moment.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text", "rule"),
    [
        ("yyyy-MM-dd", "2020-02-30", "be a day that its month has"),
        ("yyyy-MM-dd", "2020-13-01", "have 1 to 12 for M of yyyy-MM-dd"),
        ("yyyy-MM-dd", "2020-02-03 or so", "match the pattern yyyy-MM-dd"),
        ("HH", "24", "have 0 to 23"),
        ("d MMM", "3 Feber", "match the pattern"),
        ("yyyy-MM-dd HH X", "9999-12-31 23 -01", "be in the years 1 to 9999 in UTC"),
        ("yyyy-MM-dd HH X", "0001-01-01 00 +0001", "be in the years 1 to 9999 in UTC"),
    ],
)
def test_what_is_no_date_is_refused(pattern, text, rule):
    """Java takes the 30th of February for the 1st of March."""
    with pytest.raises(ValueError, match=rule):
        JavaDateFormat(pattern).parse(text)


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("YYYY-MM-dd", "have no letter Y, which is not known here; y is the year"),
        ("ww", "have no letter w"),
        ("ss.SSSSSS", "have no more than SSS for milliseconds"),
        ("yyyy 'o", "have a quote at the end"),
    ],
)
def test_patterns_are_checked(pattern, rule):
    """A week year would be wrong in the last days of December only."""
    with pytest.raises(ValueError, match=rule):
        JavaDateFormat(pattern)


def test_zones_do_not_matter():
    """All is written in UTC."""
    east = MOMENT.astimezone(timezone(timedelta(hours=2)))

    assert JavaDateFormat("HH").format(east) == "16"
    assert JavaDateFormat("HH").format(MOMENT.replace(tzinfo=None)) == "16"
