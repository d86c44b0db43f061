"""No test outlives its time limit, whatever it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WAITS = {
    "in the test": """
        def test_waits():
            threading.Event().wait()
        """,
    "in the teardown of a test that failed": """
        @pytest.fixture
        def waiting():
            yield
            threading.Event().wait()

        def test_fails(waiting):
            assert False
        """,
    "in a loop that is closed after a failure": """
        @pytest.fixture
        def waiting():
            yield
            asyncio.run(asyncio.Event().wait())

        def test_fails(waiting):
            assert False
        """,
    "in code that swallows exceptions": """
        def test_waits():
            while True:
                try:
                    threading.Event().wait()
                except BaseException:
                    pass
        """,
    "where no alarm arrives, after a test that failed": """
        def test_fails():
            assert False

        def test_waits():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            threading.Event().wait()
        """,
    "in a teardown after an alarm that found pytest's own code": """
        class Waiting:
            def pytest_runtest_makereport(self):
                threading.Event().wait()

        @pytest.fixture
        def waiting(request):
            request.config.pluginmanager.register(Waiting())
            yield
            threading.Event().wait()

        def test_passes(waiting):
            pass
        """,
}


@pytest.mark.parametrize("program", WAITS.values(), ids=WAITS)
def test_test_that_waits_for_ever_is_ended(program: str, tmp_path: Path) -> None:
    """A test that never ends fails at its limit, or ends its process and shows all threads."""
    lines = ["import asyncio, pytest, signal, threading", *program.splitlines()]
    file = tmp_path / "test_waiting.py"
    file.write_text("\n".join(line.removeprefix(" " * 8) for line in lines), encoding="utf-8")
    command = ["-m", "pytest", "-c", "pyproject.toml", "-p", "tests.conftest", "--timeout", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OTTLA_FAILED_TESTS", None)

    ended = subprocess.run(
        [sys.executable, *command, str(file)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    # Between two steps of a test, as on a busy machine, an alarm ends pytest by an internal error.
    assert ended.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    assert "Timeout" in ended.stdout + ended.stderr
