"""The rings of the lag's history: what they keep, for how long, and in how much memory."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.console import lag_history
from ottla.console.lag_history import (
    LOOK_MS,
    SPANS,
    LagHistory,
    LagPoint,
    OffsetSample,
    Wait,
)
from ottla.structs import TopicPartition

ORDERS = TopicPartition("orders", 0)
BEGIN_MS = 1_000_000 * LOOK_MS
MINUTE_MS = 60_000
TWO_WEEKS_MS = 14 * 86_400_000


def known(points: list[LagPoint]) -> list[LagPoint]:
    return [point for point in points if point.lag is not None]


def test_lag_is_kept_in_three_resolutions():
    """A slot has its highest lag and the sum of its records."""
    history = LagHistory()
    begin_ms = BEGIN_MS // 900_000 * 900_000
    for step in range(24):
        history.record_lag(begin_ms + step * LOOK_MS, "g", "orders", step, 10)

    fine, middle, coarse = (known(history.points("g", "orders", span)) for span in SPANS)
    assert fine[-1] == LagPoint(begin_ms + 23 * LOOK_MS, 23, 10)
    assert len(fine) == 24
    assert middle == [LagPoint(begin_ms, 11, 120), LagPoint(begin_ms + MINUTE_MS, 23, 120)]
    assert coarse == [LagPoint(begin_ms, 23, 240)]


def test_ring_has_gaps_and_forgets_what_is_older():
    """Slots without a look have no lag; each ring ends after its span."""
    history = LagHistory()
    history.record_lag(BEGIN_MS, "g", "orders", 1, 0)
    history.record_lag(BEGIN_MS + 3 * LOOK_MS, "g", "orders", 4, 0)
    assert [point.lag for point in history.points("g", "orders", "1h")][-4:] == [1, None, None, 4]

    history.record_lag(BEGIN_MS + 3_600_000, "g", "orders", 9, 0)
    hour = history.points("g", "orders", "1h")
    assert len(hour) == SPANS["1h"][1]
    assert [point.lag for point in known(hour)] == [4, 9]
    history.record_lag(BEGIN_MS + TWO_WEEKS_MS, "g", "orders", 2, 0)
    for span, (step_ms, size) in SPANS.items():
        points = history.points("g", "orders", span)
        assert points[-1].time_ms - points[0].time_ms == (size - 1) * step_ms


def test_clock_that_goes_back_changes_nothing_older_than_the_ring():
    """A look in the past of a ring is kept in its slot, one from before it is ignored."""
    history = LagHistory()
    history.record_lag(BEGIN_MS, "g", "orders", 5, 0)
    history.record_lag(BEGIN_MS - LOOK_MS, "g", "orders", 3, 0)
    history.record_lag(BEGIN_MS - 7_200_000, "g", "orders", 8, 0)

    assert [point.lag for point in known(history.points("g", "orders", "1h"))] == [3, 5]


def test_unknown_group_has_no_history():
    """Nothing is made by looking."""
    history = LagHistory()
    assert history.points("g", "orders", "1h") == []
    assert history.topics_of("g") == []
    assert history.wait(ORDERS, 0, BEGIN_MS) == Wait(0, is_at_least=True)


def test_seconds_behind_is_the_time_since_the_end_passed_the_offset():
    """Between two looks it is interpolated; what is older has waited for longer than that."""
    history = LagHistory()
    for time_s, end in [(0, 100), (5, 200), (10, 200), (15, 400)]:
        history.record_ends(BEGIN_MS + 1000 * time_s, {ORDERS: end})
    now_ms = BEGIN_MS + 20_000

    assert history.wait(ORDERS, 150, now_ms) == Wait(17.5)
    assert history.wait(ORDERS, 200, now_ms) == Wait(10)
    assert history.wait(ORDERS, 300, now_ms) == Wait(7.5)
    assert history.wait(ORDERS, 400, now_ms) == Wait(0)
    assert history.wait(ORDERS, 99, now_ms) == Wait(20, is_at_least=True)


@pytest.mark.parametrize("seed", range(40))
def test_wait_is_that_of_a_plain_search(seed):
    """Whatever gaps are between the looks, and where the end stood still."""
    chance = random.Random(seed)
    looks = [(chance.choice((1, 1, 40)), chance.choice((0, 0, 9))) for _ in range(seed + 1)]
    offset = chance.randint(40, 60 + 5 * seed)
    history, time_ms, end = LagHistory(), BEGIN_MS, 50
    for slots, records in looks:
        time_ms, end = time_ms + slots * LOOK_MS, end + records
        history.record_ends(time_ms, {ORDERS: end})
    ends = history.ends(ORDERS)

    found = history.wait(ORDERS, offset, time_ms)
    if ends[0].offset > offset:
        assert found == Wait((time_ms - ends[0].time_ms) / 1000, is_at_least=True)
    elif ends[-1].offset <= offset:
        assert found == Wait(0)
    else:
        before, after = next(
            (one, two) for one, two in pairwise(ends) if one.offset <= offset < two.offset
        )
        share = (offset - before.offset) / (after.offset - before.offset)
        passed_ms = before.time_ms + share * (after.time_ms - before.time_ms)
        assert found == Wait((time_ms - passed_ms) / 1000)


def test_newest_lags_are_those_of_the_curve():
    """Of the topics together; a slot in which one of them was seen has its lag."""
    history = LagHistory()
    for step in (0, 1, 3, 6):
        history.record_lag(BEGIN_MS + step * LOOK_MS, "g", "orders", step, 0)
    history.record_lag(BEGIN_MS + 3 * LOOK_MS, "g", "other", 10, 0)

    assert history.newest_lags("g", ["orders", "other"], 99) == [0, 1, None, 13, None, None, 6]
    assert history.newest_lags("g", ["orders"], 4) == [3, None, None, 6]
    assert history.newest_lags("g", ["gone"], 4) == []


def test_newest_lags_of_a_full_ring_are_in_order():
    """Where the array begins anew, too; what was never seen before or behind is a gap."""
    history = LagHistory()
    for step in range(725):
        history.record_lag(BEGIN_MS + step * LOOK_MS, "g", "orders", step, 0)
        assert history.newest_lags("g", ["orders"], 3)[-1] == step
    assert history.newest_lags("g", ["orders"], 720) == [*range(5, 725)]
    history.record_lag(BEGIN_MS + 726 * LOOK_MS, "g", "other", 1, 0)
    assert history.newest_lags("g", ["other", "orders"], 4) == [723, 724, None, 1]


def test_commits_are_kept_for_five_minutes():
    """The newest of a slot, with its moment."""
    history = LagHistory()
    for second in range(0, 600, 5):
        history.record_commits(BEGIN_MS + 1000 * second + 7, "g", {ORDERS: second})
    commits = history.commits("g", ORDERS)

    assert commits[-1] == OffsetSample(BEGIN_MS + 595_007, 595)
    assert commits[0] == OffsetSample(BEGIN_MS + 300_007, 300)


def test_partitions_are_bounded(monkeypatch):
    """Beyond the limit those that are kept stay, as long as they are written."""
    monkeypatch.setattr(lag_history, "MOST_PARTITIONS", 10)
    history = LagHistory()
    every = [TopicPartition("t", number) for number in range(12)]
    for step in range(3):
        history.record_ends(BEGIN_MS + step * LOOK_MS, dict.fromkeys(every, 1))
    assert [len(history.ends(each)) for each in every] == [3] * 10 + [0, 0]

    later_ms = BEGIN_MS + lag_history.KEPT_MS + 3 * LOOK_MS
    history.record_ends(later_ms - LOOK_MS, dict.fromkeys(every[2:10], 1))
    history.record_ends(later_ms, dict.fromkeys(every[10:], 1))
    assert [len(history.ends(each)) for each in every] == [0, 0] + [4] * 8 + [1, 1]


def test_topic_is_forgotten_with_all_that_is_about_it():
    """Another topic has its name now."""
    history = LagHistory()
    other = TopicPartition("other", 0)
    history.record_ends(BEGIN_MS, {ORDERS: 5, other: 6})
    history.record_commits(BEGIN_MS, "g", {ORDERS: 5, other: 6})
    history.record_lag(BEGIN_MS, "g", "orders", 1, 0)
    history.record_lag(BEGIN_MS, "g", "other", 1, 0)
    history.forget_topic("orders")

    assert history.ends(ORDERS) == history.commits("g", ORDERS) == []
    assert history.topics_of("g") == ["other"]
    assert history.ends(other) == history.commits("g", other) == [OffsetSample(BEGIN_MS, 6)]
