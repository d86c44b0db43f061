"""Requests of every API with hostile sizes, and a watch on what each of them costs a broker.

A request is valid by its schema: one of its arrays is large, its names repeat or are long, its
numbers are extreme. What holds: no step of the loop has more work than a step may have, and no
request takes more memory than four times its bytes and 16 MB.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import tracemalloc
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from apis_world import Client

from ottla.errors import LocalProtocolError
from ottla.network.connection import STOPPING, Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import encode_request
from ottla.protocol.message import Request, request_class
from ottla.protocol.types import Array, Bytes, Field, Fixed, Float64, Records, String, StructType
from ottla.runtime import Buffer, File
from ottla.runtime.serving_loop import SharedSelector
from ottla.security.principal import KafkaPrincipal
from ottla.testing import InProcessBroker

MEMORY_FACTOR, MEMORY_BYTES = 4, 16 * 1024 * 1024
NAMES = ["t", "g", "t", "none", "a.b", "a_b", "", "*", "__consumer_offsets", "é\x1b[2J\n", ".*a.*"]
NUMBERS = [0, 1, -1, 2, 3, 7, 100, 30_000, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]
IDS = [UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)]
BITS = {"b": 7, "h": 15, "i": 31, "q": 63}
WITHOUT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The login is fuzzed by a test of its own."""
SETTLE_TURNS = 3
MOST_TURNS = 100_000
"""Of the loop, for one request: ten times those of the largest."""
MAX_FRAME_BYTES = 100 * 1024 * 1024
"""As `socket.request.max.bytes` has it."""


class RequestFuzzer:
    """Makes requests by chance, of the APIs that a broker serves."""

    def __init__(self, seed: int, served: list[tuple[int, int, int]], sizes: list[int]) -> None:
        self.chance = random.Random(seed)
        self.served = [each for each in served if each[0] not in WITHOUT]
        self.sizes = sizes
        self._focus: Field | None = None

    def request(self) -> tuple[Request, int]:
        """A request and its version."""
        key, first, last = self.chance.choice(self.served)
        version = self.chance.randint(first, last)
        cls = request_class(key)
        self._focus = self.chance.choice(list(arrays_of(cls, version)) or [None])
        return self._struct(cls, version), version

    def frame(self) -> tuple[bytes, str]:
        """The bytes of a request without its size, and what it is."""
        while True:
            request, version = self.request()
            try:
                frame = encode_request(version, 7, "fuzzer", request)[4:]
            except LocalProtocolError:  # a name too long for a string, or the like
                continue
            if len(frame) > MAX_FRAME_BYTES:
                continue
            focus = self._focus.name if self._focus else "-"
            return frame, f"{type(request).__name__} v{version} {focus} {len(frame)} bytes"

    def _struct(self, cls: StructType, version: int) -> Any:
        values = {
            field.name: self._value(field, field.type, version)
            for field in cls.fields
            if version in field.versions
        }
        return cls(**values)

    def _value(self, field: Field, type_: Any, version: int) -> Any:
        if version in field.nullable and self.chance.random() < 0.1:
            return None
        if isinstance(type_, Array):
            size = self.chance.choice([0, 1, 1, 2])
            if field is self._focus:
                size = self.chance.choice(self.sizes)
            return self._list(field, type_.element, size, version)
        if isinstance(type_, StructType):
            return self._struct(type_, version)
        return self._scalar(type_)

    def _list(self, field: Field, element: Any, size: int, version: int) -> list[Any]:
        """Its elements are all the same, numbered, or each made by chance."""
        kind = self.chance.randrange(3)

        def make(type_: Any, version: int) -> Any:
            is_struct = isinstance(type_, StructType)
            return self._struct(type_, version) if is_struct else self._scalar(type_)

        if kind == 0 and size:
            return [make(element, version)] * size
        found = [make(element, version) for _ in range(size)]
        if kind == 1 and element is String:
            return [f"{name[:100]}{number}" for number, name in enumerate(found)]
        if kind == 1 and isinstance(element, Fixed) and element.code in BITS:
            return [number % 2 ** BITS[element.code] for number in range(size)]
        return found

    def _scalar(self, type_: Any) -> Any:
        chance = self.chance
        if type_ is String:
            name = chance.choice(NAMES)
            return name * chance.choice([3000, 300]) if chance.random() < 0.01 else name
        if type_ is Bytes:
            return chance.randbytes(chance.choice([0, 1, 100, 5000]))
        if type_ is Records:
            return chance.randbytes(chance.choice([0, 1, 61, 100, 5000]))
        if type_ is Float64:
            return chance.choice([0.0, -1.0, 1e308, float("inf"), float("nan")])
        if type_.code == "?":
            return chance.random() < 0.5
        if type_.code in BITS:
            most = 2 ** BITS[type_.code]
            return max(-most, min(most - 1, chance.choice(NUMBERS)))
        return chance.choice(IDS)


