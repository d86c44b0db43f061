"""A hundred thousand frames for the listener of the first design, with the processor's clock."""

from __future__ import annotations

import logging

import pytest
from first_design_fuzzer import SETTINGS, FirstDesignFuzzer, FirstDesignWatch
from request_fuzzer import cpu_ms, steps_measured

from ottla.security.principal import ANONYMOUS
from ottla.testing import InProcessBroker

SEEDS = range(10)
FRAMES_PER_SEED = 10_000
SIZES = [0, 1, 1, 1, 1, 1, 3, 300]
MOST_MS = 50.0
ALLOWED = 10
"""Steps of a seed that may be longer: other programs take the caches of the processor."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_frames_of_the_first_design_hold_no_step_for_long_and_harm_no_file(seed):
    """The valid message sets are in the files, in their order, and nothing else."""
    logging.disable(logging.CRITICAL)
    worst = []
    try:
        with InProcessBroker(**SETTINGS) as broker:
            fuzzer, watch = FirstDesignFuzzer(seed, SIZES), FirstDesignWatch(broker)
            with steps_measured(watch, cpu_ms):
                for _ in range(FRAMES_PER_SEED):
                    frame = fuzzer.frame()
                    watch.worst = 0
                    watch.send(frame, ANONYMOUS)
                    worst.append((watch.worst, f"type {frame[:2].hex()}, {len(frame)} bytes"))
            found = {place: watch.contents(*place) for place in fuzzer.expected}
    finally:
        logging.disable(logging.NOTSET)
    worst.sort(reverse=True)
    print(f"\nseed {seed}: {worst[:5]}")

    assert found == fuzzer.expected
    assert sum(step_ms > MOST_MS for step_ms, _ in worst) <= ALLOWED
