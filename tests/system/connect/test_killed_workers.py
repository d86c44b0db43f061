"""One of three workers is killed under load; the others have its tasks, and nothing is lost."""

from __future__ import annotations

import pytest
from connect_group import kill_one_of_three

RECORDS_OF_A_TASK = 400
"""So many that the others still work when they are given what the dead one had."""


@pytest.mark.wide
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "is_exactly_once"), [(1, True), (2, False)])
def test_tasks_come_back_and_nothing_is_lost(tmp_path, seed, is_exactly_once):
    """With exactly-once sources nothing is there twice either."""
    found = kill_one_of_three(tmp_path, seed, is_exactly_once, RECORDS_OF_A_TASK)
    print(found)
    assert found["lost"] == 0
    assert not is_exactly_once or found["twice"] == 0
