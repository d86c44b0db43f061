"""A mirror whose link is cut three times under load, for each of twenty seeds."""

from __future__ import annotations

import os

import pytest
from link_cuts import run_with_cuts

SEEDS = range(int(os.environ.get("SOAK_CUTS", "20")))


@pytest.mark.parametrize("seed", SEEDS)
def test_mirror_catches_up_after_every_cut(seed):
    """Nothing is lost, repeated or out of order, whichever side was away."""
    found = run_with_cuts(seed, cuts=3, backlog=5_000)
    print(found)

    assert (found.lost, found.repeated, found.is_in_order) == (0, 0, True), found
    assert min(found.behind) >= 5_000
