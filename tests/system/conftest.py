"""What all tests of this folder share: their servers are forked, not started anew."""

from __future__ import annotations

import logging
from collections.abc import Callable
from io import StringIO
from pathlib import PurePath

import pytest
from forked_process import ForkedProcess
from xdist.scheduler import LoadFileScheduling

from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.testing.processes import ServerProcess

ServerProcess.popen = ForkedProcess

OF_OWN_DRIVERS = (
    *("test_demo_of_generated_events", "test_the_continuous_pipeline_runs_and_reports"),
    *("test_sink_driver.py", "test_u01_readers_are_independent_and_lose_nothing"),
)
"""Files, and single tests of other files."""


class SessionsTogether(LoadFileScheduling):
    """Gives one worker all tests with a session of Spark: a second JVM is slow again at first.

    Those that start drivers of their own are left to the others.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        own = {PurePath(path).name, test} & {*OF_OWN_DRIVERS}
        return own.pop() if own else "sessions"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SessionsTogether | None:
    """Only tests with Spark are divided so."""
    return SessionsTogether(config, log) if config.option.markexpr == "spark" else None


@pytest.fixture
def lent_session(spark: object, monkeypatch: pytest.MonkeyPatch) -> object:
    """The tests' session for what would start one of its own, and stop it.

    A program has a JVM of its own, which takes ten seconds of a core to start and to become fast.
    """
    logging.root.handlers.clear()  # what runs says where warnings go
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    return spark


@pytest.fixture
def run_here(lent_session: object) -> Callable[..., list[str]]:
    """Runs `ottla` and these words in this process, on the tests' session; the lines it prints."""

    def run(*words: object) -> list[str]:
        terminal = Terminal(out=StringIO(), err=StringIO())
        status = main([*map(str, words)], terminal)
        printed, said = terminal.out.getvalue(), terminal.err.getvalue()
        assert (status, said) == (0, ""), printed
        return printed.splitlines()

    return run
