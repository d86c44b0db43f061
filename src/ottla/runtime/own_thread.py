"""A thread for one call that may hang: a look-up of a name, a plug-in, an operator's class."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run `work` in a daemon thread of its own, for calls that may hang; the future has its end.

    A caller that stops waiting leaves the thread behind: nothing can end it.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # the outcome belongs to the caller that waits for it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
