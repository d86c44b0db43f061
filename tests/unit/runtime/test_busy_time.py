"""For how long a thread is busy."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.runtime.busy_time import BusyTime


def test_busy_time_grows_with_what_the_thread_does() -> None:
    """The busy time grows at least by the time for which the thread ran."""
    busy = BusyTime()
    before, ran_before = busy.read_ns(), time.thread_time_ns()
    while time.thread_time_ns() - ran_before < 20_000_000:
        sum(range(1_000))

    assert busy.read_ns() - before >= 10_000_000  # the system counts in slices of a few ms


def test_busy_time_where_the_system_does_not_tell(tmp_path: Path) -> None:
    """It is for how long the thread has run."""
    busy = BusyTime()
    busy._path = str(tmp_path / "schedstat")
    before = time.thread_time_ns()

    assert before <= busy.read_ns() <= time.thread_time_ns()
