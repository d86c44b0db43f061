"""Simulated clusters: many seeds keep every promise, and known bugs are noticed.

The worlds run in processes in which the order of sets of strings is the same each time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import planted_bugs
import pytest
from breadth import some
from worlds import Worlds

from ottla.compiled import is_core_compiled
from ottla.testing.simulation.stories import KINDS, kind_of

SEEDS = os.environ.get("OTTLA_SEEDS", "1-8")
"""CI runs 240, `make soak` ten thousand."""


def stories(worlds: Worlds, *seeds: int) -> dict[str, str]:
    """What one process tells of each of the seeds, one after the other, by "seed 42"."""
    program = "from ottla.testing.simulation.__main__ import main\n" + "".join(
        f"main(['{seed}'])\nprint(end='~')\n" for seed in seeds
    )
    shown = worlds.run(program)
    assert shown.returncode == 0, shown.stdout[-2000:] + shown.stderr[-2000:]
    return {story.partition(":")[0]: story for story in shown.stdout.split("~") if story}


@pytest.mark.timeout(1800)
def test_seeds_keep_every_promise():
    """Nothing acknowledged is lost or out of order, nobody sees what is gone later, all heals."""
    command = [sys.executable, "-m", "ottla.testing.simulation", SEEDS]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ seeds, .* 0 failed", done.stdout, re.MULTILINE)


@pytest.mark.timeout(600)
def test_seed_is_replayed_exactly(worlds):
    """The same steps, faults and offsets, whatever was told before it; stories of some kinds."""
    kinds = some(dict.fromkeys(KINDS))
    seeds = [next(seed for seed in planted_bugs.SEEDS if kind_of(seed) is kind) for kind in kinds]

    told = [stories(worlds, *order) for order in (sorted(seeds), sorted(seeds, reverse=True))]

    assert told[0] == told[1]
    assert set(told[0]) == {f"seed {seed}" for seed in seeds}
    assert all(re.search(r"fingerprint [0-9a-f]{16}", story) for story in told[0].values())


@pytest.mark.skipif(not is_core_compiled(), reason="the core is not compiled: `make compiled`")
def test_seed_is_the_same_in_a_compiled_core_and_in_its_source(worlds, source_worlds):
    """The same steps; also where the epochs of fetch sessions begin again, as in the first two."""
    seeds = (3, 4, 7, 8)

    assert stories(worlds, *seeds) == stories(source_worlds, *seeds)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [plant.__name__ for plant in some(some(planted_bugs.PLANTS))])
def test_planted_bug_is_noticed(source_worlds, name):
    """One of 400 seeds goes wrong, in a story of the kind that the bug is about."""
    found = source_worlds.run(f"import planted_bugs\nplanted_bugs.main({name!r})")
    assert found.stdout.strip().isdigit(), found.stdout + found.stderr[-2000:]
