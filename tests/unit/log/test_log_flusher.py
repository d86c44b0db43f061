"""Flushing: when it happens, what it covers, and what a failed fsync means."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest
from log_world import LogWorld, numbers, read_all, values

from ottla.errors import KafkaError
from ottla.log.log_retention import delete_old_segments
from ottla.log.log_truncation import truncate_to


def test_appends_alone_are_not_flushed(world: LogWorld):
    """The page cache survives the process; replication survives the machine."""
    world.append_many(5)
    world.runtime.advance(1_000_000)

    assert world.log().recovery_point == 0


def test_flush_runs_in_the_background(world: LogWorld):
    """The recovery point moves when the fsync has succeeded."""
    world.append_many(5)
    world.log().flush()
    assert world.log().recovery_point == 0

    world.runtime.scheduler.run_ready()
    assert world.log().recovery_point == 5


def test_last_flush_waits_for_the_one_before(world: LogWorld, monkeypatch):
    """Done before it, the last one would have no epochs to write; after it, older ones come."""
    background, begun = world.runtime.background, []
    submit = background.submit
    world.append(b"0", epoch=1)
    with monkeypatch.context() as patch:
        patch.setattr(background, "submit", lambda *job: begun.append(job))
        world.log().flush()
    assert len(begun) == 1
    world.append(b"1", epoch=2)
    stopping = world.runtime.scheduler.spawn(world.manager.shutdown(), "stop")
    world.runtime.scheduler.run_ready()
    assert not stopping.done()
    assert not world.disk.exists(world.path("leader-epoch-checkpoint"))
    submit(*begun[0])
    world.runtime.scheduler.run_ready()
    assert stopping.done()
    world.start()

    assert world.log().leader_epoch_cache.entries == [(1, 0), (2, 1)]


def test_flush_messages_counts_records(world: LogWorld):
    """Every so many of them."""
    world.configure(flush_messages=3)
    for count, recovery_point in ((2, 0), (1, 3), (2, 3), (1, 6)):
        world.append_many(count)
        world.runtime.scheduler.run_ready()
        assert world.log().recovery_point == recovery_point


def test_flush_ms_counts_from_the_first_unflushed_record(world: LogWorld):
    """An idle log is not flushed again."""
    world.configure(flush_ms=500)
    world.append_many(1)
    world.runtime.advance(400)
    world.append_many(1)
    world.runtime.advance(99)
    assert world.log().recovery_point == 0

    world.runtime.advance(1)
    assert world.log().recovery_point == 2
    world.append_many(1)
    world.runtime.advance(500)
    assert world.log().recovery_point == 3
    world.disk.fail("fsync", times=99)
    world.runtime.advance(10_000)
    assert not world.log().log_dir.is_offline


def test_rolled_segment_is_flushed(world: LogWorld):
    """Up to where the new one begins, with its indexes and its snapshot."""
    world.append_many(20)
    world.runtime.scheduler.run_ready()
    assert world.log().recovery_point == world.log().segments.active.base_offset

    world.disk.crash()
    world.start()
    assert world.log().log_end_offset == world.log().segments.base_offsets[-1]


def test_everything_before_the_recovery_point_survives_a_power_loss(world: LogWorld):
    """Names, bytes and epochs."""
    world.append_many(37, epoch=3)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    world.manager.checkpoints.write_recovery_points()
    world.runtime.scheduler.run_ready()
    world.append_many(5, epoch=4)
    world.disk.crash()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 37)
    assert world.log().leader_epoch_cache.entries == [(3, 0)]


@pytest.mark.parametrize("path", ["*.log", "*.index", "*.snapshot"])
def test_failed_fsync_takes_the_directory_offline(world: LogWorld, path):
    """It is never tried again and believed: the kernel may have dropped the pages."""
    world.disk.fail("fsync", path)
    world.append_many(12)
    world.log().roller.roll()
    world.runtime.scheduler.run_ready()
    log = world.log()

    assert log.log_dir.is_offline
    assert log.recovery_point == 0
    log.flush()
    world.runtime.scheduler.run_ready()
    assert log.recovery_point == 0
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.append(b"x")


def test_fsync_that_finds_the_disk_full_is_a_failed_fsync(world: LogWorld):
    """Data that were promised room had none."""
    world.append_many(3)
    world.disk.fail("fsync", error=errno.ENOSPC)
    world.log().flush()
    world.runtime.scheduler.run_ready()

    assert world.log().log_dir.is_offline


def test_full_disk_beside_the_data_puts_the_flush_off(world: LogWorld):
    """The epochs could not be written; the next flush tries again."""
    world.append_many(3)
    world.disk.fail("replace", error=errno.ENOSPC)
    log = world.log()
    log.flush()
    world.runtime.scheduler.run_ready()
    assert (log.recovery_point, log.log_dir.is_offline) == (0, False)

    log.flush()
    world.runtime.scheduler.run_ready()
    assert log.recovery_point == 3
    assert world.disk.read_bytes(world.path("leader-epoch-checkpoint")) == b"0\n1\n0 0\n"


def test_flushes_that_come_meanwhile_are_one(world: LogWorld):
    """One job at a time, the next one takes all that was asked."""
    world.configure(flush_messages=1)
    counter = world.disk.fail("fsync", "*.log", times=1, skip=2)
    world.append_many(10)
    world.runtime.scheduler.run_ready()

    assert world.log().recovery_point == 10
    assert counter.skip == 0
    assert counter.times == 1


def test_truncation_during_a_flush_is_not_taken_for_flushed(world: LogWorld):
    """What is written in the place of the old records has not been synced."""
    world.append_many(8)
    log = world.log()
    log.flush()
    truncate_to(log, 4)
    world.append_many(4)
    world.runtime.scheduler.run_ready()
    assert log.recovery_point <= 4

    log.flush()
    world.runtime.scheduler.run_ready()
    assert log.recovery_point == 8


def test_segment_that_is_deleted_before_its_flush_needs_none(world: LogWorld):
    """Its files are closed or have other names: no error, no offline directory."""
    world.configure(file_delete_delay_ms=0)
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(60)
    delete_old_segments(log, 0)
    for segment in log.segments.items[:-1]:
        segment.close()
    world.runtime.advance(10)
    log.flush()
    world.runtime.advance(10)

    assert not log.log_dir.is_offline
    assert log.recovery_point == 60


def test_deleted_log_needs_no_flush(world: LogWorld):
    """The job finds its directory gone."""
    world.append_many(30)
    log = world.log()
    log.flush()
    world.manager.delete_log(log.topic_partition)
    world.runtime.advance(100_000)

    assert not log.log_dir.is_offline


@pytest.mark.parametrize("path", ["*.index", "*leader-epoch-checkpoint"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_refused_flush_is_tried_again_by_itself(world: LogWorld, path, error):
    """Whoever waits for it appends nothing, and would wait for ever."""
    world.configure(flush_messages=1)
    world.append_many(4)
    world.runtime.scheduler.run_ready()
    for operation in ("pwrite", "replace"):
        world.disk.fail(operation, path, error=error, times=5)
    log = world.log()
    log.leader_epoch_cache.assign(5, log.log_end_offset)
    world.append_many(4, epoch=5)
    world.runtime.scheduler.run_ready()
    assert log.safe_end_offset < log.log_end_offset
    world.runtime.advance(10_000)

    assert log.safe_end_offset == log.recovery_point == log.log_end_offset
    assert not log.log_dir.is_offline


def test_flush_that_failed_half_way_forgets_no_file(world: LogWorld):
    """A snapshot was to be synced with it: the next one does that."""
    world.append_many(12)
    log = world.log()
    world.disk.fail("exists", "*.txnindex", error=errno.EMFILE)
    log.roller.roll()
    world.runtime.scheduler.run_ready()
    assert log.recovery_point < 12
    world.runtime.advance(5000)
    world.disk.crash()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 12)
    assert world.log().producer_state_manager.latest_snapshot_offset is not None


def test_directory_that_cannot_be_synced_is_offline(world: LogWorld):
    """The names in it are lost with the next power failure, whatever a later attempt says."""
    world.append_many(3)
    world.disk.fail("fsync_dir", "*/topic-0", error=errno.ENOSPC, skip=1)
    world.log().roller.roll()
    world.runtime.scheduler.run_ready()

    assert world.log().log_dir.is_offline


def test_flush_touches_what_is_new_since_the_last_one(world: LogWorld):
    """Names, epochs and snapshots that are on disk are not brought there again."""
    world.append_many(30)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    world.append_many(1)
    calls: list[tuple[str, str]] = []
    world.disk.on_call = lambda name, path: calls.append((name, path))
    world.log().flush()
    world.runtime.scheduler.run_ready()

    assert world.log().recovery_point == 31
    synced = [call for call in calls if call[0] in ("fsync", "fsync_dir", "replace")]
    assert synced == [("fsync", world.active_path())]


def test_new_file_beside_the_log_is_on_disk_with_its_next_flush(world: LogWorld):
    """Its bytes and its name."""
    world.append_many(3)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    world.log().set_topic_id(UUID(int=9))
    world.append_many(1)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    world.kill()
    world.disk.crash()

    assert b"topic_id" in world.disk.contents(world.path("partition.metadata"))


def test_who_waits_for_a_flush_is_told_that_it_has_failed(world: LogWorld):
    """Nothing more is claimed to be on disk, and the directory says what is wrong."""
    world.append_many(3)
    log = world.log()
    told: list[bool] = []
    log.flusher.on_flushed = lambda: told.append(log.log_dir.is_offline)
    world.disk.fail("fsync")
    log.flush()
    world.runtime.scheduler.run_ready()

    assert told == [True]
    assert log.recovery_point == 0


def test_cut_takes_back_what_was_flushed_or_asked_for(world: LogWorld):
    """Other records may come in the place of those."""
    world.append_many(60)
    log = world.log()
    log.flush()
    world.runtime.scheduler.run_ready()
    assert (log.recovery_point, log.scan_point) == (60, log.segments.active.base_offset)
    log.flusher.truncate(20)
    assert (log.recovery_point, log.scan_point) == (20, 20)
    assert not log.flusher.awaits(20)
    log.flush()

    assert [log.flusher.awaits(offset) for offset in (19, 20, 59, 60)] == [False, True, True, False]


def test_records_that_no_setting_asks_to_flush_are_safe_at_once(world: LogWorld):
    """A flush for another reason is not waited for; one of flush.messages is, by its records."""
    world.append_many(3)
    log = world.log()
    log.flush()
    assert (log.flusher.awaits(2), log.safe_end_offset) == (True, 3)
    world.configure(flush_messages=3)
    assert log.safe_end_offset == 0
    world.runtime.scheduler.run_ready()
    world.append_many(2)
    assert (log.recovery_point, log.safe_end_offset) == (3, 5)
    world.append_many(1)

    assert log.safe_end_offset == 3
