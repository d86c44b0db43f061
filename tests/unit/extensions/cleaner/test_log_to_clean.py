"""Which log is compacted, and how much of it."""

from __future__ import annotations

import pytest
from cleaner_world import CleanerWorld
from log_world import values

from ottla.extensions.cleaner.log_to_clean import examine, filthiest


def look(compacted: CleanerWorld, next_horizon_ms: int = 1 << 62):
    return examine(compacted.log(), compacted.runtime.clock.now_ms(), next_horizon_ms)


def put_and_roll(compacted: CleanerWorld, *keys: bytes) -> None:
    for key in keys:
        compacted.put((key, b"v"))
    compacted.roll()


def test_dirty_ratio_is_the_share_of_new_bytes(compacted):
    """All of a new log, half of one that has grown to twice its clean size."""
    put_and_roll(compacted, b"a", b"b")
    assert look(compacted).dirty_ratio == 1.0

    compacted.clean()
    put_and_roll(compacted, b"c", b"d")
    assert look(compacted).dirty_ratio == 0.5


def test_log_waits_for_min_cleanable_dirty_ratio(compacted):
    """More than that share must be new."""
    compacted.configure(min_cleanable_dirty_ratio=0.5)
    put_and_roll(compacted, b"a", b"b")
    compacted.clean()
    put_and_roll(compacted, b"a", b"b")
    assert not look(compacted).should_be_cleaned

    put_and_roll(compacted, b"a")
    assert look(compacted).should_be_cleaned


def test_filthiest_log_is_first(compacted):
    """The one with the highest dirty ratio."""
    put_and_roll(compacted, b"a", b"b")
    compacted.clean()
    half = look(compacted)
    put_and_roll(compacted, b"c")
    third = look(compacted)

    assert filthiest([half, third]) is third
    assert filthiest([half]) is None


def test_young_segments_wait_for_min_compaction_lag(compacted):
    """Young segments wait, and so does everything behind them, whatever its age."""
    compacted.configure(min_compaction_lag_ms=10_000)
    now_ms = compacted.runtime.clock.now_ms()
    for age_ms in (20_000, 5_000, 20_000):
        compacted.put((b"k", b"%d" % age_ms, now_ms - age_ms))
        compacted.roll()
    compacted.clean()
    assert len(compacted.records()) == 3

    compacted.runtime.advance(5_000)
    compacted.clean()
    assert [record.offset for record in compacted.records()] == [2]


def test_old_records_are_compacted_at_any_ratio(compacted):
    """From max.compaction.lag.ms on, the log is due."""
    compacted.configure(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=60_000)
    put_and_roll(compacted, b"k")
    put_and_roll(compacted, b"k")
    compacted.runtime.advance(60_000)
    assert not look(compacted).should_be_cleaned

    compacted.runtime.advance(7_000)
    assert look(compacted).compaction_delay_ms == 7_000
    compacted.clean()
    assert len(compacted.records()) == 1


def test_clean_segments_are_never_too_young(compacted):
    """Only dirty ones wait: those before them are copied as they are."""
    now_ms = compacted.runtime.clock.now_ms()
    compacted.put((b"a", b"1"), (b"b", b"1"))
    compacted.roll_and_clean()
    compacted.configure(min_compaction_lag_ms=1000)
    compacted.put((b"a", b"2", now_ms - 5000))
    compacted.roll_and_clean()

    assert values(compacted.records()) == [b"1", b"2"]


def test_records_of_the_future_wait_for_a_lag_only(compacted):
    """Without min.compaction.lag.ms the time of a record does not matter."""
    for number in range(2):
        compacted.put((b"k", b"%d" % number, compacted.runtime.clock.now_ms() + 99_999))
    compacted.roll_and_clean()

    assert values(compacted.records()) == [b"1"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("times", "delay_ms"), [((5_000, 6_000), 3_000), ((0, -1), 8_000), ((-1, -1), 0), ((9_000,), 0)]
)
def test_lag_is_that_of_the_oldest_dirty_record(times, delay_ms, restarts):
    """Of a closed segment; a record without a time has no age, and one of 1970 has."""
    compacted = CleanerWorld()
    compacted.configure(max_compaction_lag_ms=2_000)
    for time_ms in times:
        compacted.put((b"k", b"v", time_ms))
        compacted.roll()
    compacted.put((b"k", b"v", 1))  # in the active segment
    if restarts:
        compacted.restart(clean=True)
    for _ in range(2):
        assert examine(compacted.log(), 10_000, 1 << 62).compaction_delay_ms == delay_ms


def test_lag_alone_is_no_work(compacted):
    """What is not committed cannot be cleaned, however old it is."""
    compacted.configure(max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1)
    put_and_roll(compacted, b"k")
    log = compacted.log()
    log.high_watermark = 0
    compacted.runtime.advance(70_000)
    assert look(compacted).compaction_delay_ms > 0
    assert not look(compacted).should_be_cleaned
    compacted.clean()

    assert compacted.cleaner.uncleanable == {}


def test_horizon_counts_where_there_is_something_to_remove(compacted):
    """However much of it is dirty; segments without a byte hold no tombstone."""
    compacted.configure(min_cleanable_dirty_ratio=1)
    put_and_roll(compacted, b"a")
    compacted.log().cleaned_offset = 1
    put_and_roll(compacted, b"b", b"c", b"d")
    assert look(compacted).dirty_ratio > 0.5
    assert look(compacted, 0).should_be_cleaned
    for segment in compacted.log().segments.items[:-1]:
        segment.size = 0

    assert not look(compacted, 0).should_be_cleaned


def test_old_active_segment_is_closed_for_compaction(compacted):
    """With the first append after max.compaction.lag.ms; it is not compacted itself."""
    compacted.configure(max_compaction_lag_ms=60_000)
    compacted.put((b"k", b"1"))
    compacted.runtime.advance(61_000)
    compacted.clean()
    assert len(compacted.log().segments) == 1

    compacted.put((b"k", b"2"))
    assert len(compacted.log().segments) == 2
    assert values(compacted.records()) == [b"1", b"2"]


def test_passed_horizon_makes_a_clean_log_due(compacted):
    """Something in it may be removed."""
    put_and_roll(compacted, b"a")
    compacted.clean()
    now_ms = compacted.runtime.clock.now_ms()

    assert not look(compacted, now_ms + 1).should_be_cleaned
    assert look(compacted, now_ms).should_be_cleaned


def test_checkpoint_behind_the_end_is_not_believed(compacted):
    """The log was cut since: all of it is dirty."""
    put_and_roll(compacted, b"a")
    compacted.log().cleaned_offset = 100

    assert look(compacted).first_dirty_offset == 0


def test_unflushed_segments_are_left(compacted):
    """A record that supersedes others must not be lost after them."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.log().roller.roll()

    assert look(compacted).segments == ()
