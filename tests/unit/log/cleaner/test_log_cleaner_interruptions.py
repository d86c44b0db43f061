"""Whatever happens to a log in the middle of a round, the round gives way."""

from __future__ import annotations

import pytest
from cleaner_world import CleanerWorld
from log_world import values

from ottla.log.log_retention import truncate_to
from ottla.structs import TopicPartition

SLOW = {"log.cleaner.io.max.bytes.per.second": "100"}
LONG_MS = 10_000_000


@pytest.fixture
def world() -> CleanerWorld:
    """A round that has read its keys and waits before its first swap."""
    world = CleanerWorld(**SLOW)
    for number in range(20):
        world.put((b"k%d" % (number % 2), b"%d" % number))
    world.roll()
    world.clean()
    assert world.cleaner._under_way
    return world


def test_log_is_written_and_read_meanwhile(world):
    """The loop is free; what is appended during a round is there after it."""
    world.put((b"k0", b"new"))
    assert len(world.records()) == 21
    world.runtime.advance(LONG_MS)

    assert values(world.records()) == [b"18", b"19", b"new"]


def test_reader_keeps_what_it_has_begun_to_read(world):
    """A region of a segment that is swapped out stays readable until file.delete.delay.ms."""
    world.configure(file_delete_delay_ms=LONG_MS * 2)
    data = world.log().read(0, 100, max_offset=20, min_one_message=True)
    before = data.records.read()
    world.runtime.advance(LONG_MS)

    assert world.log().segments.first.size != len(before)
    assert data.records.read() == before


def test_truncation_ends_the_round(world):
    """No segment that was cut comes back."""
    truncate_to(world.log(), 7)
    world.runtime.advance(LONG_MS)

    assert values(world.records()) == [b"%d" % number for number in range(7)]
    assert not world.leftovers()
    assert not world.cleaner.uncleanable
    world.roll_and_clean()
    world.runtime.advance(LONG_MS)
    assert values(world.records()) == [b"5", b"6"]


def test_deletion_ends_the_round(world):
    """And a new topic of that name is compacted as any other."""
    world.manager.delete_log(TopicPartition("topic", 0))
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.runtime.advance(LONG_MS)
    assert not world.cleaner.uncleanable

    world.roll_and_clean()
    world.runtime.advance(LONG_MS)
    assert values(world.records()) == [b"2"]


def test_retention_ends_the_round(world):
    """Segments that are deleted meanwhile do not come back."""
    log = world.log()
    log.maybe_increment_log_start_offset(10)
    world.manager.delete_old_segments()
    start = log.segments.first.base_offset
    world.runtime.advance(LONG_MS)

    assert start > 0
    assert log.segments.first.base_offset == start
    assert not world.leftovers()


def test_clean_stop_does_not_wait_for_the_round(world):
    """It is given up, and begun anew after the next start."""
    now_ms = world.runtime.clock.now_ms()
    world.stop()
    assert world.runtime.clock.now_ms() - now_ms < 1000

    world.start()
    world.log().update_high_watermark(20)
    assert not world.leftovers()
    world.clean()
    world.runtime.advance(LONG_MS)
    assert values(world.records()) == [b"18", b"19"]
