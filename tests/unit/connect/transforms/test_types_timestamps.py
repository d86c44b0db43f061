"""Times in their five forms, and in the name of the topic."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest

from ottla.connect.data import (
    DATE,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    SourceRecord,
    struct_of,
)
from ottla.connect.transforms.types import (
    TimestampConverterKey,
    TimestampConverterValue,
    TimestampRouter,
)
from ottla.errors import ConfigError

MOMENT = datetime(2020, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
MS = 1_580_702_706_789
FORMAT = {"format": "yyyy-MM-dd HH:mm:ss.SSS"}
TEXT = "2020-02-03 04:05:06.789"
FORMS = [
    ("string", STRING, TEXT),
    ("unix", INT64, MS),
    ("Date", DATE, date(2020, 2, 3)),
    ("Time", TIME, time(4, 5, 6, 789000)),
    ("Timestamp", TIMESTAMP, MOMENT),
]


@pytest.mark.parametrize(("target", "schema", "expected"), FORMS)
@pytest.mark.parametrize(("value", "of"), [(TEXT, STRING), (MS, INT64), (MOMENT, TIMESTAMP)])
def test_forms_of_a_moment(target, schema, expected, value, of):
    """From each to each, with and without a schema."""
    convert = TimestampConverterValue.of({"target.type": target} | FORMAT)
    made = convert.apply(SourceRecord(topic="t", value=value, value_schema=of.as_optional()))

    assert (made.value, made.value_schema) == (expected, schema.as_optional())
    assert convert.apply(SourceRecord(topic="t", value=value)).value == expected
    keyed = TimestampConverterKey.of({"target.type": target} | FORMAT)
    assert keyed.apply(SourceRecord(topic="t", key=value)).key == expected


@pytest.mark.parametrize(
    ("value", "schema", "ms"),
    [(date(1970, 1, 2), DATE, 86_400_000), (time(0, 0, 1), TIME, 1000)],
)
def test_dates_and_times_are_moments(value, schema, ms):
    """Midnight of the day, and the time on the first day."""
    convert = TimestampConverterValue.of({"target.type": "unix"})

    assert convert.apply(SourceRecord(topic="t", value=value, value_schema=schema)).value == ms
    assert convert.apply(SourceRecord(topic="t", value=value)).value == ms


@pytest.mark.parametrize(
    ("precision", "number", "back"),
    [
        ("seconds", 1_580_702_706, 1_580_702_706),
        ("milliseconds", MS, MS),
        ("microseconds", MS * 1000 + 999, MS * 1000),
        ("nanoseconds", MS * 1_000_000 + 1, MS * 1_000_000),
        ("microseconds", -1, 0),
    ],
)
def test_numbers_count_what_is_set(precision, number, back):
    """What is finer than milliseconds is lost, as in Kafka."""
    settings = {"unix.precision": precision}
    record = SourceRecord(topic="t", value=number)
    moment = TimestampConverterValue.of(settings | {"target.type": "Timestamp"}).apply(record)
    unix = TimestampConverterValue.of(settings | {"target.type": "unix"})

    assert unix.apply(moment).value == back


def test_one_field():
    """The others stay; null stays null."""
    schema = struct_of("S", at=INT64.as_optional(), n=INT32.as_optional(3))
    convert = TimestampConverterValue.of({"target.type": "Timestamp", "field": "at"})
    record = SourceRecord(topic="t", value={"at": MS, "n": None}, value_schema=schema)

    made = convert.apply(record)
    assert made.value == {"at": MOMENT, "n": 3}
    assert made.value_schema == struct_of("S", at=TIMESTAMP.as_optional(), n=INT32.as_optional(3))
    assert convert.apply(record.replace(value={"n": 1})).value == {"at": None, "n": 1}
    assert convert.apply(record.replace(value=None)).value is None
    assert convert.apply(SourceRecord(topic="t", value={"at": MS})).value == {"at": MOMENT}
    assert convert.apply(SourceRecord(topic="t", value={"x": 1})).value == {"x": 1, "at": None}
    reading = TimestampConverterValue.of({"target.type": "unix", "field": "at", "format": "HH"})
    with pytest.raises(DataError, match="at='x': must match the pattern HH"):
        reading.apply(SourceRecord(topic="t", value={"at": "x"}))


def test_what_is_no_time():
    """The error names the value and the rule."""
    convert = TimestampConverterValue.of({"target.type": "unix"} | FORMAT)

    with pytest.raises(DataError, match="value='x': must match the pattern yyyy"):
        convert.apply(SourceRecord(topic="t", value="x"))
    with pytest.raises(DataError, match=r"value=1\.5: must be a time"):
        convert.apply(SourceRecord(topic="t", value=1.5))
    with pytest.raises(DataError, match="schema int32: must be string, int64, Date, Time or"):
        convert.apply(SourceRecord(topic="t", value=1, value_schema=INT32))
    with pytest.raises(ConfigError, match="format=: must be set to read times that are text"):
        TimestampConverterValue.of({"target.type": "unix"}).apply(
            SourceRecord(topic="t", value="x")
        )


@pytest.mark.parametrize("year", [1, 9999])
@pytest.mark.parametrize("target", ["string", "unix", "Date", "Time", "Timestamp"])
def test_time_with_a_zone_that_has_no_year_in_utc_is_refused(year, target):
    """The error did not say of which value and field, and named a limit of Python's."""
    convert = TimestampConverterValue.of({"target.type": target, "field": "at"} | FORMAT)
    edge = datetime.min if year == 1 else datetime.max
    there = edge.replace(tzinfo=timezone(timedelta(hours=1 if year == 1 else -1)))

    with pytest.raises(DataError, match=r" at=.*must be in the years 1 to 9999 in UTC"):
        convert.apply(SourceRecord(topic="t", value={"at": there}))


def test_timestamp_router():
    """By the record's timestamp, in UTC."""
    record = SourceRecord(topic="t", timestamp_ms=MS)

    assert TimestampRouter.of({}).apply(record).topic == "t-20200203"
    hourly = {"topic.format": "${timestamp}_${topic}", "timestamp.format": "yyyy-MM-dd-HH"}
    assert TimestampRouter.of(hourly).apply(record).topic == "2020-02-03-04_t"
    with pytest.raises(DataError, match="timestamp=None: a record for t must have one"):
        TimestampRouter.of({}).apply(SourceRecord(topic="t"))
    with pytest.raises(DataError, match="must be in the years 1 to 9999"):
        TimestampRouter.of({}).apply(record.replace(timestamp_ms=2**62))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, r"target\.type: must be set"),
        ({"target.type": "date"}, r"target\.type=date: must be one of string, unix, Date"),
        ({"target.type": "string"}, "format=: must be set with target.type=string"),
        ({"target.type": "unix", "format": "YYYY"}, "format=YYYY: must have no letter Y"),
        ({"target.type": "unix", "unix.precision": "days"}, "must be one of seconds, millis"),
    ],
)
def test_settings_are_checked(settings, text):
    """Before a record is seen."""
    with pytest.raises(ConfigError, match=text):
        TimestampConverterValue.of(settings)
