"""What a story promised at every moment of its trace, and the world that it takes place in."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from log_world import NOW_MS

from ottla.testing import MockRuntime, mock_runtime
from ottla.testing.crash_states import RecordingDisk

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
