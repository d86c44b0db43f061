"""For tests of Ottla and of programs that use it: time by hand, a disk and a network in memory."""

from ottla.testing.clock import MockClock
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.network import MemoryNetwork
from ottla.testing.runtime import MockRuntime, mock_runtime
from ottla.testing.scheduler import MockBackground, MockScheduler

__all__ = [
    "MemoryDisk",
    "MemoryNetwork",
    "MockBackground",
    "MockClock",
    "MockRuntime",
    "MockScheduler",
    "mock_runtime",
]
