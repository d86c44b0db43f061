"""Apps of users in simulated worlds: a right one passes, mistakes are found, seeds are repeated.

The worlds run in processes of their own, where the order of sets of strings is the same each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apps
import pytest

FOLDER = Path(apps.__file__).parent
MAX_SEEDS = 20
"""So many seeds at most until a mistake is found; most show with the first."""


def run_python(program: str) -> str:
    """What a program prints that knows the apps."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=FOLDER,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_right_app_passes():
    """A shop, and workers in a group: each order is there once, in order, and is worked on."""
    shown = run_python(
        "import apps\nfor outcome in apps.WORK.run(range(1, 6)):\n    print(outcome.fault_count)"
    )
    assert all(int(count) > 0 for count in shown.split())


def test_seed_of_an_app_is_repeated_exactly():
    """The same bytes at the same time and the same story, whatever ran before in the process."""

    def told(*seeds: int) -> dict[str, str]:
        stories = run_python(
            f"import apps\nfor seed in {seeds}:\n    print(apps.WORK.tell(seed), end='~')"
        )
        return {story.partition(":")[0]: story for story in stories.split("~") if story}

    one, other = told(2, 1), told(1)
    assert one["seed 1"] == other["seed 1"]
    assert "fingerprint" in one["seed 1"]
    assert one["seed 1"] != one["seed 2"]


@pytest.mark.parametrize("name", [main.__name__ for main in apps.MISTAKES])
def test_mistake_of_an_app_is_found(name):
    """One of a few seeds fails in the check, or with the error of the app."""
    shown = run_python(
        "import apps\n"
        f"scenario = apps.MISTAKES[apps.{name}]\n"
        f"failed = (seed for seed in range(1, {MAX_SEEDS + 1}) if scenario.tell(seed).violations)\n"
        "print(next(failed, None))"
    )
    assert shown.strip().isdigit(), shown
