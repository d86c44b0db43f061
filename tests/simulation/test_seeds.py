"""Simulated clusters: 160 seeds keep every promise, and known bugs are noticed.

The worlds run in processes of their own, where the order of sets of strings is the same each time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import planted_bugs
import pytest

from ottla.testing.simulation.stories import KINDS, kind_of

SEEDS = "1-160"
"""Each planted bug shows in a few of them; `make soak` runs ten thousand."""
PLANTED_BUGS = Path(planted_bugs.__file__)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(1800)
def test_160_seeds_keep_every_promise():
    """Nothing acknowledged is lost or out of order, nobody sees what is gone later, all heals."""
    done = run_python("-m", "ottla.testing.simulation", SEEDS)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "160 seeds" in done.stdout


@pytest.mark.timeout(600)
def test_seed_is_replayed_exactly():
    """The same steps, faults and offsets, whenever it is run; a story of each kind."""
    for kind in set(KINDS):
        seed = next(seed for seed in planted_bugs.SEEDS if kind_of(seed) is kind)
        shown = [run_python("-m", "ottla.testing.simulation", str(seed)).stdout for _ in range(2)]
        assert shown[0] == shown[1]
        assert re.search(r"fingerprint [0-9a-f]{16}", shown[0])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [plant.__name__ for plant in planted_bugs.PLANTS])
def test_planted_bug_is_noticed(name):
    """One of the same seeds goes wrong, in a story of the kind that the bug is about."""
    found = run_python(str(PLANTED_BUGS), name)
    assert found.stdout.strip().isdigit(), found.stdout + found.stderr[-2000:]
