"""The offsets of segments by time, as ListOffsets v0 asks for them."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, LogWorld

from ottla.log.log_retention import segment_offsets_before


@pytest.fixture
def world() -> LogWorld:
    """Segments that begin at 0, 2 and 4, with a record a second; the log ends at 5."""
    world = LogWorld()
    for number in range(5):
        if number in (2, 4):
            world.log().roller.roll()
        world.append(b"x", timestamp_ms=NOW_MS + 1000 * number)
    return world


@pytest.mark.parametrize(
    ("timestamp_ms", "max_count", "offsets"),
    [
        (-1, 100, [5, 4, 2, 0]),
        (-1, 1, [5]),
        (-1, 0, []),
        (-1, -1, []),
        (-2, 100, [0]),
        (NOW_MS - 1, 100, []),
        (NOW_MS + 1000, 100, [0]),
        (NOW_MS + 3999, 100, [2, 0]),
        (NOW_MS + 3999, 1, [2]),
        (NOW_MS + 4000, 100, [4, 2, 0]),
        (NOW_MS + 9000, 100, [5, 4, 2, 0]),
    ],
)
def test_segments_before_a_time_are_listed(world, timestamp_ms, max_count, offsets):
    """By the newest record of each, newest segment first."""
    found = segment_offsets_before(world.log(), timestamp_ms, max_count, NOW_MS + 9000)

    assert found == offsets


def test_nothing_above_the_high_watermark_is_given_away(world):
    """It stands in for what lies behind it."""
    world.log().high_watermark = 3

    assert segment_offsets_before(world.log(), -1, 100, NOW_MS + 9000) == [3, 2, 0]
    world.log().high_watermark = 4
    assert segment_offsets_before(world.log(), -1, 100, NOW_MS + 9000) == [4, 2, 0]


def test_deleted_records_are_not_listed(world):
    """The first segment may begin before the log does."""
    world.log().maybe_increment_log_start_offset(1)

    assert segment_offsets_before(world.log(), -2, 100, NOW_MS + 9000) == [1]


def test_empty_log_has_its_start():
    """There is one segment, and it ends where it begins."""
    assert segment_offsets_before(LogWorld().log(), -1, 100, NOW_MS) == [0]
