"""Apps of users in simulated worlds: a right one passes, mistakes are found, seeds are repeated.

The worlds run in forks of a process in which the order of sets of strings is the same each time.
"""

from __future__ import annotations

import apps
import pytest
from breadth import examples, some
from worlds import Worlds


def run(worlds: Worlds, program: str) -> str:
    """What a program prints that knows the apps."""
    done = worlds.run(f"import apps\n{program}")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(1200)
def test_right_app_passes(worlds):
    """A shop, and workers in a group: each order is there once, in order, and is worked on."""
    seeds = range(1, 1 + examples(6))
    shown = run(worlds, f"for seen in apps.WORK.run({seeds}):\n    print(seen.fault_count)")
    assert all(int(count) > 0 for count in shown.split())


def test_seed_of_an_app_is_repeated_exactly(worlds):
    """The same bytes at the same time and the same story, whatever ran before in the process."""

    def told(*seeds: int) -> dict[str, str]:
        stories = run(worlds, f"for seed in {seeds}:\n    print(apps.WORK.tell(seed), end='~')")
        return {story.partition(":")[0]: story for story in stories.split("~") if story}

    one, other = told(2, 1), told(1)
    assert one["seed 1"] == other["seed 1"]
    assert "fingerprint" in one["seed 1"]
    assert one["seed 1"] != one["seed 2"]


@pytest.mark.parametrize("name", [main.__name__ for main in some(apps.MISTAKES)])
def test_mistake_of_an_app_is_found(worlds, name):
    """One of a few seeds fails in the check, or with the error of the app."""
    shown = run(worlds, f"print(apps.first_seed_that_fails(apps.{name}))")
    assert shown.strip().isdigit(), shown
