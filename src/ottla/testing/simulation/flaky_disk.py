"""A disk that fails now and then, at any call, and that is slow at times.

Errors are those that the call gives on a real file system: a disk or a quota that is full, too
many open files, a defect. A write may also be short, and continue. Nothing is ever lost or changed
behind an error: the fate of bytes that were not synced is the matter of a loss of power.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.world import MAX_JOB_MS, usual_job_ms


class FlakyDisk(MemoryDisk):
    """A disk whose calls fail at random, from the moment on at which that is asked for."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._calls_per_fault = self._calls_left = 0
        self._doomed = ""
        self._doomed_left = 0
        self.slow_ms = 0
        """How long a job in the background takes at most, while the disk is slow."""
        self.fault_count = 0
        self.is_mended = False
        self.on_call = self._on_call

    def fail_at_random(self, calls_per_fault: int) -> None:
        """Let about one of so many calls fail from now on."""
        self._calls_per_fault = calls_per_fault
        self._calls_left = self._draw()

    def refuse(self, operation: str, times: int) -> None:
        """Let the next calls of an operation fail, each with an error of its own."""
        self._doomed, self._doomed_left = operation, times

    def mend(self) -> None:
        """Fail no more, for good, be as quick as at first, and have room."""
        self.is_mended = True
        self._calls_per_fault = self._doomed_left = self.slow_ms = 0
        self.capacity_in_bytes = None
        self.faults.clear()

    def job_ms(self, chance: random.Random) -> int:
        """How long a job in the background takes, which is on the disk for most of its time."""
        if self.slow_ms:
            return chance.randint(self.slow_ms // 4, self.slow_ms)
        if self._calls_per_fault and chance.randrange(SLOW_JOBS) == 0:
            return chance.randint(MAX_JOB_MS, MAX_SLOW_MS)
        return usual_job_ms(chance)

    def _draw(self) -> int:
        """The number of calls until the next one that fails."""
        mean = self._calls_per_fault
        return round(self._chance.expovariate(1 / mean)) if mean else 0

    def _on_call(self, operation: str, path: str) -> int | None:
        """Let a call fail, or (a write) be short; else None."""
        if self._doomed_left and operation == self._doomed:
            self._doomed_left -= 1
            raise self._error(operation, path)
        if self._calls_per_fault:
            self._calls_left -= 1
            if self._calls_left < 0 and operation in ERRORS:
                self._calls_left = self._draw()
                self.fault_count += 1
                if operation == "pwrite" and self._chance.random() < SHARE_OF_SHORT_WRITES:
                    return self._chance.randint(1, 100)
                raise self._error(operation, path)
        return None

    def _error(self, operation: str, path: str) -> OSError:
        number = self._chance.choice(ERRORS[operation])
        return OSError(number, os.strerror(number), path)


NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
ERRORS: Final[Mapping[str, Sequence[int]]] = {
    "open": (errno.EMFILE, errno.EMFILE, errno.EIO, *NO_ROOM),
    "read_bytes": (errno.EMFILE, errno.EIO),
    "list_dir": (errno.EMFILE, errno.EIO),
    "pread": (errno.EIO,),
    "pwrite": (*NO_ROOM, errno.EIO),
    "truncate": (*NO_ROOM, errno.EIO),
    "replace": (*NO_ROOM, errno.EMFILE, errno.EIO),
    "rename": (*NO_ROOM, errno.EIO),
    "unlink": (*NO_ROOM, errno.EIO),
    "remove_tree": (errno.EMFILE, errno.EIO),
    "make_dirs": (*NO_ROOM, errno.EIO),
    "fsync": (*NO_ROOM, errno.EIO),
    "fsync_dir": (errno.EMFILE, *NO_ROOM, errno.EIO),
    "exists": (errno.EIO,),
    "is_dir": (errno.EIO,),
    "file_size": (errno.EIO,),
}
"""The errors that each call of a disk may have; a call that is not named does not fail."""

SLOW_JOBS: Final = 400
"""One job of so many is slow although the disk is not."""
MAX_SLOW_MS: Final = 4_000
SHARE_OF_SHORT_WRITES: Final = 0.3
