"""The five things that come into the broker from outside, in one value; and its collector."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ottla.runtime.background import Background, ThreadBackground
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.disk import Disk
from ottla.runtime.local_disk import LocalDisk
from ottla.runtime.network import Network, SocketNetwork
from ottla.runtime.scheduler import LoopScheduler, Scheduler, Slices, Work
from ottla.structs import Value, field

BACKGROUND_WORKERS: Final = 4

Chance = random.Random
"""Random numbers; in a test those of a seed."""


class Runtime(Value, frozen=True):
    """Clock, scheduler, background workers, disk, network and chance; and the turns of long work.

    The code that builds the broker chooses them; nothing inside it uses the real ones by itself.
    So a test can run all of it in virtual time on a disk in memory.
    """

    clock: Clock
    scheduler: Scheduler
    background: Background
    disk: Disk
    network: Network
    random: Chance
    slices: Slices = field(default_factory=Slices, compare=False)
    """The turns of long work, which all rooms share."""

    def begin(self, work: Work[Any], name: str) -> asyncio.Task[Any] | None:
        """Do work that nobody waits for: at once if it does not pause, or else in a task."""
        rest = self.slices.begin(work)
        return self.scheduler.spawn(rest, name) if isinstance(rest, Coroutine) else None

    async def close(self) -> None:
        """End timers and tasks, then wait for background jobs, and for streams to be closed."""
        for part in (self.scheduler, self.background, self.network):
            close = getattr(part, "close", None)
            if close is not None:
                await close()


def real_runtime(
    loop: asyncio.AbstractEventLoop, background_workers: int = BACKGROUND_WORKERS
) -> Runtime:
    """The runtime of the machine, on an asyncio loop."""
    clock = SystemClock()
    return Runtime(
        clock=clock,
        scheduler=LoopScheduler(loop, clock),
        background=ThreadBackground(loop, background_workers),
        disk=LocalDisk(),
        network=SocketNetwork(loop),
        random=random.Random(),
    )


LONG_COLLECTION_NS: Final = 5_000_000
"""The next one takes twice as long: it is of the objects left by this one, and of as many more."""
THAW_NS: Final = 3_600_000_000_000
MIDDLE_COLLECTIONS: Final = 15
"""The second generation's collections, each of some 7,000 new objects; 100,000 take 10 ms."""


class FullCollections:
    """Keeps the collector's full collections short, as all that a broker does waits for them.

    With thousands of partitions one takes 100 ms, and finds nothing: cycles are rare here. So
    after one that was long, and after so much growth that the next one would be, the objects that
    are left are not looked at again for an hour.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._cpu_ns = cpu_ns
        self._thawed_ns = clock_ns()
        self._began_ns = 0
        self._middle_collections = 0

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """One of `gc.callbacks`."""
        if info["generation"] < 2:
            if info["generation"] and phase == "stop":
                self._middle_collections += 1
                if self._middle_collections >= MIDDLE_COLLECTIONS:
                    self._freeze()
            return
        if phase == "stop":
            self._middle_collections = 0
            if self._cpu_ns() - self._began_ns >= LONG_COLLECTION_NS:
                self._freeze()
            return
        self._began_ns = self._cpu_ns()
        if self._clock_ns() - self._thawed_ns >= THAW_NS:
            self._thawed_ns = self._clock_ns()
            gc.unfreeze()

    def _freeze(self) -> None:
        self._middle_collections = 0
        gc.freeze()
