"""Names that Python's modules take from the machine: clock, randomness, sockets, threads."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import random
import time
import warnings
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ottla.testing.simulation.app_process import (
    MS_PER_S,
    NS_PER_MS,
    PRODUCER_COUNT,
    AppLoop,
    AppProcess,
    T,
)
from ottla.testing.simulation.world import CLOSING_ROUNDS, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class VirtualMachine:
    """The functions of `time` and of random bytes, as the process that calls them sees the world.

    Other threads keep the machine's own.
    """

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._thread = get_ident()
        self._random = random.Random(world.random.getrandbits(64))
        self._own = {
            name: getattr(time, name)
            for name in ("time", "monotonic", "perf_counter", "sleep", "time_ns", "monotonic_ns")
        }
        self._own_random_bytes = os.urandom

    def functions(self) -> dict[tuple[Any, str], Callable[..., Any]]:
        """By module and name: the replacements of Python's own."""
        now, monotonic = self._now_ms, self._monotonic_ms
        return {
            (time, "time"): self._dispatch("time", lambda: now() / MS_PER_S),
            (time, "time_ns"): self._dispatch("time_ns", lambda: now() * NS_PER_MS),
            (time, "monotonic"): self._dispatch("monotonic", lambda: monotonic() / MS_PER_S),
            (time, "monotonic_ns"): self._dispatch("monotonic_ns", lambda: monotonic() * NS_PER_MS),
            (time, "perf_counter"): self._dispatch("perf_counter", lambda: monotonic() / MS_PER_S),
            (time, "sleep"): self._sleep,
            (os, "urandom"): self._random_bytes,
            (random, "_urandom"): self._random_bytes,
        }

    def _is_here(self) -> bool:
        return get_ident() == self._thread

    def _dispatch(self, name: str, virtual: Callable[[], T]) -> Callable[[], T]:
        thread, own = self._thread, self._own[name]
        return lambda: virtual() if get_ident() == thread else own()

    def _ahead_ms(self) -> int:
        loop = asyncio._get_running_loop()
        return loop.ahead_ms if isinstance(loop, AppLoop) else 0

    def _now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms()

    def _monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self._ahead_ms()

    def _sleep(self, seconds: float) -> None:
        loop = asyncio._get_running_loop()
        if not self._is_here():
            self._own["sleep"](seconds)
        elif isinstance(loop, AppLoop):
            loop.block(round(seconds * MS_PER_S))

    def _random_bytes(self, size: int) -> bytes:
        if self._is_here():
            return self._random.randbytes(size)
        return self._own_random_bytes(size)


class AppLog(logging.Handler):
    """Notes the log records of an app, by the process in which it runs."""

    def __init__(self, note: Callable[[AppProcess, str], object], level: int) -> None:
        super().__init__(level)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, AppLoop) and loop.process is not None:
            self._note(loop.process, f"{record.levelname} {record.getMessage()}")


@contextmanager
def virtual_machine(world: World, note: Callable[[AppProcess, str], object]) -> Iterator[None]:
    """Let Python's modules take time and randomness from the world, and pass on the apps' logs."""
    values = {**VirtualMachine(world).functions(), **_values_of_aiokafka()}
    own = {(module, name): getattr(module, name) for module, name in values}
    random_state, brokers, root = random.getstate(), logging.getLogger("ottla"), logging.getLogger()
    level, handlers = brokers.level, root.handlers
    random.seed(world.random.getrandbits(64))
    brokers.setLevel(logging.CRITICAL + 1)
    # Other handlers, such as pytest's, would keep log records, and with an error the whole world.
    root.handlers = [AppLog(note, logging.WARNING)]
    for (module, name), value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in own.items():
            setattr(module, name, value)
        root.handlers = handlers
        brokers.setLevel(level)
        random.setstate(random_state)


def _values_of_aiokafka() -> dict[tuple[Any, str], Any]:
    """Values that would differ from run to run: in each case one of the machine or of the process.

    The compiled part asks the C library for the time; producers are counted on and on; and brokers
    without a rack are kept in sets, where None is hashed by its address (before Python 3.12).
    """
    try:
        accumulator = importlib.import_module("aiokafka.producer.message_accumulator")
        producer = importlib.import_module("aiokafka").AIOKafkaProducer
        broker = importlib.import_module("aiokafka.structs").BrokerMetadata
    except ImportError:
        return {}
    append = accumulator.BatchBuilder.append

    def append_now(self: Any, *, timestamp: Any, key: Any, value: Any, headers: Any = ()) -> Any:
        if timestamp is None:
            timestamp = int(time.time() * MS_PER_S)
        return append(self, timestamp=timestamp, key=key, value=value, headers=headers)

    values: dict[tuple[Any, str], Any] = {
        (accumulator.BatchBuilder, "append"): append_now,
        (broker, "__hash__"): lambda self: hash((self.host, self.port)),
    }
    if hasattr(producer, PRODUCER_COUNT):
        values[producer, PRODUCER_COUNT] = 0
    return values


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Collect no garbage but at the end: finalizers of apps would be called at any moment.

    Unclosed objects are not reported, since killed processes could close nothing.
    """
    was_collecting, disabled = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            logging.disable()
            for _ in range(CLOSING_ROUNDS):  # `finally` clauses begin tasks, which hold the rest
                gc.collect()
            logging.disable(disabled)
            gc.unfreeze()
            if was_collecting:
                gc.enable()
