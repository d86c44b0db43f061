"""`process` of `ottla.aio` in simulated worlds: nothing lost, in order, commits of finished work.

`python -m pytest tests/simulation/test_processing.py` with OTTLA_BREADTH=full runs many seeds.
"""

from __future__ import annotations

import os

import pytest
from worlds import Worlds

SEEDS = 150 if os.environ.get("OTTLA_BREADTH") == "full" else 1


@pytest.mark.parametrize("name", ["CLASSIC", "MODERN"])
def test_orders_are_processed_in_order_and_none_is_lost(worlds: Worlds, name):
    """Through kills, stops, pauses, broken links and rebalances, in groups of both protocols."""
    program = f"processing_app.{name}.run(range(1, {SEEDS + 1}))"
    done = worlds.run(f"import processing_app\nprint(len({program}))")
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout) == SEEDS
