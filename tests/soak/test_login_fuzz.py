"""A million hostile frames of clients that have not logged in."""

from __future__ import annotations

import tracemalloc

import pytest
from login_fuzzer import attack

SEEDS = range(10)
FRAMES_PER_SEED = 100_000
WARM_UP = 5_000
MAX_GROWTH_BYTES = 64 * 1024


@pytest.mark.parametrize("seed", SEEDS)
def test_a_million_frames_raise_nothing(seed):
    """Each has a verdict, and nobody is let in."""
    outcomes = attack(seed, FRAMES_PER_SEED)

    print(f"\nseed {seed}: {dict(outcomes)}")
    assert sum(outcomes.values()) == FRAMES_PER_SEED


def test_they_leave_no_memory_behind():
    """Ten times as many frames need no more of it."""
    attack(0, WARM_UP)
    tracemalloc.start()
    try:
        attack(1, WARM_UP)
        before, _ = tracemalloc.get_traced_memory()
        attack(2, 10 * WARM_UP)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < MAX_GROWTH_BYTES
