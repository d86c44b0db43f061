"""Some of the states that a crash can leave the disk in; `make soak` goes through all of them."""

from __future__ import annotations

import pytest
from crash_stories import Tally, sample, stories

STATES_PER_STORY = 40
SEEDS = range(3)


@pytest.mark.parametrize(
    "name",
    [
        *(f"log {seed}" for seed in SEEDS),
        *("compaction", "transactions", "moves", "registry", "first design"),
    ],
)
def test_crash_states_are_recovered(name):
    """Whatever was not synced is kept, lost or torn: nothing promised is lost, nothing is wrong."""
    story = stories(SEEDS)[name]
    tally = Tally()

    tally.enumerate(name, story, sample(story, STATES_PER_STORY, seed=1))

    assert tally.failures == []
    assert len(tally.distinct) > STATES_PER_STORY // 3


def test_the_check_notices_what_is_lost():
    """A promise that was not given is missed: the enumeration can fail."""
    story = stories(range(1))["log 0"]
    for promises in story.notes.promises:
        for partition, promise in promises.items():
            promises[partition] = type(promise)(promise.incarnation, 1000, 1000)
    tally = Tally()

    tally.enumerate("log 0", story, sample(story, 10, seed=1))

    assert tally.failures
