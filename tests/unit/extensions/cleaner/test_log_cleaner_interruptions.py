"""Whatever happens to a log in the middle of a round, the round gives way."""

from __future__ import annotations

import pytest
from cleaner_world import CleanerWorld
from log_world import values

from ottla.log.log_truncation import truncate_to
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

SLOW = {"log.cleaner.io.max.bytes.per.second": "100"}
LONG_MS = 10_000_000


@pytest.fixture
def compacted() -> CleanerWorld:
    """A round that has read its keys and waits before its first swap."""
    compacted = CleanerWorld(**SLOW)
    for number in range(20):
        compacted.put((b"k%d" % (number % 2), b"%d" % number))
    compacted.roll()
    compacted.clean()
    assert compacted.cleaner._under_way
    return compacted


def test_log_is_written_and_read_meanwhile(compacted):
    """The loop is free; what is appended during a round is there after it."""
    compacted.put((b"k0", b"new"))
    assert len(compacted.records()) == 21
    compacted.runtime.advance(LONG_MS)

    assert values(compacted.records()) == [b"18", b"19", b"new"]


def test_reader_keeps_what_it_has_begun_to_read(compacted):
    """A region of a segment that is swapped out stays readable until file.delete.delay.ms."""
    compacted.configure(file_delete_delay_ms=LONG_MS * 2)
    data = compacted.log().read(0, 100, max_offset=20, min_one_message=True)
    before = data.records.read()
    compacted.runtime.advance(LONG_MS)

    assert compacted.log().segments.first.size != len(before)
    assert data.records.read() == before


def test_truncation_ends_the_round(compacted):
    """No segment that was cut comes back."""
    truncate_to(compacted.log(), 7)
    compacted.runtime.advance(LONG_MS)

    assert values(compacted.records()) == [b"%d" % number for number in range(7)]
    assert not compacted.leftovers()
    assert not compacted.cleaner.uncleanable
    compacted.roll_and_clean()
    compacted.runtime.advance(LONG_MS)
    assert values(compacted.records()) == [b"5", b"6"]


def test_deletion_ends_the_round(compacted):
    """A deletion ends the round; a new topic of that name is compacted as any other."""
    compacted.manager.delete_log(TopicPartition("topic", 0))
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.runtime.advance(LONG_MS)
    assert not compacted.cleaner.uncleanable

    compacted.roll_and_clean()
    compacted.runtime.advance(LONG_MS)
    assert values(compacted.records()) == [b"2"]


def test_retention_ends_the_round(compacted):
    """Segments that are deleted meanwhile do not come back."""
    log = compacted.log()
    log.maybe_increment_log_start_offset(10)
    at_once(compacted.manager.delete_old_segments())
    start = log.segments.first.base_offset
    compacted.runtime.advance(LONG_MS)

    assert start > 0
    assert log.segments.first.base_offset == start
    assert not compacted.leftovers()


def test_clean_stop_does_not_wait_for_the_round(compacted):
    """It is given up, and begun anew after the next start."""
    now_ms = compacted.runtime.clock.now_ms()
    compacted.stop()
    assert compacted.runtime.clock.now_ms() - now_ms < 1000

    compacted.start()
    compacted.log().update_high_watermark(20)
    assert not compacted.leftovers()
    compacted.clean()
    compacted.runtime.advance(LONG_MS)
    assert values(compacted.records()) == [b"18", b"19"]
