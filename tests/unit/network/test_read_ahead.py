"""Cold answers are read in the background, a few at a time; nobody else waits for them."""

from __future__ import annotations

import socket
import struct

from ottla.network.outgoing import Outgoing
from ottla.network.read_ahead import ReadAhead
from ottla.runtime import FileRegion
from ottla.testing import MemoryDisk, MockBackground, MockClock, MockScheduler


class HeldBackground(MockBackground):
    """Keeps the jobs until the test lets one go."""

    def __init__(self) -> None:
        super().__init__(MockScheduler(MockClock()))
        self.held = []

    def submit(self, job, on_done=None, on_error=None):
        self.held.append((job, on_done))

    def finish_first(self):
        job, on_done = self.held.pop(0)
        on_done(job())


def cold_answer(size: int = 10) -> Outgoing:
    file = MemoryDisk(is_cold=True).open("/file", create=True)
    file.pwrite(bytes(size), 0)
    outgoing = Outgoing()
    outgoing.extend([FileRegion(file, 0, size)])
    return outgoing


def test_no_more_jobs_than_allowed_are_under_way() -> None:
    """The third answer is read when one of the first two has been."""
    background, done = HeldBackground(), []
    read_ahead = ReadAhead(background, max_jobs=2)

    for name in ("first", "second", "third"):
        read_ahead.request(cold_answer(), lambda name=name: done.append(name))

    assert len(background.held) == 2
    background.finish_first()
    assert (len(background.held), done) == (2, ["first"])


def test_answer_is_read_once_however_often_it_is_asked_for() -> None:
    """A second request while the first is under way changes nothing."""
    background, outgoing, done = HeldBackground(), cold_answer(), []
    read_ahead = ReadAhead(background)

    read_ahead.request(outgoing, lambda: done.append(1))
    read_ahead.request(outgoing, lambda: done.append(2))
    background.finish_first()

    assert (background.held, done, outgoing.is_reading) == ([], [1], False)


def test_answer_of_a_client_that_has_gone_is_not_read() -> None:
    """Its place goes to the next one."""
    background = HeldBackground()
    read_ahead = ReadAhead(background, max_jobs=1)
    answers = [cold_answer() for _ in range(3)]
    for outgoing in answers:
        read_ahead.request(outgoing, lambda: None)

    answers[1].clear()
    background.finish_first()

    assert answers[2].is_reading
    assert len(background.held) == 1


def test_cold_answer_reaches_its_client_and_holds_nobody(world) -> None:
    """While one client's records are read, another one is answered."""
    region = cold_answer(3_000_000).next_in_file()
    region.size = 3_000_000
    background = HeldBackground()
    world.processor._read_ahead = ReadAhead(background)
    slow, quick = world.connect(), world.connect()
    world.respond_with([region])
    world.send(slow, b"\0\0\0\1x")
    world.until(lambda: background.held)
    world.answer = world.echo
    world.send(quick, b"\0\0\0\1y")

    assert world.receive(quick, 5) == b"\0\0\0\1y"
    assert slow.take() == b""
    background.finish_first()
    received = world.receive(slow, 2 * 1024 * 1024)
    world.until(lambda: background.held)
    background.finish_first()
    assert received + world.receive(slow, 3_000_000 - len(received)) == bytes(3_000_000)


def test_client_may_leave_while_its_answer_is_read(world) -> None:
    """Nothing is sent to it, and the processor goes on."""
    background = HeldBackground()
    world.processor._read_ahead = ReadAhead(background)
    client = world.connect()
    world.respond_with([cold_answer().next_in_file()])
    world.send(client, b"\0\0\0\1x")
    world.until(lambda: background.held)

    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
    client.close()
    world.until(lambda: not world.processor.connections)
    background.finish_first()

    other = world.connect()
    world.answer = world.echo
    world.send(other, b"\0\0\0\1z")
    assert world.receive(other, 5) == b"\0\0\0\1z"
