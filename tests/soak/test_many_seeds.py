"""Ten thousand simulated clusters (SOAK_SEEDS for another number)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = int(os.environ.get("SOAK_SEEDS", "10000"))


@pytest.mark.timeout(0)
def test_many_seeds_keep_every_promise():
    """What `make test` shows with 80 seeds, with many more."""
    command = [sys.executable, "-m", "ottla.testing.simulation", f"1-{SEEDS}"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-2000:])
    assert done.returncode == 0
