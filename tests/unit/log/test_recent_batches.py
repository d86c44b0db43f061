"""The memory of recent batches: searches, its bounded size, truncation."""

from __future__ import annotations

import pytest

from ottla.log.recent_batches import CAPACITY, RecentBatches


def three_batches() -> RecentBatches:
    recent = RecentBatches()
    for base_offset, last_offset, position in ((10, 14, 100), (15, 15, 200), (18, 20, 350)):
        recent.append(base_offset, last_offset, position)
    return recent


@pytest.mark.parametrize(
    ("offset", "position"),
    [(10, 100), (14, 100), (15, 200), (16, 350), (18, 350), (20, 350), (21, None)],
)
def test_position_is_that_of_the_batch_with_the_offset(offset, position):
    """The position is that of the offset's batch, or of the next one behind a gap."""
    assert three_batches().position_of(offset) == position


@pytest.mark.parametrize(("position", "border"), [(99, None), (100, 100), (349, 200), (999, 350)])
def test_border_before_is_where_a_batch_begins(position, border):
    """Fetches end there."""
    assert three_batches().border_before(position) == border


@pytest.mark.parametrize(("position", "border"), [(50, None), (100, 200), (200, 350), (350, None)])
def test_border_after_is_where_the_next_batch_begins(position, border):
    """The end of the last batch is the end of the segment, which is not kept here."""
    assert three_batches().border_after(position) == border


def test_truncate_forgets_batches_from_a_position_on():
    """What was cut off cannot be found."""
    recent = three_batches()
    recent.truncate(200)

    assert recent.position_of(14) == 100
    assert recent.position_of(15) is None
    recent.truncate(0)
    assert recent.start_offset > 2**62


def test_memory_is_bounded():
    """The oldest half goes when it is full."""
    recent = RecentBatches()
    for number in range(CAPACITY):
        recent.append(number, number, number)
    assert (len(recent.positions), recent.start_offset) == (CAPACITY, 0)
    for number in range(CAPACITY, 10 * CAPACITY):
        recent.append(number, number, number)
        assert recent.position_of(recent.start_offset) == recent.start_offset
        assert recent.start_offset == recent.last_offsets[0]

    assert len(recent.positions) <= CAPACITY
    assert recent.start_offset <= 10 * CAPACITY - CAPACITY // 2
    assert recent.position_of(10 * CAPACITY - 1) == 10 * CAPACITY - 1
