"""Two hundred tests with a broker each: in one process in random order, and in four processes.

Every client that the suite knows takes part, with groups and transactions.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = "tests/clients/test_fresh_broker.py"
COUNT = 200
PLUGIN = """
import random

def pytest_generate_tests(metafunc):
    metafunc.fixturenames.append("repetition")
    metafunc.parametrize("repetition", range({repetitions}))

def pytest_collection_modifyitems(items):
    random.Random({seed}).shuffle(items)
"""


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("processes", [0, 4], ids=["one process", "four processes"])
def test_brokers_of_two_hundred_tests_do_not_meet(tmp_path, processes):
    """They pass in an order that nobody has chosen; its seed is printed."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    plugin = tmp_path / "repeated.py"
    plugin.write_text(PLUGIN.format(repetitions=COUNT // 8, seed=seed))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", TESTS, "-p", "repeated", "-n", str(processes)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    print(done.stdout[-200:])
    assert done.returncode == 0, done.stdout[-5_000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= COUNT
