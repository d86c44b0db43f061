"""A thousand worlds with a right app of a user's in each, and one of them a hundred times."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import apps
import pytest

APPS = Path(apps.__file__).parent
SEEDS = 1_000
LIMIT_S = 600
REPETITIONS = 100

PROGRAM = f"""
import sys
sys.path.insert(0, {str(APPS)!r})
from apps import WORK as scenario
"""


def simulate(program: Path, *options: str) -> str:
    """What the command prints about seeds that all pass."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "simulate", str(program), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(3_600)
def test_thousand_seeds_of_an_app_pass_in_ten_minutes(tmp_path):
    """A shop and two workers, unmodified programs on aiokafka."""
    program = tmp_path / "work.py"
    program.write_text(PROGRAM)
    begun = time.monotonic()
    print(simulate(program, "--seeds", str(SEEDS)))
    took_s = time.monotonic() - begun
    assert took_s < LIMIT_S


@pytest.mark.timeout(3_600)
def test_seed_is_the_same_a_hundred_times(tmp_path):
    """In processes of their own, where objects have other addresses each time."""
    program = tmp_path / "work.py"
    program.write_text(PROGRAM)
    assert len({simulate(program, "--seed", "1") for _ in range(REPETITIONS)}) == 1
