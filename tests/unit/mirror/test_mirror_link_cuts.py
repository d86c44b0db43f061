"""A link that is cut under load, at moments of a seed; `make soak` tries twenty seeds."""

from __future__ import annotations

import pytest
from link_cuts import counted, run_with_cuts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1])
def test_mirror_catches_up_after_a_cut(seed):
    """Source or target is away until clients give up: nothing is lost, repeated or out of order."""
    found = run_with_cuts(seed, cuts=1, backlog=1000)

    assert (found.lost, found.repeated, found.is_in_order) == (0, 0, True), found
    assert min(found.behind) >= 1000


def test_losses_and_repeats_are_counted():
    """The count sees both."""
    assert counted([3, 2], [[0, 2, 2], [1, 0]], [7]) == (5, 1, 1, False, [7])
