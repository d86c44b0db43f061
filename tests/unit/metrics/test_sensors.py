"""Meters, histograms and windowed statistics, on a clock of the test's own."""

from __future__ import annotations

import math
import random

import pytest

from ottla.metrics.sensors import (
    TICK_MS,
    WINDOW_COUNT,
    WINDOW_MS,
    Counted,
    Histogram,
    Meter,
    Timer,
    WindowedRate,
    WindowedValues,
)


class Number:
    """A number that only grows."""

    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> int:
        return self.value


def test_meter_shows_the_steady_rate_of_its_number():
    """100 events a second are 100 in all three rates, from the first tick on."""
    number = Number()
    meter = Meter(number, now_ms=0)
    for _ in range(12):
        number.value += 500
        meter.tick()

    assert meter.count == 6_000
    assert meter.rates == pytest.approx((100, 100, 100))
    assert meter.mean_rate(60_000) == 100


def test_rate_of_a_minute_forgets_sooner_than_that_of_a_quarter_of_an_hour():
    """After a minute without events the first one has fallen to 1/e, the last one hardly."""
    number = Number()
    meter = Meter(number, now_ms=0)
    number.value = 500
    for _ in range(1 + 60_000 // TICK_MS):
        meter.tick()

    one, five, fifteen = meter.rates
    assert one == pytest.approx(100 / math.e)
    assert one < five < fifteen < 100


def test_events_before_the_first_tick_do_not_count_as_a_burst():
    """What a number had when its meter was made is in the count, not in the rates."""
    number = Number()
    number.value = 1_000_000
    meter = Meter(number, now_ms=0)
    meter.tick()

    assert meter.count == 1_000_000
    assert meter.rates == (0, 0, 0)


def test_percentiles_of_few_values_are_these_values():
    """Of a hundred different values each percentile is exact."""
    histogram = Histogram(random.Random(1), now_ms=0)
    histogram.update_all([float(value) for value in range(1, 101)], now_ms=1)
    shown = histogram.snapshot(now_ms=2)

    assert (shown.count, shown.min, shown.max, shown.mean) == (100, 1, 100, 50.5)
    assert shown.percentiles == {
        "50thPercentile": 50,
        "75thPercentile": 75,
        "95thPercentile": 95,
        "98thPercentile": 98,
        "99thPercentile": 99,
        "999thPercentile": 100,
    }
    assert shown.std_dev == pytest.approx(29.01, abs=0.01)


def test_sample_of_many_values_is_even():
    """Of 100,000 values in a window the median is near the middle, and memory is bounded."""
    histogram = Histogram(random.Random(2), now_ms=0)
    for begin in range(0, 100_000, 1_000):
        histogram.update_all([float(value) for value in range(begin, begin + 1_000)], now_ms=1)
    shown = histogram.snapshot(now_ms=2)

    assert shown.count == 100_000
    assert 35_000 < shown.percentiles["50thPercentile"] < 65_000
    assert sum(len(window.samples) for window in histogram._windows) <= 128


def test_busy_window_weighs_more_than_a_quiet_one():
    """A thousand fast requests and, later, ten slow ones: the median is fast."""
    histogram = Histogram(random.Random(3), now_ms=0)
    histogram.update_all([1.0] * 1_000, now_ms=1)
    histogram.update_all([500.0] * 10, now_ms=WINDOW_MS + 1)
    shown = histogram.snapshot(now_ms=WINDOW_MS + 2)

    assert shown.percentiles["50thPercentile"] == 1
    assert shown.percentiles["999thPercentile"] == 500


def test_old_values_leave_the_percentiles_and_stay_in_the_mean():
    """After five minutes only the extremes, the count and the mean remember a value."""
    histogram = Histogram(random.Random(4), now_ms=0)
    histogram.update(1_000, now_ms=1)
    later_ms = WINDOW_COUNT * WINDOW_MS + 2
    histogram.update(1, now_ms=later_ms)
    shown = histogram.snapshot(now_ms=later_ms)

    assert (shown.count, shown.max, shown.mean) == (2, 1_000, 500.5)
    assert set(shown.percentiles.values()) == {1}


def test_empty_histogram_shows_zeros():
    """As Kafka's does before the first value."""
    shown = Histogram(random.Random(5), now_ms=0).snapshot(now_ms=WINDOW_MS * 100)

    assert (shown.count, shown.mean, shown.std_dev) == (0, 0, 0)
    assert set(shown.percentiles.values()) == {0}


def test_timer_counts_and_times():
    """Its meter has the rate, its histogram the durations."""
    timer = Timer(random.Random(6), now_ms=0)
    for took_ms in (10, 20, 30):
        timer.update(took_ms, now_ms=1)
    timer.tick()

    assert timer.meter.count == 3
    assert timer.meter.rates[0] == pytest.approx(0.6)
    assert timer.histogram.snapshot(2).mean == 20


def test_windowed_rate_is_over_two_windows():
    """1,000 a second in the first window and nothing in the second: 500; then nothing."""
    number = Number()
    rate = WindowedRate(number, now_ms=0)
    number.value = 30_000
    assert rate.value(15_000) == 1_000  # as if the window were over

    rate.tick(30_000)
    assert rate.value(59_999) == pytest.approx(500, rel=0.01)
    rate.tick(60_000)
    assert rate.value(89_000) == 0


def test_windowed_values_forget_what_is_old():
    """Average and maximum are those of two windows; NaN where there was nothing."""
    values = WindowedValues()
    assert math.isnan(values.average(0))
    values.record(100, now_ms=0)
    values.record(200, now_ms=10)
    assert (values.average(20), values.maximum(20)) == (150, 200)

    values.record(10, now_ms=WINDOW_MS)
    assert values.maximum(WINDOW_MS) == 200
    assert values.maximum(2 * WINDOW_MS + 1) == 10
    assert math.isnan(values.maximum(10 * WINDOW_MS))
    assert (values.count, values.total) == (3, 310)


def test_windowed_values_have_the_least_and_the_last():
    """The least is forgotten with its window, the last value is not."""
    values = WindowedValues()
    assert math.isnan(values.last)
    assert math.isnan(values.minimum(0))
    for value in (20, -5, 10):
        values.record(value, now_ms=0)
    values.record(7, now_ms=WINDOW_MS)

    assert values.minimum(WINDOW_MS) == -5
    assert values.minimum(2 * WINDOW_MS + 1) == 7
    assert math.isnan(values.minimum(10 * WINDOW_MS))
    assert values.last == 7


def test_windows_of_rates_begin_anew():
    """A rate is that of the last window and the present one."""
    number = 0
    counted = Counted(0, record_send=lambda: number)
    number = 300
    counted.tick(30_000)
    counted.tick(60_000)

    assert counted.shown(60_000) == {"record-send-rate": 0.0, "record-send-total": 300}
