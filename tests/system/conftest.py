"""What all tests of this folder share: their servers are forked, not started anew."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from forked_process import ForkedProcess
from xdist.scheduler import LoadFileScheduling

from ottla.testing.processes import ServerProcess

ServerProcess.popen = ForkedProcess

OF_OWN_DRIVERS = (
    *("test_demo.py", "test_driver_kills.py", "test_load_kills.py"),
    *("test_pipeline_crashes.py", "test_sink_driver.py", "test_site.py"),
)


class SessionsTogether(LoadFileScheduling):
    """Gives one worker all tests with a session of Spark: a second JVM is slow again at first.

    The files that start drivers of their own are left to the others.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        return path if PurePath(path).name in OF_OWN_DRIVERS else "sessions"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SessionsTogether | None:
    """Only tests with Spark are divided so."""
    return SessionsTogether(config, log) if config.option.markexpr == "spark" else None
