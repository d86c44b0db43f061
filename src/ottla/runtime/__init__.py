"""The outside world, as the broker needs it: time, timers, threads, files, network and chance."""

from ottla.runtime.background import Background, ThreadBackground
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.disk import Buffer, Disk, DiskLock, File, FileRegion
from ottla.runtime.local_disk import LocalDisk
from ottla.runtime.local_file import LocalFile
from ottla.runtime.network import Network, SocketNetwork
from ottla.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory
from ottla.runtime.runtime import BACKGROUND_WORKERS, Chance, FullCollections, Runtime, real_runtime
from ottla.runtime.scheduler import LoopScheduler, Scheduler, Slices, Timer
from ottla.runtime.timing_wheel import SystemTimer, TimingWheel

__all__ = [
    "BACKGROUND_WORKERS",
    "Background",
    "Buffer",
    "Chance",
    "Clock",
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "Disk",
    "DiskLock",
    "File",
    "FileRegion",
    "FullCollections",
    "LocalDisk",
    "LocalFile",
    "LoopScheduler",
    "Network",
    "Runtime",
    "Scheduler",
    "Slices",
    "SocketNetwork",
    "SystemClock",
    "SystemTimer",
    "ThreadBackground",
    "Timer",
    "TimingWheel",
    "real_runtime",
]
