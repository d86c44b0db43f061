"""Every state that a crash can leave the disk in, for whole lives of a broker's storage."""

from __future__ import annotations

from crash_stories import Tally, crash_points, stories

SEEDS = range(8)
TORN = 3
LEAST_DISTINCT = 1000


def test_every_crash_state_is_recovered():
    """After every change of the disk, with unsynced data kept, lost and torn in three ways."""
    total = Tally()
    for name, story in stories(SEEDS).items():
        tally = Tally()
        tally.enumerate(name, story, list(crash_points(len(story.trace), TORN)))
        print(
            f"{name}: {len(story.trace)} changes, {tally.states} crash states, "
            f"{len(tally.distinct)} of them distinct, {len(tally.failures)} failures"
        )
        total.states += tally.states
        total.distinct |= tally.distinct
        total.failures += tally.failures
    print(f"{total.states} crash states, {len(total.distinct)} of them distinct")

    assert total.failures == []
    assert len(total.distinct) >= LEAST_DISTINCT
