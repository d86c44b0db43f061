"""What a story promised at every moment of its trace, and the world that it takes place in."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from log_world import NOW_MS, LogWorld

from ottla.log.log import Log
from ottla.testing import MockRuntime, mock_runtime
from ottla.testing.crash_states import CrashPoint, Fate, RecordingDisk

P = TypeVar("P")


@dataclass
class Notes(Generic[P]):
    """Promises by the length of the trace from which on they hold."""

    lengths: list[int] = field(default_factory=list)
    promises: list[P] = field(default_factory=list)

    def add(self, length: int, promise: P) -> None:
        self.lengths.append(length)
        self.promises.append(promise)

    def at(self, length: int) -> P:
        return self.promises[max(0, bisect_right(self.lengths, length) - 1)]


def recording_runtime() -> MockRuntime:
    return at_now(mock_runtime(disk=RecordingDisk()))


def at_now(runtime: MockRuntime) -> MockRuntime:
    runtime.clock.advance(NOW_MS - runtime.clock.now_ms())
    return runtime


class OneLogStory:
    """The life of one log; its notes say how far it was acknowledged, and flushed, and when."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.disk: RecordingDisk = world.disk
        self.notes: Notes[tuple[int, int]] = Notes()
        self.notes.add(0, (0, 0))

    @property
    def trace(self):
        return self.disk.trace

    def note(self) -> None:
        log = self.world.log()
        self.notes.add(len(self.trace), (log.log_end_offset, log.recovery_point))

    def check_end(self, log: Log, point: CrashPoint) -> None:
        """A process that was killed keeps what it has acknowledged, a machine what was flushed."""
        acknowledged, flushed = self.notes.at(point.length)
        needed = acknowledged if point.fate is Fate.KEPT else flushed
        assert log.log_end_offset >= needed, f"{log} lost {needed}"
