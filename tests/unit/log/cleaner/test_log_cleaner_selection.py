"""Which log is compacted, and how much of it."""

from __future__ import annotations

from cleaner_world import CleanerWorld
from log_world import values

from ottla.log.cleaner.log_cleaner import examine, filthiest


def look(world: CleanerWorld, next_horizon_ms: int = 1 << 62):
    return examine(world.log(), world.runtime.clock.now_ms(), next_horizon_ms)


def put_and_roll(world: CleanerWorld, *keys: bytes) -> None:
    for key in keys:
        world.put((key, b"v"))
    world.roll()


def test_dirty_ratio_is_the_share_of_new_bytes(world):
    """All of a new log, half of one that has grown to twice its clean size."""
    put_and_roll(world, b"a", b"b")
    assert look(world).dirty_ratio == 1.0

    world.clean()
    put_and_roll(world, b"c", b"d")
    assert look(world).dirty_ratio == 0.5


def test_log_waits_for_min_cleanable_dirty_ratio(world):
    """More than that share must be new (K15)."""
    world.configure(min_cleanable_dirty_ratio=0.5)
    put_and_roll(world, b"a", b"b")
    world.clean()
    put_and_roll(world, b"a", b"b")
    assert not look(world).should_be_cleaned

    put_and_roll(world, b"a")
    assert look(world).should_be_cleaned


def test_filthiest_log_is_first(world):
    """The one with the highest dirty ratio (K12)."""
    put_and_roll(world, b"a", b"b")
    world.clean()
    half = look(world)
    put_and_roll(world, b"c")
    third = look(world)

    assert filthiest([half, third]) is third
    assert filthiest([half]) is None


def test_young_segments_wait_for_min_compaction_lag(world):
    """And everything behind them, whatever its age (K08)."""
    world.configure(min_compaction_lag_ms=10_000)
    now_ms = world.runtime.clock.now_ms()
    for age_ms in (20_000, 5_000, 20_000):
        world.put((b"k", b"%d" % age_ms, now_ms - age_ms))
        world.roll()
    world.clean()
    assert len(world.records()) == 3

    world.runtime.advance(5_000)
    world.clean()
    assert [record.offset for record in world.records()] == [2]


def test_old_records_are_compacted_at_any_ratio(world):
    """From max.compaction.lag.ms on, the log is due (K09)."""
    world.configure(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=60_000)
    put_and_roll(world, b"k")
    put_and_roll(world, b"k")
    world.runtime.advance(60_000)
    assert not look(world).should_be_cleaned

    world.runtime.advance(7_000)
    assert look(world).compaction_delay_ms == 7_000
    world.clean()
    assert len(world.records()) == 1


def test_old_active_segment_is_closed_for_compaction(world):
    """With the first append after max.compaction.lag.ms; it is not compacted itself (K10)."""
    world.configure(max_compaction_lag_ms=60_000)
    world.put((b"k", b"1"))
    world.runtime.advance(61_000)
    world.clean()
    assert len(world.log().segments) == 1

    world.put((b"k", b"2"))
    assert len(world.log().segments) == 2
    assert values(world.records()) == [b"1", b"2"]


def test_passed_horizon_makes_a_clean_log_due(world):
    """Something in it may be removed."""
    put_and_roll(world, b"a")
    world.clean()
    now_ms = world.runtime.clock.now_ms()

    assert not look(world, now_ms + 1).should_be_cleaned
    assert look(world, now_ms).should_be_cleaned


def test_checkpoint_behind_the_end_is_not_believed(world):
    """The log was cut since: all of it is dirty."""
    put_and_roll(world, b"a")
    world.log().cleaned_offset = 100

    assert look(world).first_dirty_offset == 0


def test_unflushed_segments_are_left(world):
    """A record that supersedes others must not be lost after them."""
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.log().roller.roll()

    assert look(world).segments == ()
