"""Which segments are deleted: by age, by size, before the log's start, and never above the HW."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, LogWorld, numbers, read_all, values

from ottla.log.log_retention import breached, delete_old_segments
from ottla.runtime.scheduler import at_once

HOUR_MS = 3_600_000


def retain(world: LogWorld) -> int:
    return delete_old_segments(world.log(), world.runtime.clock.now_ms())


def test_segments_whose_newest_record_is_too_old_are_deleted(world: LogWorld):
    """From the oldest on; the log starts with what is left."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(30, timestamp_ms=NOW_MS - HOUR_MS - 1)
    world.append_many(30, timestamp_ms=NOW_MS)
    log = world.log()
    bases = log.segments.base_offsets

    assert retain(world) == 2
    assert log.log_start_offset == log.segments.first.base_offset == bases[2]
    assert values(read_all(log)) == numbers(bases[2], 60)


def test_record_that_is_just_old_enough_stays(world: LogWorld):
    """retention.ms itself is not too old."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(60, timestamp_ms=NOW_MS - HOUR_MS)

    assert retain(world) == 0


def test_records_may_be_kept_for_no_time_at_all(world: LogWorld):
    """retention.ms=0: what is older than now goes."""
    world.configure(retention_ms=0)
    world.append_many(60, timestamp_ms=NOW_MS)
    assert retain(world) == 0
    world.runtime.advance(1)

    assert retain(world) > 3
    assert world.log().size_in_bytes == 0


def test_active_segment_expires_as_well(world: LogWorld):
    """A partition that nobody writes to any more ends up empty."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(3)
    world.runtime.advance(HOUR_MS + 1)

    assert retain(world) == 1
    log = world.log()
    assert (log.log_start_offset, log.log_end_offset, log.size_in_bytes) == (3, 3, 0)
    assert world.append(b"x").first_offset == 3


def test_oldest_segments_go_while_the_rest_is_large_enough(world: LogWorld):
    """The log stays at least as large as retention.bytes."""
    world.append_many(100)
    log = world.log()
    before = log.size_in_bytes
    world.configure(retention_bytes=2500)
    first = log.segments.first.size
    count = retain(world)

    assert count > 2
    assert 2500 <= log.size_in_bytes < 2500 + first
    assert log.size_in_bytes < before
    assert values(read_all(log)) == numbers(log.log_start_offset, 100)


@pytest.mark.parametrize(("less", "count"), [(0, 2), (1, 1)])
def test_oldest_segments_go_down_to_the_size_itself(world: LogWorld, less, count):
    """One byte more is wanted, and a segment more stays."""
    world.append_many(100)
    log = world.log()
    first, second = log.segments.items[:2]
    world.configure(retention_bytes=log.size_in_bytes - first.size - second.size + less)

    assert retain(world) == count


