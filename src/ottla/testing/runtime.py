"""The whole runtime in virtual time and memory."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ottla.runtime.runtime import Runtime
from ottla.testing.clock import MockClock
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.network import MemoryNetwork
from ottla.testing.scheduler import MockBackground, MockScheduler


@dataclass(frozen=True, slots=True)
class MockRuntime(Runtime):
    """A `Runtime` whose parts a test can get at under their own types."""

    clock: MockClock
    scheduler: MockScheduler
    background: MockBackground
    disk: MemoryDisk
    network: MemoryNetwork

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass, and run everything that falls due."""
        self.scheduler.advance(ms)


def mock_runtime(seed: int = 0, disk: MemoryDisk | None = None) -> MockRuntime:
    """A new runtime: time stands still, the disk is empty or given, randomness is seeded."""
    clock = MockClock()
    scheduler = MockScheduler(clock)
    return MockRuntime(
        clock=clock,
        scheduler=scheduler,
        background=MockBackground(scheduler),
        disk=disk or MemoryDisk(),
        network=MemoryNetwork(),
        random=random.Random(seed),
    )
