"""Joins, windows and tables as streams: a micro-batch for each `pipe`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ottla.streams import (
    JoinWindows,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsTest,
    TimeWindows,
    Windowed,
)
from ottla.streams.windows import WindowedSerde

pytestmark = pytest.mark.spark

SECOND = timedelta(seconds=1)
TEN = WindowedSerde(Serdes.string(), 10_000)


@pytest.mark.wide
def test_updates_of_a_window_come_until_its_grace_is_over(spark, tmp_path):
    """Every micro-batch updates; suppress waits for the end; what is late does not count."""
    builder = StreamsBuilder("app")
    windows = TimeWindows.of(10 * SECOND).grace(5 * SECOND)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to("updates")
    counts.suppress().to("final")
    test = StreamsTest(builder, spark, tmp_path)
    for records in (
        [("a", "1", 1_000), ("a", "2", 12_000)],
        [("a", "3", 9_000)],  # late, and within the grace
        [("b", "4", 16_000)],  # the window up to 10 s is over
        [("b", "5", 16_000)],  # and Spark leaves out what is late from the next batch on
        [("a", "5", 2_000)],  # too late
    ):
        test.pipe("in", records)

    updates = test.read("updates", TEN, Serdes.long())
    final = test.read("final", TEN, Serdes.long())

    first, second = Windowed("a", 0, 10_000), Windowed("a", 10_000, 20_000)
    third = Windowed("b", 10_000, 20_000)
    assert sorted(updates) == sorted([(first, 1), (second, 1), (first, 2), (third, 1), (third, 2)])
    assert final == [(first, 2)]


@pytest.mark.wide
def test_hopping_windows_and_sessions(spark):
    """A record counts in each window that has its time; a session ends with its last record."""
    builder = StreamsBuilder("app")
    records = builder.stream("in").group_by_key()
    hopping = TimeWindows.of(10 * SECOND).advance_by(5 * SECOND)
    records.windowed_by(hopping).count().to("hopping")
    records.windowed_by(SessionWindows.with_gap(3 * SECOND)).reduce(lambda a, b: a + b).to("all")
    test = StreamsTest(builder, spark)
    test.pipe("in", [("a", "x", 6_000), ("a", "y", 8_000), ("a", "z", 20_000)])

    assert sorted(test.read("hopping", TEN, Serdes.long())) == [
        (Windowed("a", 0, 10_000), 2),
        (Windowed("a", 5_000, 15_000), 2),
        (Windowed("a", 15_000, 25_000), 1),
        (Windowed("a", 20_000, 30_000), 1),
    ]
    assert sorted(test.read("all", WindowedSerde(Serdes.string(), None))) == [
        (Windowed("a", 6_000, 8_000), "xy"),
        (Windowed("a", 20_000, 20_000), "z"),
    ]


@pytest.mark.wide
def test_streams_are_joined_within_a_time(spark):
    """Inner, left and outer; a join by SQL sees left and right."""
    builder = StreamsBuilder("app")
    left, right = builder.stream("left"), builder.stream("right")
    within = JoinWindows.of(2 * SECOND)
    left.join(right, "concat(left, right)", within).to("inner")
    left.left_join(right, lambda a, b: f"{a}{b}", within).to("left-joined")
    left.outer_join(right, lambda a, b: f"{a}{b}", within).to("outer")
    test = StreamsTest(builder, spark)
    test.pipe("left", [("k", "a", 1_000), ("l", "b", 1_000)])
    test.pipe("right", [("k", "x", 3_000), ("k", "y", 4_000)])

    assert test.read("inner") == [("k", "ax")]
    assert sorted(test.read("left-joined")) == [("k", "ax"), ("l", "bNone")]
    assert sorted(test.read("outer")) == [("k", "Noney"), ("k", "ax"), ("l", "bNone")]


def test_a_stream_is_joined_with_the_newest_rows_of_a_table(spark):
    """What was deleted is not there; a filtered table has fewer rows."""
    builder = StreamsBuilder("app")
    names = builder.table("names").filter("value != 'hidden'").map_values(str.upper)
    orders = builder.stream("orders")
    orders.join(names, "concat(left, ' for ', right)").to("known")
    orders.left_join(names, lambda order, name: f"{order} for {name}").to("all")
    test = StreamsTest(builder, spark)
    test.pipe("names", [("1", "old"), ("1", "ana"), ("2", "bor"), ("2", None), ("3", "hidden")])
    test.pipe("orders", [("1", "tea"), ("2", "cup"), ("3", "pot")])

    assert test.read("known") == [("1", "tea for ANA")]
    assert sorted(test.read("all")) == [
        ("1", "tea for ANA"),
        ("2", "cup for None"),
        ("3", "pot for None"),
    ]


@pytest.mark.wide
def test_tables_are_joined_change_by_change(spark, tmp_path):
    """A change of either side gives the newest pair; a side that goes deletes it."""
    builder = StreamsBuilder("app")
    builder.table("left").join(builder.table("right"), "concat(left, right)").to("pairs")
    test = StreamsTest(builder, spark, tmp_path)
    changes = []
    for topic, value in (("left", "a"), ("right", "x"), ("left", "b"), ("right", None)):
        test.pipe(topic, [("k", value)])
        changes += test.read("pairs")

    assert changes == [("k", "ax"), ("k", "bx"), ("k", None)]


@pytest.mark.wide
def test_a_fold_keeps_its_aggregate_over_restarts(spark, tmp_path):
    """Each micro-batch emits the keys that it has changed."""
    builder = StreamsBuilder("app")
    builder.stream("in").group_by_key().reduce(lambda before, value: before + value).to("out")
    test = StreamsTest(builder, spark, tmp_path)
    test.pipe("in", [("a", "1"), ("b", "2"), ("a", "3")])
    test.pipe("in", [("a", "4")])
    assert sorted(test.read("out")) == [("a", "13"), ("a", "134"), ("b", "2")]

    again = [("b", "5")]
    test.pipe("in", again)

    assert test.read("out") == [("b", "25")]


HOUR_MS = 3_600_000
SECOND_HALF_PAST_ONE_MS = 1_793_514_600_000  # of 1 November 2026 in New York
TIMES_MS = (
    0,
    SECOND_HALF_PAST_ONE_MS - HOUR_MS,
    SECOND_HALF_PAST_ONE_MS,
    SECOND_HALF_PAST_ONE_MS + HOUR_MS,
    253_402_300_799_999,  # the last of the year 9999
    1_700_000_000_000_000,  # microseconds, taken for milliseconds
)


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(spark, request):
    """The time zone of the session."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_folds_and_joins_keep_the_times_of_records(spark, zone, tmp_path):
    """In each hour that a zone has twice, and beyond the years that pandas knows."""
    builder = StreamsBuilder("app")
    time = "CAST(unix_millis(timestamp) AS string)"
    builder.stream("in").group_by_key().reduce(lambda before, value: value).map_values(time).to("f")
    pairs = builder.table("in").join(builder.table("right"), "concat(left, right)")
    pairs.map_values(time).to("j")
    test = StreamsTest(builder, spark, tmp_path)
    test.pipe("right", [(str(time_ms), "r", 0) for time_ms in TIMES_MS])
    test.pipe("in", [(str(time_ms), "l", time_ms) for time_ms in TIMES_MS])

    found = {topic: dict(test.read(topic)) for topic in ("f", "j")}

    assert found["f"] == found["j"] == {str(time_ms): str(time_ms) for time_ms in TIMES_MS}


def test_what_spark_cannot_do_is_refused(spark, tmp_path):
    """The refusal names the operation to write instead."""
    builder = StreamsBuilder("app")
    counts = builder.stream("in").group_by_key().count()
    with pytest.raises(ValueError, match="only windows have final results"):
        counts.suppress()
    with pytest.raises(TypeError, match="joined within JoinWindows"):
        builder.stream("in").join(builder.stream("in"), "left")
    builder.stream("in").join(counts, "left").to("joined")
    counts.to_stream().group_by("value").count().to("twice")
    test = StreamsTest(builder, spark, tmp_path)

    for sink, problem in zip(builder.sinks, ("through", "put through"), strict=True):
        with pytest.raises(ValueError, match=problem):
            sink.build(test)


def test_sizes_of_windows_are_checked():
    """No window is empty, and none is left out between two."""
    with pytest.raises(ValueError, match="size 0:00:00: must be at least 1 ms"):
        TimeWindows.of(timedelta(0))
    with pytest.raises(ValueError, match="must be at most the size, 1000 ms"):
        TimeWindows.of(SECOND).advance_by(2 * SECOND)
