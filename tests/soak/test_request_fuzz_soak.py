"""A hundred thousand requests with hostile sizes: the longest step of the loop, and the memory."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from request_fuzzer import RequestFuzzer, Watch, cpu_ms, steps_measured
from test_request_fuzz import ADMIN, EVE, GUARDED

from ottla.testing import InProcessBroker

SEEDS = range(10)
REQUESTS_PER_SEED = 10_000
SIZES = [3] * 40 + [300] * 8 + [3_000] * 4 + [20_000, 40_000]
"""Making a large request costs the fuzzer far more than the broker: most of them are small."""
MOST_MS = 50.0
ALLOWED = 10
"""Steps of a seed that may be longer: other programs take the caches of the processor."""
MOST_RESIDENT_BYTES = 500 * 1024 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_requests_hold_no_step_of_the_loop_for_long(seed):
    """By the processor's time of each step; what one request leaves behind does not add up."""
    logging.disable(logging.CRITICAL)
    worst = []
    try:
        with InProcessBroker(**(GUARDED if seed % 2 else {})) as broker:
            broker.create_topic("t", partitions=20)
            fuzzer = RequestFuzzer(seed, broker.broker.apis.supported(), SIZES)
            watch = Watch(broker)
            with steps_measured(watch, cpu_ms):
                for number in range(REQUESTS_PER_SEED):
                    frame, what = fuzzer.frame()
                    watch.worst = 0
                    watch.send(frame, ADMIN if number % 3 == 0 else EVE)
                    worst.append((watch.worst, what))
            resident = resident_bytes()
    finally:
        logging.disable(logging.NOTSET)

    worst.sort(reverse=True)
    print(f"\nseed {seed}: {resident >> 20} MB, worst steps:")
    for step_ms, what in worst[:10]:
        print(f"{step_ms:7.1f} ms {what}")
    assert sum(step_ms > MOST_MS for step_ms, _ in worst) <= ALLOWED
    assert resident < MOST_RESIDENT_BYTES
