"""The rules of alerts, each by what was seen."""

from __future__ import annotations

import pytest

from ottla.console.alert_rules import (
    HOUR_MS,
    OF_DEAD_LETTERS,
    DiskSample,
    behind,
    dead_letters,
    disk,
    hours_left,
    stuck,
)
from ottla.console.lag_collector import GroupLag
from ottla.console.lag_history import LOOK_MS, LagHistory
from ottla.structs import TopicPartition

BEGIN_MS = 1_000_000 * LOOK_MS
ORDERS = TopicPartition("orders", 0)
GB = 1 << 30


def group(name: str, lag: int, seconds: float) -> GroupLag:
    return GroupLag(name, "Stable", "classic", "range", {"orders": lag}, seconds, False, BEGIN_MS)


def test_groups_that_are_behind_for_long():
    """Those that wait longest first; one with nothing to read is not behind."""
    groups = [group("a", 5, 299), group("b", 5, 300), group("c", 0, 900), group("d & e", 1, 400)]
    found = behind(groups, 300)

    assert [each.subject for each in found] == ["d & e", "b"]
    assert found[0].path == "/group?id=d+%26+e"
    assert found[1].text == "group b is 5 min behind, by 5 records"


def test_letters_that_wait_in_a_queue_are_no_lag():
    """Of the group that remembers which were sent back; of others with such a name they are."""
    groups = [
        group(name, 5, 900) for name in ("connect-redrive-orders", "connect-redrive-x", "orders")
    ]
    late = ["connect-redrive-x", "orders"]
    assert [each.subject for each in behind(groups, 300)] == late

    history = LagHistory()
    for step in range(51):
        history.record_ends(BEGIN_MS + step * LOOK_MS, {ORDERS: 20})
        for each in groups:
            history.record_commits(BEGIN_MS + step * LOOK_MS, each.group, {ORDERS: 10})
    found = stuck({each.group: each for each in groups}, history, 240)
    assert [each.subject for each in found] == late


@pytest.mark.parametrize(
    ("ends", "commits", "is_stuck"),
    [
        ([20] * 51, [10] * 51, True),
        ([20] * 51, [9, *[10] * 50], True),
        ([20] * 51, [*[10] * 50, 11], False),  # it moves
        ([10] * 51, [10] * 51, False),  # nothing to read
        ([*[10] * 50, 20], [10] * 51, False),  # the records have just come
        ([20] * 40, [10] * 40, False),  # too short
    ],
)
def test_group_is_stuck_where_records_wait_at_one_offset(ends, commits, is_stuck):
    """For the whole time, by what was seen every five seconds."""
    history = LagHistory()
    for step, (end, offset) in enumerate(zip(ends, commits, strict=True)):
        history.record_ends(BEGIN_MS + step * LOOK_MS, {ORDERS: end})
        history.record_commits(BEGIN_MS + step * LOOK_MS, "g", {ORDERS: offset})
    groups = {"g": group("g", ends[-1] - commits[-1], 1_000)}

    found = stuck(groups, history, 240)
    assert [each.subject for each in found] == ["g"] * is_stuck
    if is_stuck:
        assert found[0].text == "group g stands at offset 10 of orders-0, where 10 records wait"
    assert stuck({"g": group("g", 10, 100)}, history, 240) == []


def test_disk_is_full_soon():
    """As it has grown; one that shrinks, or was seen for minutes only, is not."""
    half_an_hour = [DiskSample(0, 10 * GB, 100 * GB), DiskSample(HOUR_MS // 2, 9 * GB, 100 * GB)]
    assert hours_left(half_an_hour) == 4.5
    assert hours_left(half_an_hour[::-1]) is None
    assert hours_left([half_an_hour[0], DiskSample(60_000, GB, 100 * GB)]) is None
    shrinks = [DiskSample(0, 50 * GB, 100 * GB), DiskSample(HOUR_MS, 60 * GB, 100 * GB)]
    full = [DiskSample(0, 4 * GB, 100 * GB)]
    found = disk({(1, "/a"): half_an_hour, (2, "/b"): shrinks, (3, "/c"): full}, 24)

    assert [each.subject for each in found] == ["broker 1 /a", "broker 3 /c"]
    assert "will be full in 4.5 h" in found[0].text
    assert "is nearly full" in found[1].text
    assert disk({(1, "/a"): [DiskSample(0, 90 * GB, 100 * GB)] * 2}, 24) == []


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *[
            (each, True)
            for each in ("orders.dlq", "DLT", "orders-dlt", "a.dead-letter", "deadletters")
        ],
        *[(each, True) for each in ("orders.dlq", "DLT", "orders-dlt", "a.dead-letter")],
        *[(each, True) for each in ("deadletters", "a.b.dead-letter", "dead_letters.orders")],
        *[(each, False) for each in ("orders", "adlq", "deadline", "hdltv", "red-letters")],
    ],
)
def test_topic_of_dead_letters_is_known_by_its_name(name, is_one):
    """By the names that Connect, Spring, Streams and Ottla's pipelines give."""
    assert bool(OF_DEAD_LETTERS.search(name)) is is_one


def test_dead_letters_are_counted_until_none_comes():
    """The alert ends then."""
    arrived = {"a.dlq": (3, 1_000), "b.dlq": (0, 1_000)}

    (found,) = dead_letters(arrived, 600_999, 10)
    assert found.text == "3 dead letters came into a.dlq"
    assert dead_letters(arrived, 601_000, 10) == []
