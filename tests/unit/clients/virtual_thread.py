"""In the place of a client's I/O thread: each call runs at once, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.errors import KafkaTimeoutError
from ottla.runtime.scheduler import within
from ottla.testing import MockRuntime


class VirtualThread:
    """What clients use of `IoThread`, on the loop of a virtual world."""

    def __init__(self, runtime: MockRuntime) -> None:
        self.runtime = runtime
        self.is_alive = True

    def check_may_wait(self) -> None:
        if not self.is_alive:
            raise RuntimeError("the thread is closed")

    def run(self, call: Coroutine[Any, Any, Any], limit_ms: int | None = None) -> Any:
        if not self.is_alive:
            call.close()
            raise RuntimeError("the thread is closed")
        scheduler = self.runtime.scheduler
        if limit_ms is not None:
            if limit_ms <= 0:
                call.close()
                raise KafkaTimeoutError(f"not done within {limit_ms} ms")
            call = within(scheduler, limit_ms, call, "not done")
        return scheduler.run(call)

    begin_with = run

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        self.runtime.scheduler.call_soon(lambda: callback(*arguments))

    def close(self, close_core: Callable[[], object] | None = None) -> None:
        if self.is_alive and close_core is not None:
            close_core()
        self.is_alive = False


def virtual_threads(patch: pytest.MonkeyPatch, runtime: MockRuntime, module: str) -> None:
    """Have the clients of a module run in a virtual world."""
    patch.setattr(f"{module}.IoThread", lambda name: VirtualThread(runtime))
