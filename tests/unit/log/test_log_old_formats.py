"""Logs that an older Kafka has written: messages of magic 0 and 1, alone and before batches."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, LogWorld

from ottla.log.log_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.memory_records import batches
from ottla.record.record import Record
from ottla.runtime.scheduler import at_once

NONE, GZIP = CompressionType.NONE, CompressionType.GZIP


@pytest.fixture
def world() -> LogWorld:
    return LogWorld()


def message_set(first: int, count: int, magic: int, codec: CompressionType = NONE) -> bytes:
    """Messages with these offsets, a millisecond apart."""
    records = [
        Record(offset, NOW_MS + offset, b"k", b"value %d" % offset, ())
        for offset in range(first, first + count)
    ]
    return build_message_set(records, magic, codec)


def old_log(world: LogWorld, *parts: bytes, clean: bool = True):
    """The log whose only segment holds these bytes; an old Kafka has left no indexes to us."""
    path = world.active_path()
    world.stop() if clean else world.kill()
    world.overwrite(path, b"".join(parts))
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if world.disk.exists(path.replace(".log", suffix)):
            world.disk.unlink(path.replace(".log", suffix))
    world.start()
    return world.log()


def read_all(log, start_offset: int = 0) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record from an offset on, read as a consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 300, max_offset=log.log_end_offset, min_one_message=True)
        for batch in batches(data.records.read()):
            found += [(r.offset, r.value) for r in batch.records() if r.offset >= start_offset]
            offset = batch.next_offset
    return found


def expected(first: int, count: int) -> list[tuple[int, bytes]]:
    return [(offset, b"value %d" % offset) for offset in range(first, first + count)]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_log_is_read_from_any_offset(world, magic, codec, clean):
    """After a clean stop and after a crash; also from the middle of a compressed set."""
    parts = [message_set(first, 5, magic, codec) for first in range(0, 40, 5)]
    log = old_log(world, *parts, clean=clean)

    assert log.log_end_offset == 40
    for offset in range(40):
        assert read_all(log, offset) == expected(offset, 40 - offset)


def test_appends_go_on_behind_old_messages(world):
    """A mixed log: magic 0, then 1, then batches with a leader epoch."""
    log = old_log(world, message_set(0, 5, 0), message_set(5, 5, 1, GZIP), message_set(10, 5, 1))
    for number in range(15, 25):
        world.append(b"value %d" % number, epoch=3)

    for clean in (True, False):
        log = world.restart(clean=clean)
        assert read_all(log) == expected(0, 25)
        assert log.leader_epoch_cache.epoch_for(14) == -1
        assert log.leader_epoch_cache.epoch_for(15) == 3


def test_damaged_end_of_an_old_log_is_cut_off(world):
    """What was written when the machine went down ends at the last whole message."""
    whole = message_set(0, 8, 1)
    log = old_log(world, whole, message_set(8, 1, 1)[:-3], clean=False)

    assert log.log_end_offset == 8
    assert log.size_in_bytes == len(whole)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_times_are_found_among_messages_of_magic_1(world, codec):
    """To the record, also inside of a compressed set."""
    log = old_log(world, *(message_set(first, 5, 1, codec) for first in range(0, 40, 5)))

    for offset in range(40):
        assert at_once(log.fetch_offset_by_timestamp(NOW_MS + offset)) == (
            NOW_MS + offset,
            offset,
            -1,
        )
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS + 40)) is None
    assert at_once(log.fetch_offset_by_timestamp(-3)) == (NOW_MS + 39, 39, -1)


def test_messages_without_timestamps_are_passed_over_by_times(world):
    """The first one that has a timestamp is found behind them."""
    log = old_log(world, message_set(0, 10, 0), message_set(10, 10, 1))

    assert at_once(log.fetch_offset_by_timestamp(0)) == (NOW_MS + 10, 10, -1)


def test_segment_without_timestamps_is_not_indexed_at_every_start(world, caplog):
    """The empty time index of magic 0 is right, and no reason to read the segment again."""
    old_log(world, *(message_set(first, 5, 0) for first in range(0, 200, 5)))
    for number in range(200, 240):  # the old segment is closed
        world.append(b"value %d" % number)
    world.stop()
    caplog.clear()
    world.start()

    log = world.log()
    assert len(log.segments) > 1
    assert read_all(log) == expected(0, 240)
    assert "rebuilt" not in caplog.text


def test_index_of_first_offsets_is_taken_as_it_is(world):
    """Kafka before 1.1 wrote the first offset of what it appended into the index."""
    parts = [message_set(first, 5, 1, GZIP) for first in range(0, 60, 5)]
    log = old_log(world, *parts)
    segment = log.segments.first
    entries = list(segment.offset_index.entries())
    assert entries
    path = segment.offset_index.path
    world.stop()
    data = b"".join(
        (entry.offset - 4).to_bytes(4, "big") + entry.position.to_bytes(4, "big")
        for entry in entries
    )
    world.overwrite(path, data)
    world.start()

    assert read_all(world.log(), 33) == expected(33, 27)
    assert world.disk.read_bytes(path) == data
