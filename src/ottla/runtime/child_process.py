"""Child processes that end when the process that has started them ends, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

PARENT_DEATH_SIGNAL: Final = 1
"""Linux's PR_SET_PDEATHSIG."""
_LIBC: Final = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def ending_with_parent() -> Callable[[], None] | None:
    """A `preexec_fn`, which takes no lock: the kernel kills the child when the thread ends that
    starts it. None where a system cannot promise that.
    """
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def tie() -> None:
        libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before the call
            os.kill(os.getpid(), signal.SIGKILL)

    return tie
