"""Answers keep the order of the requests, whichever wait for acknowledgements, and how long."""

from __future__ import annotations

import struct
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ottla.network.connection import IN_FLIGHT, MAX_UNACKNOWLEDGED, Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.protocol.api_keys import ApiKey
from ottla.runtime import Buffer, DelayedOperation

WAITS, ENDS_AT_ONCE, HAS_NO_ANSWER, IS_NO_PRODUCE = range(4)


class Waits(DelayedOperation):
    def __init__(self) -> None:
        super().__init__(1000)

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        raise AssertionError("the test acknowledges")


class World:
    """A client's requests, by their kinds, and the connection that takes them when it may."""

    def __init__(self, kinds: list[int]) -> None:
        self.to_come = deque(enumerate(kinds))
        self.waiting: list[int] = []
        self.handled: list[int] = []
        self.answered: list[int] = []
        frames = FrameBuffer(1000, BufferPool())
        self.connection = Connection(self, None, frames, "id", "PLAINTEXT", ("127.0.0.1", 1))

    def take(self) -> None:
        """Hand requests over for as long as the connection may take any."""
        connection = self.connection
        while self.to_come and not connection.muted:
            number, kind = self.to_come[0]
            key = ApiKey.FETCH if kind == IS_NO_PRODUCE else ApiKey.PRODUCE
            if connection.owed and connection.must_wait(key):
                return
            self.to_come.popleft()
            if kind == IS_NO_PRODUCE:
                assert not self.waiting, "what was sent before is not answered"
            connection.muted = IN_FLIGHT
            self.handled.append(number)
            if kind == WAITS:
                self.waiting.append(number)
                assert len(self.waiting) <= MAX_UNACKNOWLEDGED
                connection.await_acknowledgement(number, Waits())
            elif kind == HAS_NO_ANSWER:
                connection.no_response()
            else:
                self.answer(number)

    def answer(self, number: int) -> None:
        self.connection.send([struct.pack(">ii", 4, number)], number)

    # The processor, as far as a connection knows it, and its socket

    def has_output(self, connection: Connection) -> None:
        connection.outgoing.flush(self, 1000)

    def begin_close(self, connection: Connection) -> None:
        """It takes no more requests."""

    def send(self, data: Buffer) -> int:
        self.answered.append(struct.unpack(">ii", data)[1])
        return len(data)

    def send_all_of(self, buffers: list[Buffer], more_follows: bool) -> int:
        return sum(map(self.send, buffers))


@given(
    kinds=st.lists(st.sampled_from([WAITS, WAITS, ENDS_AT_ONCE, HAS_NO_ANSWER, IS_NO_PRODUCE])),
    choices=st.lists(st.integers(0, MAX_UNACKNOWLEDGED - 1), max_size=40),
    closes_after=st.none() | st.integers(0, 40),
)
def test_answers_keep_the_order_of_the_requests(
    kinds: list[int], choices: list[int], closes_after: int | None
) -> None:
    """Each is sent once, and none before those of all requests before it."""
    world = World(kinds)
    expected = [number for number, kind in enumerate(kinds) if kind != HAS_NO_ANSWER]
    world.take()
    for count, choice in enumerate([*choices, *([0] * len(kinds))]):
        if count == closes_after:
            world.connection.close("an error")
            assert not world.connection.owes_answer
        if world.waiting:
            world.answer(world.waiting.pop(choice % len(world.waiting)))
            world.take()
        assert world.answered == expected[: len(world.answered)]
    if not world.connection.is_closing:
        assert world.answered == expected
        assert world.handled == list(range(len(kinds)))
        assert not world.connection.owes_answer
