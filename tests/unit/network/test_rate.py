"""Rates over several windows."""

from __future__ import annotations

import pytest

from ottla.network.rate import MAX_DELAY_MS, Rate


def new_rate() -> Rate:
    """Kafka's windows: 11 samples of one second."""
    return Rate(11, 1000)


def test_rate_of_a_new_client_counts_ten_quiet_seconds():
    """W is at least num - 1 windows, so that 1000 bytes at once are 100 a second."""
    rate = new_rate()
    rate.record(1000, 0, 5)

    assert rate.per_second(5) == 100
    assert rate.per_second(505) == pytest.approx(1000 / 10.5)


def test_rate_follows_the_oldest_sample_that_counts():
    """100 a second, once a second: eleven samples over W from 10 s to 11 s."""
    rate = new_rate()
    for second in range(30):
        rate.record(100, 0, second * 1000)
    assert rate.per_second(29_000) == 110  # 11 x 100 in the 10 s since the oldest
    assert rate.per_second(29_999) == pytest.approx(1100 / 10.999)


def test_samples_leave_whole_after_all_windows():
    """What was used counts until num windows have passed since its sample began."""
    rate = new_rate()
    rate.record(600, 0, 0)
    rate.record(400, 0, 999)
    assert rate.per_second(10_999) == pytest.approx(1000 / 10.999)
    assert not rate.is_idle(1, 10_999)
    assert rate.per_second(11_000) == 0
    assert rate.is_idle(1, 11_000)


def test_delay_brings_the_rate_back_to_the_limit():
    """(O - T) / T x W: 5000 bytes at once are 500/s, over 100/s by 400, so 4 x 10 s."""
    rate = new_rate()
    rate.record(5000, 0, 0)

    assert rate.delay_ms(100, 0) == 40_000
    assert rate.delay_ms(500, 0) == 0
    assert rate.delay_ms(499, 0) == 20  # 1 / 499 x 10 000 is 20.04


def test_delay_uses_the_window_of_the_moment():
    """At 4.25 s the oldest sample is 4250 ms old, and six whole windows are added to it."""
    rate = new_rate()
    rate.record(1000, 0, 0)
    rate.record(1500, 0, 4250)

    assert rate.per_second(4250) == pytest.approx(2500 / 10.25)
    assert rate.delay_ms(200, 4250) == 2250  # (243.902 - 200) / 200 x 10 250


def test_use_that_is_taken_back_does_not_count():
    """As of an answer that was not sent."""
    rate = new_rate()
    rate.record(5000, 0, 0)
    rate.record(-5000, 0, 0)
    assert rate.per_second(0) == 0


def test_single_window_has_a_length():
    """quota.window.num=1 leaves no earlier window to count."""
    rate = Rate(1, 2000)
    rate.record(100, 0, 7)
    assert rate.per_second(7) == 50


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9, 1e-3])
@pytest.mark.parametrize("amount", [1, 2**31, 2.0**63])
def test_delay_at_any_limit_has_room_in_an_answer(limit, amount):
    """It was infinite, or had more than 32 bits: the answer could not be sent."""
    rate = new_rate()
    rate.record(amount, limit, 0)

    assert 0 < rate.delay_ms(limit, 0) <= MAX_DELAY_MS
    assert rate.delay_ms(1e308, 0) == 0
