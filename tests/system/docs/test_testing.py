"""The examples of docs/testing.md, as they stand there, in a suite that has nothing but pytest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from page import Page

CONFTEST, TESTS, BY_HAND = Page("docs/testing.md").blocks_in("python")
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
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(TESTS)

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
    done = subprocess.run([sys.executable, "-c", BY_HAND], timeout=LIMIT_S, check=False)

    assert done.returncode == 0
