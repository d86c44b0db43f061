"""The processor over real sockets: slow readers, and answers that lie in files."""

from __future__ import annotations

from pathlib import Path

from network_world import NetworkWorld, frame

from ottla.runtime import FileRegion, LocalDisk


def test_slow_reader_does_not_hold_others_and_is_bounded(world: NetworkWorld) -> None:
    """A client that reads nothing is muted once its socket is full."""
    slow, other = world.connect(receive_buffer_bytes=4096), world.connect()
    answer = frame(bytes(200_000))
    world.respond_with([answer])
    for _ in range(50):
        slow.send(frame(b"more"))
    world.until(lambda: any(each.outgoing for each in world.connections))
    world.turn(50)
    taken = len(world.requests)
    assert taken < 20
    (blocked,) = {each for each in world.connections if each.outgoing}
    assert blocked.outgoing.bytes_in_memory < 3 * len(answer)

    world.send(other, frame(b"other"))
    assert world.receive(other, len(answer)) == answer

    for _ in range(50):
        assert world.receive(slow, len(answer)) == answer
    assert len(world.requests) == 51


def test_parts_of_files_are_sent_between_bytes(world: NetworkWorld, tmp_path: Path) -> None:
    """A fetch response: head, records from the file, tail, and the next partition."""
    content = bytes(range(256)) * 4096
    file = LocalDisk().open(str(tmp_path / "segment"), create=True)
    file.pwrite(content, 0)
    parts = [b"head", FileRegion(file, 100, 700_000), memoryview(b"tail"), FileRegion(file, 5, 3)]
    world.respond_with([*parts, b"", FileRegion(file, 0, 0), b"end"])
    client = world.connect()
    world.send(client, frame(b"fetch"))
    expected = b"head" + content[100:700_100] + b"tail" + content[5:8] + b"end"

    assert world.receive(client, len(expected)) == expected
    file.close()


def test_parts_of_a_simulated_file_are_read_and_sent(world: NetworkWorld) -> None:
    """A disk in memory has nothing for sendfile."""
    file = world.runtime.disk.open("/segment", create=True)
    file.pwrite(b"0123456789" * 50_000, 0)
    world.respond_with([b"<", FileRegion(file, 5, 400_000), b">"])
    client = world.connect()
    world.send(client, frame(b"fetch"))

    assert world.receive(client, 400_002) == b"<" + b"5678901234" * 40_000 + b">"


def test_file_that_ends_too_early_closes_the_connection(
    world: NetworkWorld, tmp_path: Path
) -> None:
    """The promised size cannot be kept any more; the client must not take what follows for it."""
    file = LocalDisk().open(str(tmp_path / "segment"), create=True)
    file.pwrite(b"0123456789", 0)
    world.respond_with([b"head", FileRegion(file, 5, 100), b"tail"])
    client = world.connect()
    world.send(client, frame(b"fetch"))

    received = bytearray()
    world.until(lambda: received.extend(client.take()) or client.closed_by_peer)
    assert bytes(received) == b"head56789"
    file.close()


def test_file_that_was_closed_closes_the_connection(world: NetworkWorld, tmp_path: Path) -> None:
    """Its descriptor may be another file's by now: nothing of it may be sent."""
    file = LocalDisk().open(str(tmp_path / "segment"), create=True)
    file.pwrite(b"0123456789", 0)
    file.close()
    world.respond_with([FileRegion(file, 0, 10)])
    client = world.connect()
    world.send(client, frame(b"fetch"))

    assert world.is_closed(client)


def test_large_answer_leaves_turns_to_others(world: NetworkWorld, tmp_path: Path) -> None:
    """While one client gets 30 MB, another one is answered."""
    file = LocalDisk().open(str(tmp_path / "segment"), create=True)
    file.truncate(30_000_000)
    world.respond_with([FileRegion(file, 0, 30_000_000)])
    large, small = world.connect(), world.connect()
    large.send(frame(b"fetch"))
    world.until(lambda: world.requests)
    world.answer = world.echo
    small.send(frame(b"small"))
    received = 0
    while not (answer := small.take()):
        received += len(large.take())
        world.turn(1)

    assert answer == frame(b"small")
    assert received < 30_000_000
    assert len(world.receive(large, 30_000_000 - received)) == 30_000_000 - received
    file.close()
