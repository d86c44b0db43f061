"""For tests of Ottla and of programs that use it: time by hand, a disk and a network in memory."""

from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.network import MemoryNetwork
from ottla.testing.runtime import MockBackground, MockRuntime, MockScheduler, mock_runtime
from ottla.testing.virtual_loop import MockClock
from ottla.testing.waiting import NeverHappenedError, wait_until, wait_until_async

__all__ = [
    "MemoryDisk",
    "MemoryNetwork",
    "MockBackground",
    "MockClock",
    "MockRuntime",
    "MockScheduler",
    "NeverHappenedError",
    "mock_runtime",
    "wait_until",
    "wait_until_async",
]
