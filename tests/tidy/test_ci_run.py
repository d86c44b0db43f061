"""What CI makes of tests that fail: `.ci/run` with a `make` and a `pytest` that only pretend."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from sources import ROOT

SESSIONS = {"test": 10, "test-compiled": 5}
TARGETS = pytest.mark.parametrize("target", SESSIONS)


def ended(target: str) -> str:
    """What is noted where one session of a target has failed."""
    return "# ended 0\n" * (SESSIONS[target] - 1) + "# ended 1\n"


@pytest.fixture
def run_ci(tmp_path: Path):
    """Runs the script where one target of `make` notes this and ends so, and its second run so."""

    def script(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run(
        target: str, noted: str, *, second: int = 0, first: int = 2
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "noted").write_text(noted)
        ci = tmp_path / ".ci" / "run"
        script(ci, (ROOT / ".ci" / "run").read_text())
        is_test = f'[ "${{*: -1}}" = {target} ] || exit 0'
        note = f'cat "{tmp_path}/noted" >> "$OTTLA_FAILED_TESTS"'
        script(tmp_path / "bin" / "make", f"{is_test}\n{note}\nexit {first}")
        script(tmp_path / ".venv" / "bin" / "pytest", f'echo "ran $*"\nexit {second}')
        environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        return subprocess.run(
            [str(ci)], env=environment, capture_output=True, text=True, check=False
        )

    return run


@TARGETS
def test_tests_that_pass_the_second_time_are_named(run_ci, target):
    """They do not fail the run."""
    done = run_ci(target, f"{ended(target)}tests/a.py::test_b[c d]\ntests/a.py::test_b[c d]\n")

    assert done.returncode == 0
    assert "ran tests/a.py::test_b[c d]\n" in done.stdout
    assert done.stdout.endswith("FLAKY tests/a.py::test_b[c d]\n1 flaky\n")


@TARGETS
@pytest.mark.parametrize(
    ("lost", "failed"), [(1, 1), (0, 0), (0, 11)], ids=["died", "no test", "many"]
)
def test_what_is_no_flaky_test_fails_the_run(run_ci, target, lost, failed):
    """A session that died, a failure without a test, many failures: nothing is run again."""
    names = [f"tests/a.py::test_{number}\n" for number in range(failed)]
    done = run_ci(target, "".join([ended(target)[10 * lost :], *names]))

    assert done.returncode == 1
    assert "ran" not in done.stdout


@TARGETS
def test_test_that_fails_twice_fails_the_run(run_ci, target):
    """It is not called flaky."""
    done = run_ci(target, f"{ended(target)}tests/a.py::test_b\n", second=1)

    assert done.returncode == 1
    assert "FLAKY" not in done.stdout


@TARGETS
def test_run_without_a_failure_ends_at_once(run_ci, target):
    """Nothing is run a second time."""
    done = run_ci(target, ended(target), first=0)

    assert done.returncode == 0
    assert "ran" not in done.stdout
