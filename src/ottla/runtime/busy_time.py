"""The time for which a thread has had something to do, as the operating system counts."""

from __future__ import annotations

import threading
import time


class BusyTime:
    """The time for which the thread that makes it has had something to do.

    That is the time in which it ran or waited for a processor, as Linux counts; where the system
    does not, the time in which it ran. To know costs nothing until it is asked.
    """

    def __init__(self) -> None:
        self._path = f"/proc/self/task/{threading.get_native_id()}/schedstat"

    def read_ns(self) -> int:
        """Since the thread began; to be asked on the same thread."""
        try:
            with open(self._path) as file:
                ran, waited, _ = file.read().split()
        except (OSError, ValueError):
            return time.thread_time_ns()
        return int(ran) + int(waited)
