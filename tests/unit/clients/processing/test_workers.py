"""Workers of records: threads that the system may refuse."""

from __future__ import annotations

import pytest

from ottla.clients.processing import workers
from ottla.runtime.io_thread import run_in_thread


def test_threads_end_where_the_system_refuses_the_next(monkeypatch):
    """They would wait for records that nobody puts, as long as the process lasts."""
    begun = []

    def begin(work, name):
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(run_in_thread(work, name))

    monkeypatch.setattr(workers, "run_in_thread", begin)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        workers.ThreadWorkers(3, lambda item: None, lambda item, outcome: None)

    assert [each.result(timeout=60) for each in begun] == [None, None]
