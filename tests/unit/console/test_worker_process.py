"""A process for one job: its lines, its end, and the end of the one who waits."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console.refusals import Refused
from ottla.console.worker_process import WorkerProcess, module


def run(script: str, limit_s: float = 60.0):
    """The answer of a script, and the lines before it."""
    said: list[dict] = []
    worker = WorkerProcess(("sh", "-c", script), ("rows", "error"), "statement")
    return asyncio.run(worker.run({"a": 1}, limit_s, said.append)), said


def test_lines_come_before_the_answer():
    """The job is its input; what it says behind the answer is not waited for."""
    script = """echo '{"read": 1}'; read -r job; echo "{\\"rows\\": [$job]}"; exec sleep 60"""
    assert run(script) == ({"rows": [{"a": 1}]}, [{"read": 1}])


def test_worker_without_an_answer_is_a_reason():
    """The last line of its errors, or none."""
    with pytest.raises(Refused, match="The statement has ended early: out of memory"):
        run("cat >/dev/null; echo first >&2; echo out of memory >&2")
    with pytest.raises(Refused, match="it was stopped"):
        run("exit 3")


def test_worker_is_killed_at_its_limit():
    """The caller says how long it was."""
    with pytest.raises(TimeoutError):
        run("exec sleep 60", 0.1)


def test_modules_are_run_without_the_folder_of_the_caller():
    """A file of that folder is no module of the console."""
    assert module("sql_worker")[1:] == ("-P", "-m", "ottla.console.sql_worker")
