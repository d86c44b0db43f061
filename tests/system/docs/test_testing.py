"""The examples of docs/start/testing.md, as they stand, in a suite that has pytest alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from page import Page

BLOCKS = Page("docs/start/testing.md").blocks_in("python")
SUITES = [block for block in BLOCKS if "def test_" in block]
PROGRAMS = [block for block in BLOCKS if "def test_" not in block]
PROCESSES = [block for block in SUITES if "ottla_broker)" in block]
IN_PROCESS = [block for block in SUITES if block not in PROCESSES]
LIMIT_S = 240
MINE = ("confluent_kafka", "kafka", "aiokafka", "hypothesis", "pyspark", "pyarrow", "pandas")
RUN = f"""
import sys, pytest
status = pytest.main(["-q", "-rs", "-W", "error", "-p", "ottla.testing.fixtures"])
print("also imported:", sorted(sys.modules.keys() & set({MINE})))
sys.exit(status)
"""


@pytest.fixture
def run_suite(tmp_path):
    """Runs tests of the page in a folder of their own, without a conftest; what pytest printed."""

    def run(suites: list[str], **environment: str) -> str:
        for number, suite in enumerate(suites):
            (tmp_path / f"test_mine_{number}.py").write_text(suite)
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


def test_fixtures_in_process_serve_a_foreign_suite(run_suite):
    """All tests of the page pass without Java, with no more than ottla and pytest."""
    printed = run_suite(IN_PROCESS, PATH="/none", JAVA_HOME="")

    assert f"{sum(suite.count('def test_') for suite in IN_PROCESS)} passed in" in printed
    assert "also imported: []" in printed


def test_fixtures_of_processes_serve_a_foreign_suite(java, run_suite):
    """All tests of the page pass, with no more than ottla and pytest."""
    printed = run_suite(PROCESSES)

    assert "3 passed in" in printed
    assert "also imported: []" in printed


def test_cluster_is_skipped_where_there_is_no_java(run_suite):
    """The reason says what to install; the broker's tests run all the same."""
    printed = run_suite(PROCESSES, PATH="/none", JAVA_HOME="")

    assert "2 passed, 1 skipped in" in printed
    assert "ottla_cluster needs ZooKeeper: Java is missing" in printed


def test_broker_without_pytest():
    """The first program of the page."""
    done = subprocess.run([sys.executable, "-c", PROGRAMS[0]], timeout=LIMIT_S, check=False)

    assert done.returncode == 0


def test_processes_run_by_hand(java):
    """The last program of the page."""
    done = subprocess.run([sys.executable, "-c", PROGRAMS[-1]], timeout=LIMIT_S, check=False)

    assert len(PROGRAMS) == 2
    assert done.returncode == 0
