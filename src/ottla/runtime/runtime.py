"""The five things that come into the broker from outside, in one value."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from ottla.runtime.background import Background, ThreadBackground
from ottla.runtime.disk import Disk, LocalDisk
from ottla.runtime.network import Network, SocketNetwork
from ottla.runtime.scheduler import Clock, LoopScheduler, Scheduler, SystemClock
from ottla.structs import Value

BACKGROUND_WORKERS: Final = 4

Chance = random.Random
"""Random numbers; in a test those of a seed."""


class Runtime(Value, frozen=True):
    """Clock, scheduler, background workers, disk, network and chance.

    The code that builds the broker chooses them; nothing inside it uses the real ones by itself.
    So a test can run all of it in virtual time on a disk in memory.
    """

    clock: Clock
    scheduler: Scheduler
    background: Background
    disk: Disk
    network: Network
    random: Chance

    async def close(self) -> None:
        """End timers and tasks, then wait for background jobs, and for streams to be closed."""
        for part in (self.scheduler, self.background, self.network):
            close = getattr(part, "close", None)
            if close is not None:
                await close()


def real_runtime(
    loop: asyncio.AbstractEventLoop, background_workers: int = BACKGROUND_WORKERS
) -> Runtime:
    """The runtime of the machine, on an asyncio loop (uvloop's is as good)."""
    clock = SystemClock()
    return Runtime(
        clock=clock,
        scheduler=LoopScheduler(loop, clock),
        background=ThreadBackground(loop, background_workers),
        disk=LocalDisk(),
        network=SocketNetwork(loop),
        random=random.Random(),
    )
