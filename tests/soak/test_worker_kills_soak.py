"""One of three Connect workers is killed under load, by twenty seeds of each kind."""

from __future__ import annotations

import os

import pytest
from connect_group import kill_one_of_three

SEEDS = range(int(os.environ.get("SOAK_KILLS", "20")))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_exactly_once", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_although_a_worker_is_killed(tmp_path, seed, is_exactly_once):
    """How long its tasks were away is printed: session and delay, and what the machine needs."""
    found = kill_one_of_three(tmp_path, seed, is_exactly_once)
    print(found)
    assert found["lost"] == 0
    assert not is_exactly_once or found["twice"] == 0
