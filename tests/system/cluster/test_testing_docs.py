"""The examples of docs/testing.md, as they stand there, in a suite that has nothing but pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
LIMIT_S = 240
MINE = ("confluent_kafka", "kafka", "aiokafka", "hypothesis", "pyspark", "pyarrow", "pandas")
RUN = f"""
import sys, pytest
status = pytest.main(["-q", "-rs", "-W", "error"])
print("also imported:", sorted(sys.modules.keys() & set({MINE})))
sys.exit(status)
"""


@pytest.fixture
def run_suite(tmp_path):
    """Runs the page's conftest and tests in a folder of their own; what pytest printed."""
    conftest, tests, _ = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_mine.py").write_text(tests)

    def run(**environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_fixtures_serve_a_foreign_suite(java, run_suite):
    """All tests of the page pass, with no more than ottla and pytest."""
    printed = run_suite()

    assert "3 passed in" in printed
    assert "also imported: []" in printed


def test_cluster_is_skipped_where_there_is_no_java(run_suite):
    """The reason says what to install; the broker's tests run all the same."""
    printed = run_suite(PATH="/none", JAVA_HOME="")

    assert "2 passed, 1 skipped in" in printed
    assert "ottla_cluster needs ZooKeeper: Java is missing" in printed


def test_processes_run_by_hand(java):
    """The last example of the page."""
    *_, example = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-c", example], timeout=LIMIT_S, check=False)

    assert done.returncode == 0
