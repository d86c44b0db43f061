"""A thread for one call that may hang."""

from __future__ import annotations

import threading

import pytest

from ottla.runtime.own_thread import run_in_thread


def test_outcome_of_the_call_is_the_futures():
    """Its result, or its error: also one that would end a thread."""

    def fail():
        raise SystemExit(3)

    assert run_in_thread(lambda: threading.current_thread().name, "mine").result(10) == "mine"
    with pytest.raises(SystemExit):
        run_in_thread(fail, "mine").result(10)


def test_call_that_hangs_keeps_no_program_from_its_end():
    """Nothing can end the thread; it is left behind."""
    over = threading.Event()
    future = run_in_thread(over.wait, "mine")
    (thread,) = [each for each in threading.enumerate() if each.name == "mine"]

    assert thread.daemon
    assert not future.cancel()
    over.set()
    assert future.result(10)
