"""Child processes that end when the process that started them ends, so none is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Final

DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """To be called in the child, before it becomes another program."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux can promise this
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
