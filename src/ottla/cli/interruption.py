"""Turns Ctrl-C and SIGTERM into an event, so that work under way is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(is_over: threading.Event) -> Iterator[None]:
    """The first signal sets the event; a second one ends the process at once."""

    def stop(number: int, frame: object) -> None:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        is_over.set()

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