def arrays_of(cls: StructType, version: int) -> Iterator[Field]:
    """The fields that are arrays, at any depth."""
    for field in cls.fields:
        if version in field.versions:
            type_ = field.type
            if isinstance(type_, Array):
                yield field
                type_ = type_.element
            if isinstance(type_, StructType):
                yield from arrays_of(type_, version)


class DeafClient(Client):
    """It keeps nothing of an answer, which would count as memory of the request."""

    def __init__(self, principal: KafkaPrincipal) -> None:
        super().__init__(principal)
        self.head = b""
        self.size = 0

    def has_output(self, connection: Connection) -> None:
        connection.outgoing.flush(self, self.max_request_bytes)
        self.ended += 1
        if self.size:
            assert int.from_bytes(self.head) == self.size - 4, "the size in front is the answer's"
        if connection.muted & STOPPING:
            connection.close(connection.close_reason)

    def begin_close(self, connection: Connection) -> None:
        self.ended += not self.size
        super().begin_close(connection)

    def send(self, data: Buffer) -> int:
        self.head += bytes(data[: 4 - len(self.head)])
        self.size += len(data)
        return len(data)

    def send_file(self, file: File, position: int, count: int) -> int:
        self.size += count
        return count


class Watch:
    """Measures each callback of the broker's loop, and the memory of each request."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.worst = 0.0

    def send(self, frame: bytes, principal: KafkaPrincipal) -> None:
        """Hand a request over, have its slices done, and hang up."""
        received = memoryview(bytearray(frame))  # here, for it would count as work of the loop
        self.broker.run(self._ask(received, DeafClient(principal)))

    async def _ask(self, frame: memoryview, client: DeafClient) -> None:
        apis = self.broker.broker.apis
        if len(frame) > apis.max_frame_bytes(int.from_bytes(frame[:2], "big")):
            return  # the processor does not receive it
        await asyncio.sleep(0)  # so that the request has a step of its own
        asyncio.get_running_loop().call_soon(client.hand_over, apis, frame)
        idle = turns = 0
        while idle < SETTLE_TURNS:
            turns += 1
            assert turns < MOST_TURNS, f"{frame[:40].hex(' ')}... is still worked on"
            await asyncio.sleep(0)
            self.broker.broker.replica_manager.complete_delayed()
            idle = idle + 1 if apis.slices.is_idle else 0
        client.connection.close("the client hangs up")


@contextmanager
def steps_measured(watch: Watch, measure: Callable[[Callable[[], None]], float]) -> Iterator[None]:
    """Have the worst step of the broker's loop noted, as `measure` sees it.

    A step is a callback, or a turn of the processor, which the loop's wait calls.
    """
    run, serve = events.Handle._run, SharedSelector._serve
    thread = watch.broker.run(current_thread())

    def measured(step: Callable[..., None]) -> Callable[..., None]:
        def do(*arguments: object) -> None:
            if threading.get_ident() != thread:
                step(*arguments)
            else:
                watch.worst = max(watch.worst, measure(lambda: step(*arguments)))

        return do

    events.Handle._run, SharedSelector._serve = measured(run), measured(serve)
    try:
        yield
    finally:
        events.Handle._run, SharedSelector._serve = run, serve


async def current_thread() -> int:
    return threading.get_ident()


def cpu_ms(work: Callable[[], None]) -> float:
    """The time of the processor that it takes: others on the machine do not count."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def memory_of(work: Callable[[], Any]) -> int:
    """The most bytes that it holds at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
