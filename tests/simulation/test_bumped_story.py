"""Simulated copiers where the end of each transaction raises its epoch."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import logging
from ottla.testing.simulation.bumped_story import BumpedCopyStory

logging.disable()
for seed in range(9, 12):
    print(seed, BumpedCopyStory(seed).run().violations)
"""


def test_copies_are_the_originals_where_ends_raise_epochs():
    """With seed 11 a copier once ended without a word, when a connection that it waited for did."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )

    assert done.stdout.splitlines() == ["9 []", "10 []", "11 []"], done.stderr
