"""`process` of `ottla.aio` in simulated worlds: nothing lost, in order, commits of finished work.

`python -m pytest tests/simulation/test_processing.py` with OTTLA_BREADTH=full runs many seeds.
"""

from __future__ import annotations

import pytest
from breadth import IS_FULL
from worlds import Worlds

IN_A_TEST = 10 if IS_FULL else 1
FIRSTS = range(1, 60, IN_A_TEST) if IS_FULL else [1]


@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("name", ["CLASSIC", "MODERN"])
def test_orders_are_processed_in_order_and_none_is_lost(worlds: Worlds, name, first):
    """Through kills, stops, pauses, broken links and rebalances, in groups of both protocols."""
    program = f"processing_app.{name}.run(range({first}, {first + IN_A_TEST}))"
    done = worlds.run(f"import processing_app\nprint(len({program}))")
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout) == IN_A_TEST