def test_size_and_age_are_no_reason_on_a_compacted_topic():
    """Only what lies before the log's start is deleted there."""
    world = LogWorld(**{"log.cleaner.enable": "false"})
    world.configure(cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    world.append_many(60)
    world.runtime.advance(HOUR_MS)
    assert retain(world) == 0

    log = world.log()
    log.maybe_increment_log_start_offset(35)
    assert retain(world) == 2
    assert log.log_start_offset == 35
    assert values(read_all(log)) == numbers(35, 60)


def test_nothing_but_deleted_records_goes_without_a_policy():
    """An empty cleanup.policy: neither age nor size nor a later record of a key is a reason."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    world = LogWorld()
    world.configure(
        cleanup_policy="", retention_ms=1, retention_bytes=1, min_cleanable_dirty_ratio="0.0"
    )
    world.append_many(60)
    world.log().roller.roll()
    world.runtime.advance(HOUR_MS)
    assert retain(world) == 0
    world.cleaner.clean_filthiest()
    world.runtime.scheduler.run_ready()
    assert values(read_all(world.log())) == numbers(0, 60)

    log = world.log()
    log.maybe_increment_log_start_offset(35)
    assert retain(world) == 2
    assert values(read_all(log)) == numbers(35, 60)


@pytest.mark.parametrize("settings", [{"retention_ms": 1}, {"retention_bytes": 0}])
def test_records_above_the_high_watermark_are_kept(world: LogWorld, settings):
    """They are not committed yet."""
    world.configure(**settings)
    world.append_many(60)
    log = world.log()
    log.high_watermark = log.segments.base_offsets[2] - 1

    assert delete_old_segments(log, NOW_MS + HOUR_MS) == 1
    assert log.log_start_offset == log.segments.base_offsets[0] <= log.high_watermark


def test_retention_without_limits_deletes_nothing(world: LogWorld):
    """-1 is for ever."""
    world.configure(retention_ms=-1, retention_bytes=-1)
    world.append_many(60, timestamp_ms=5)

    assert delete_old_segments(world.log(), NOW_MS + 10**6 * HOUR_MS) == 0


def test_clock_that_jumps_back_deletes_nothing(world: LogWorld):
    """Records of the future are not old."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(60, timestamp_ms=NOW_MS + 5 * HOUR_MS)

    assert retain(world) == 0


def test_deleted_files_go_after_the_delay(world: LogWorld):
    """First they are renamed, so that a crash does not bring them back."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(30)
    assert retain(world) == 2
    deleted = [name for name in world.names() if name.endswith(".deleted")]
    assert deleted == [
        f"{base:020d}{suffix}.deleted"
        for base in (0, 14)
        for suffix in (".index", ".log", ".timeindex")
    ]

    world.runtime.advance(1000)
    assert not [name for name in world.names() if name.startswith((f"{0:020d}", f"{14:020d}"))]


def test_epochs_begin_where_the_log_begins(world: LogWorld):
    """Those of deleted segments are forgotten."""
    for number in range(60):
        world.append(b"%d" % number, epoch=number // 10)
    log = world.log()
    log.maybe_increment_log_start_offset(35)
    retain(world)

    assert log.leader_epoch_cache.entries == [(3, 35), (4, 40), (5, 50)]


def test_failing_disk_ends_retention_and_the_directory(world: LogWorld):
    """The manager goes on with the other logs."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(30)
    world.disk.fail("rename")
    at_once(world.manager.delete_old_segments())

    assert log.log_dir.is_offline
    assert retain(world) == 0


WITHOUT_TIMESTAMP = -1


@pytest.mark.parametrize("restarts", [0, 3])
def test_records_without_timestamps_are_as_old_as_their_file(world: LogWorld, restarts):
    """A broker that is restarted more often than retention.ms keeps nothing for ever."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(30, timestamp_ms=WITHOUT_TIMESTAMP)
    for _ in range(restarts):
        world.runtime.advance(HOUR_MS // 4)
        world.restart(clean=True)
        world.configure(retention_ms=HOUR_MS)
    world.runtime.advance(HOUR_MS - restarts * (HOUR_MS // 4))
    assert retain(world) == 0

    world.runtime.advance(1)
    assert retain(world) == 3
    assert world.log().size_in_bytes == 0


def test_active_segment_without_timestamps_stays_while_it_is_written_to(world: LogWorld):
    """What was appended a moment ago is not as old as the first record beside it."""
    world.configure(retention_ms=HOUR_MS)
    world.append(b"old", timestamp_ms=WITHOUT_TIMESTAMP)
    world.runtime.advance(HOUR_MS)
    world.append(b"new", timestamp_ms=WITHOUT_TIMESTAMP)
    world.runtime.advance(HOUR_MS // 2)

    assert retain(world) == 0


@pytest.mark.parametrize(("ahead_ms", "is_reported"), [(HOUR_MS, False), (HOUR_MS + 1, True)])
def test_clocks_that_differ_a_little_are_not_reported(
    world: LogWorld, caplog, ahead_ms, is_reported
):
    """By an hour they may."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(3, timestamp_ms=NOW_MS + ahead_ms)
    retain(world)

    assert ("of the future" in caplog.text) is is_reported


def test_record_of_the_future_is_reported_once(world: LogWorld, caplog):
    """It stops retention by time for all that is behind it: partition, segment and timestamp."""
    world.configure(retention_ms=HOUR_MS)
    in_microseconds = NOW_MS * 1000
    world.append_many(3, timestamp_ms=in_microseconds)
    world.append_many(40)
    world.runtime.advance(2 * HOUR_MS)
    for _ in range(3):
        assert retain(world) == 0

    warnings = [each.getMessage() for each in caplog.records if "future" in each.getMessage()]
    assert len(warnings) == 1
    assert "topic-0" in warnings[0]
    assert "segment 0" in warnings[0]
    assert str(in_microseconds) in warnings[0]


def test_segments_that_compaction_has_emptied_go_with_the_one_behind(world: LogWorld):
    """Each of them once, whatever time their emptied batches had."""
    world.configure(retention_ms=HOUR_MS)
    world.append_many(90, timestamp_ms=NOW_MS - 2 * HOUR_MS)
    log = world.log()
    segments = log.segments.items
    for segment in (segments[0], segments[2], segments[5]):
        segment.size, segment.max_timestamp_ms = 0, NOW_MS
    segments[4].max_timestamp_ms = NOW_MS

    assert breached(log, NOW_MS) == (list(segments[:4]), "retention.ms")


@pytest.mark.parametrize(("before", "count"), [(0, 2), (1, 1)])
def test_segment_that_ends_where_the_log_begins_goes(world: LogWorld, before, count):
    """All of its records have been deleted; one that is left keeps it."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(log.segments.base_offsets[2] - before)

    assert retain(world) == count
