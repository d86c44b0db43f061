"""The log manager: starting, placing, deleting and checkpointing logs over several directories."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest
from log_world import DIR, NOW_MS, PARTITION, LogWorld, new_batch, numbers, read_all, values

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log import log_loader
from ottla.log.follower_append import append_as_follower
from ottla.log.log_dir import MetaProperties
from ottla.log.log_files import DELETE_DIR_SUFFIX
from ottla.log.log_manager import LogManager
from ottla.log.log_retention import SEGMENTS_IN_A_SLICE
from ottla.log.offset_checkpoint import OffsetCheckpoint
from ottla.record.record_batch import assign_offset
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing import mock_runtime
from ottla.testing.memory_disk import MemoryDisk

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
TWO_DIRS = "/data/a,/data/b"


def error_of(call, *arguments) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.error


def checkpoint(world: LogWorld, name: str, directory: str = DIR) -> dict:
    return OffsetCheckpoint(world.disk, f"{directory}/{name}").read()


# -- starting and stopping


def test_clean_stop_leaves_everything_on_disk(world: LogWorld):
    """A power loss right after it changes nothing."""
    world.append_many(60, epoch=2)
    world.stop()
    world.disk.crash()
    assert world.disk.exists(f"{DIR}/.kafka_cleanshutdown")
    world.start()

    log = world.log()
    assert values(read_all(log)) == numbers(0, 60)
    assert log.recovery_point == log.high_watermark == 60
    assert not world.disk.exists(f"{DIR}/.kafka_cleanshutdown")


def test_directory_of_a_new_log_is_not_searched(world: LogWorld, monkeypatch):
    """There is nothing in it; topics are made with thousands of partitions."""
    listed = []
    list_dir = MemoryDisk.list_dir

    def noted(disk, path):
        listed.append(path)
        return list_dir(disk, path)

    monkeypatch.setattr(MemoryDisk, "list_dir", noted)
    world.manager.get_or_create_log(TopicPartition("new", 0), NO_UUID)

    assert listed == []


def test_truncation_given_up_ends_no_write_of_others(world: LogWorld):
    """The fetcher that wanted it is closed; the broker's stop still waits for its checkpoints."""
    world.append_many(60)
    world.log().flush()
    task = world.runtime.scheduler.spawn(world.manager.truncate(world.log(), 20), "cut")
    world.runtime.scheduler.call_soon(task.cancel)
    world.runtime.scheduler.run_ready()
    assert task.cancelled()
    world.stop()

    assert checkpoint(world, "recovery-point-offset-checkpoint") == {PARTITION: 60}


def test_clean_start_scans_no_log(world: LogWorld, caplog):
    """A clean start scans no log, and has nothing to report."""
    world.append_many(60)
    world.restart(clean=True)

    assert not caplog.records


def test_locked_directory_keeps_a_second_broker_out(world: LogWorld):
    """The first one goes on."""
    with pytest.raises(ConfigError, match=DIR):
        world.start()


def test_directories_of_different_brokers_are_refused():
    """The message says which is whose."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.manager.dirs[0].write_meta_properties(MetaProperties(1, "x"))
    world.manager.dirs[1].write_meta_properties(MetaProperties(2, "x"))
    world.kill()

    with pytest.raises(ConfigError, match=r"/data/a.*/data/b"):
        world.start()


def test_claimed_directories_name_their_owner():
    """New ones are given to it; those of another broker are refused."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.manager.claim(5, "cluster")
    world.stop()
    world.broker_settings["log.dirs"] += ",/data/c"
    manager = LogManager(world.runtime, world.config, lambda _: world.topic_config())
    assert manager.acquire() == (5, "cluster")
    manager.claim(5, "cluster")

    with pytest.raises(ConfigError, match="belongs to"):
        manager.claim(6, "cluster")


def test_broken_directory_is_left_out(caplog):
    """The others work."""
    runtime = mock_runtime()
    runtime.disk.fail("lock", "/data/a/*", error=errno.EACCES)
    world = LogWorld(runtime, **{"log.dirs": TWO_DIRS})

    assert [log_dir.path for log_dir in world.manager.live_dirs] == ["/data/b"]
    assert "/data/a is offline" in caplog.text
    assert world.log().dir == "/data/b/topic-0"
    world.append(b"x")
    assert world.restart(clean=True).log_end_offset == 1


def test_broker_without_a_working_directory_does_not_start():
    """It says so."""
    runtime = mock_runtime()
    runtime.disk.fail("make_dirs", times=99)

    with pytest.raises(ConfigError, match="none can be used"):
        LogWorld(runtime)


def test_partition_in_two_directories_is_refused():
    """Nobody can say which one is right."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.log()
    world.stop()
    world.disk.make_dirs("/data/b/topic-0")

    with pytest.raises(ConfigError, match=r"/data/b/topic-0.*/data/a/topic-0"):
        world.start()


def test_unknown_directories_are_named_and_left_alone(world: LogWorld, caplog):
    """Files, the registry's directory and lost+found are nobody's business."""
    for name in ("stray", "topic-0.0123456789abcdef-future", "registry"):
        world.disk.make_dirs(f"{DIR}/{name}")
    world.overwrite(f"{DIR}/notes-7", b"mine")
    world.restart(clean=True)

    assert world.disk.is_dir(f"{DIR}/stray")
    assert world.disk.read_bytes(f"{DIR}/notes-7") == b"mine"
    assert [f"{DIR}/stray" in caplog.text, "-future" in caplog.text] == [True, True]
    assert "registry" not in caplog.text


@pytest.mark.parametrize("name", ["theirs", "a-0-old", "topic-0.0123456789abcdef-delete"])
def test_name_that_cannot_be_looked_at_takes_no_directory_offline(world: LogWorld, caplog, name):
    """A link of others into a folder that is closed to the broker, or to itself, is no log."""
    world.append_many(5)
    world.stop()
    world.disk.make_dirs(f"{DIR}/{name}")
    world.disk.fail("is_dir", f"{DIR}/{name}", error=errno.EACCES)
    world.start()

    assert values(read_all(world.log())) == numbers(0, 5)
    assert f"{DIR}/{name} is left alone" in caplog.text


def test_log_that_cannot_be_looked_at_takes_its_directory_offline(world: LogWorld):
    """It is there, and nobody knows what is in it."""
    world.append_many(5)
    world.stop()
    world.disk.fail("is_dir", f"{DIR}/topic-0", error=errno.EACCES)

    with pytest.raises(ConfigError, match="none can be used"):
        world.start()


def test_failed_flush_at_the_stop_leaves_no_clean_mark(world: LogWorld):
    """The next start scans."""
    world.append_many(5)
    world.disk.fail("fsync", "*.log")
    world.stop()

    assert not world.disk.exists(f"{DIR}/.kafka_cleanshutdown")
    assert not world.disk.locked
    world.start()
    assert values(read_all(world.log())) == numbers(0, 5)


@pytest.mark.parametrize(("threads", "jobs"), [(1, [7]), (3, [3, 2, 2]), (99, [1] * 7)])
def test_many_logs_are_loaded_by_several_jobs(world: LogWorld, monkeypatch, threads, jobs):
    """num.recovery.threads.per.data.dir of them at once."""
    for partition in range(7):
        log = world.log(partition)
        log.append_as_leader(memoryview(new_batch(b"%d" % partition)), 0, now_ms=NOW_MS)
    world.broker_settings["num.recovery.threads.per.data.dir"] = str(threads)
    sizes = []
    load_logs = log_loader._load_logs
    monkeypatch.setattr(
        log_loader, "_load_logs", lambda share: sizes.append(len(share)) or load_logs(share)
    )
    world.restart()

    assert sizes == jobs
    assert [values(read_all(world.log(p))) for p in range(7)] == [[b"%d" % p] for p in range(7)]


def test_start_says_how_much_it_has_loaded(world: LogWorld, caplog):
    """A start logs how much it has loaded and, after a crash, how much it had to check."""
    world.configure(segment_bytes=1_000_000)
    for partition in range(4):
        log = world.log(partition)
        log.append_as_leader(memoryview(new_batch(b"x" * 400_000)), 0, now_ms=NOW_MS)
    caplog.set_level("INFO", "ottla.log.loading_progress")
    world.restart()
    world.restart(clean=True)

    end = "/data: 4 of 4 logs are loaded, after 0 ms; %s MB of records were checked"
    progress = [line for line in caplog.messages if "logs are loaded" in line]
    assert progress == [end % "1.6", end % "0.0"]


# -- making and deleting


def test_new_partition_goes_to_the_directory_with_the_fewest():
    """A new partition goes to the directory with the fewest logs, with all its files."""
    world = LogWorld(**{"log.dirs": "/data/a,/data/b,/data/c"})
    directories = [world.log(partition).log_dir.path for partition in range(6)]
    assert directories == ["/data/a", "/data/b", "/data/c"] * 2

    world.manager.delete_log(TopicPartition("topic", 4))
    assert world.log(9).log_dir.path == "/data/b"


def test_directories_know_how_many_logs_they_have():
    """To choose one of them, every log of the broker was looked at, for each new partition."""
    pytest.importorskip("ottla.extensions.moves", reason="moves are deleted")
    world = LogWorld(**{"log.dirs": "/data/a,/data/b"})
    for partition in range(7):
        world.log(partition)
    world.moves.alter(TopicPartition("topic", 0), "/data/b")
    world.runtime.scheduler.run_ready()
    world.manager.delete_log(TopicPartition("topic", 4))
    before = [log_dir.log_count for log_dir in world.manager.dirs]
    world.restart(clean=True)

    assert before == [2, 4]
    assert [log_dir.log_count for log_dir in world.manager.dirs] == before


def test_topic_id_is_kept_with_the_partition(world: LogWorld):
    """A log of a deleted topic of the same name is not taken for it."""
    log = world.manager.get_or_create_log(PARTITION, TOPIC_ID)
    assert world.disk.read_bytes(f"{log.dir}/partition.metadata") == (
        b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n"
    )
    world.restart(clean=True)

    assert world.manager.get_or_create_log(PARTITION, TOPIC_ID).topic_id == TOPIC_ID
    assert world.manager.get_or_create_log(PARTITION, NO_UUID).topic_id == TOPIC_ID
    assert error_of(world.manager.get_or_create_log, PARTITION, UUID(int=5)) is (
        ErrorCode.INCONSISTENT_TOPIC_ID
    )


def test_damaged_topic_id_is_written_again(world: LogWorld):
    """A crash may have torn the file."""
    world.manager.get_or_create_log(PARTITION, TOPIC_ID)
    world.overwrite(f"{DIR}/topic-0/partition.metadata", b"version: 0\ntopic")
    world.restart()

    assert world.manager.get_or_create_log(PARTITION, TOPIC_ID).topic_id == TOPIC_ID


def test_illegal_name_makes_no_directory(world: LogWorld):
    """Inside the data directory or outside."""
    call = world.manager.get_or_create_log

    assert error_of(call, TopicPartition("../../x", 0), NO_UUID) is (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert not [name for name in world.disk.list_dir("/") if name != "data"]


def test_deleted_partition_is_renamed_now_and_removed_later(world: LogWorld):
    """A new one of the same name can be made at once."""
    world.append_many(30)
    region = world.log().read(0, 100, max_offset=30, min_one_message=True).records
    world.manager.delete_log(PARTITION)
    deleted = [name for name in world.disk.list_dir(DIR) if name.endswith("-delete")]
    assert world.manager.get_log(PARTITION) is None
    assert deleted[0].startswith("topic-0.")
    assert len(deleted[0]) == len("topic-0.") + 32 + len("-delete")

    assert world.append(b"new").first_offset == 0
    assert region.read()
    world.runtime.advance(1000)
    assert not [name for name in world.disk.list_dir(DIR) if name.endswith("-delete")]


def test_interrupted_deletion_is_finished_after_the_next_start(world: LogWorld):
    """Its records do not come back."""
    world.append_many(3)
    world.manager.delete_log(PARTITION)
    world.kill()
    world.start()
    assert world.manager.get_log(PARTITION) is None
    world.runtime.advance(60_000)

    assert not [name for name in world.disk.list_dir(DIR) if name.endswith("-delete")]


def test_new_log_is_not_cut_by_what_is_written_down_of_a_deleted_one(world: LogWorld):
    """The broker had ended before the checkpoints were written: the next crash emptied the log."""
    world.append_many(60)
    world.log().maybe_increment_log_start_offset(40)
    world.runtime.advance(61_000)
    world.manager.checkpoints.write_all = lambda: None
    world.manager.delete_log(PARTITION)
    world.kill()
    world.start()
    world.append_many(3)
    world.runtime.advance(0)

    assert world.restart().log_start_offset == 0
    assert world.log().log_end_offset == 3


def test_deletion_is_done_when_the_checkpoints_say_nothing_of_it(world: LogWorld):
    """Before that a log of the same name might begin, after a crash, where the older one had."""
    world.append_many(60)
    world.log().maybe_increment_log_start_offset(40)
    world.runtime.advance(61_000)
    checkpoint = world.manager.dirs[0].log_start_offsets
    found = []
    world.manager.delete_log(PARTITION)
    world.manager.when_deletions_are_noted(lambda: found.append(checkpoint.read()))
    assert (found, checkpoint.read()) == ([], {PARTITION: 40})
    world.runtime.advance(0)

    assert found == [{}]


def test_deleted_log_serves_nobody(world: LogWorld):
    """Whoever still has it is told."""
    log = world.log()
    world.manager.delete_log(PARTITION)
    data = memoryview(new_batch(b"x"))

    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        log.append_as_leader(data, 0, now_ms=0)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        log.read(0, 1, max_offset=0, min_one_message=True)


def test_full_disk_refuses_a_new_partition(world: LogWorld):
    """The directory stays in use."""
    world.disk.fail("open", "*.timeindex", error=errno.ENOSPC)

    assert error_of(world.log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log().log_end_offset == 0


def test_topic_id_that_the_disk_has_no_room_for_refuses_the_partition(world: LogWorld):
    """The directory stays in use, as do the logs in it; the next try writes it down."""
    world.append(b"x")
    world.disk.fail("pwrite", "*/partition.metadata", error=errno.ENOSPC, times=2)
    other, topic_id = TopicPartition("other", 0), UUID(int=1)
    for _ in range(2):
        refused = error_of(lambda: world.manager.get_or_create_log(other, topic_id))
        assert refused is ErrorCode.KAFKA_STORAGE_ERROR
        assert not world.manager.dirs[0].is_offline
    assert world.manager.get_or_create_log(other, topic_id).topic_id == topic_id
    world.restart()

    assert world.manager.get_or_create_log(other, topic_id).topic_id == topic_id


def test_directory_survives_more_open_files_than_the_system_allows(world: LogWorld):
    """A directory cannot even be looked into then: what was made of the log is only renamed."""
    world.disk.fail("open", "*.timeindex", error=errno.EMFILE)
    world.disk.fail("remove_tree", error=errno.EMFILE)

    assert error_of(world.log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.manager.dirs[0].is_offline
    (left,) = (name for name in world.disk.list_dir(DIR) if name.endswith(DELETE_DIR_SUFFIX))
    world.disk.faults.clear()
    assert world.log().log_end_offset == 0
    world.runtime.advance(60_000)
    assert left not in world.disk.list_dir(DIR)


def test_offline_directory_gets_no_new_partition():
    """Without any other there is nowhere to go."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.manager.dirs[0].fail(OSError(errno.EIO, "broken"))
    assert {world.log(partition).log_dir.path for partition in range(3)} == {"/data/b"}

    world.manager.dirs[1].fail(OSError(errno.EIO, "broken"))
    assert error_of(world.log, 9) is ErrorCode.KAFKA_STORAGE_ERROR


# -- periodic work


def test_checkpoints_are_written_from_time_to_time(world: LogWorld):
    """High watermarks often, the others each minute."""
    world.append_many(60)
    world.log().maybe_increment_log_start_offset(3)
    world.runtime.advance(5000)
    assert checkpoint(world, "replication-offset-checkpoint") == {PARTITION: 60}

    world.runtime.advance(55_000)
    recovery_point = world.log().segments.active.base_offset
    assert checkpoint(world, "recovery-point-offset-checkpoint") == {PARTITION: recovery_point}
    assert checkpoint(world, "log-start-offset-checkpoint") == {PARTITION: 3}


def test_start_offset_of_a_whole_segment_needs_no_checkpoint(world: LogWorld):
    """The file's name says it."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(log.segments.base_offsets[2])
    at_once(world.manager.delete_old_segments())
    world.runtime.advance(60_000)

    assert checkpoint(world, "log-start-offset-checkpoint") == {}


def test_high_watermark_survives_a_restart(world: LogWorld):
    """As far as its checkpoint knows it."""
    world.append_many(10)
    world.log().high_watermark = 4
    world.runtime.advance(5000)

    assert world.restart().high_watermark == 4


def test_failing_checkpoint_takes_the_directory_offline(world: LogWorld):
    """A full disk does not."""
    world.append_many(3)
    world.disk.fail("replace", "*replication*", error=errno.ENOSPC)
    world.runtime.advance(5000)
    assert not world.log().log_dir.is_offline
    world.runtime.advance(5000)
    assert checkpoint(world, "replication-offset-checkpoint") == {PARTITION: 3}

    world.append_many(1)
    world.disk.fail("replace", "*replication*")
    world.runtime.advance(5000)
    assert world.log().log_dir.is_offline


def test_retention_runs_by_itself(world: LogWorld):
    """Every log.retention.check.interval.ms."""
    world.append_many(60)
    world.configure(retention_ms=1000)
    world.runtime.advance(299_999)
    assert world.log().log_start_offset == 0
    world.runtime.advance(1)

    assert world.log().log_start_offset == 60


def test_retention_gives_memory_back(world: LogWorld):
    """Indexes of closed segments are read again when they are needed."""
    world.append_many(60)
    world.runtime.scheduler.run_ready()
    at_once(world.manager.delete_old_segments())
    first = world.log().segments.first

    assert first.offset_index._entries is None
    assert values(read_all(world.log())) == numbers(0, 60)


def test_idle_producers_are_forgotten():
    """After producer.id.expiration.ms, from the first look behind their last batch on."""
    world = LogWorld(**{"producer.id.expiration.ms": "1000000"})
    world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    world.runtime.advance(1_200_000)
    assert world.log().producer_state_manager.producers
    world.runtime.advance(600_000)

    assert not world.log().producer_state_manager.producers


@pytest.mark.parametrize("days", [-1_000, -2, 2, 1_000])
@pytest.mark.parametrize("is_follower", [False, True])
def test_retry_is_known_though_the_clock_has_jumped(days, is_follower):
    """All producers were forgotten at the next look, and what they sent again was stored twice."""
    world = LogWorld()
    sent = new_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    if is_follower:
        data = bytearray(sent)
        assign_offset(data, 0, 0, 0)
        append_as_follower(world.log(), data, 0, world.runtime.clock.now_ms())
    else:
        world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    world.runtime.advance(1)
    clock = world.runtime.clock
    clock.set_wall_clock(max(0, clock.now_ms() + days * 24 * 3_600_000))
    for _ in range(2):
        world.runtime.advance(600_000)
    world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    assert world.log().log_end_offset == 1
    world.append(b"y", producer_id=1, producer_epoch=0, base_sequence=1)
    for _ in range(2):
        world.runtime.advance(600_000)
    world.append(b"y", producer_id=1, producer_epoch=0, base_sequence=1)
    assert world.log().log_end_offset == 2


def test_changed_expiration_of_producers_counts_for_old_and_new_logs():
    """producer.id.expiration.ms can change while the broker runs."""
    world = LogWorld(**{"producer.id.expiration.ms": "1000000"})
    world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    config = world.manager.config.replace(producer_id_expiration_ms="1000")
    world.manager.update_all_configs(config)
    other = world.manager.get_or_create_log(TopicPartition("other", 0), NO_UUID)
    world.runtime.advance(1_200_000)

    assert not world.log().producer_state_manager.producers
    assert other.producer_state_manager.expiration_ms == 1000


def test_configuration_of_a_topic_reaches_its_logs(world: LogWorld):
    """Those of other topics are not concerned."""
    other = world.manager.get_or_create_log(TopicPartition("other", 0), NO_UUID)
    log = world.log()
    world.topic["retention.ms"] = "5"
    world.manager.update_topic_config("topic")
    assert (log.config.retention_ms, other.config.retention_ms) == (5, 604_800_000)

    world.manager.update_all_configs(world.manager.config)
    assert other.config.retention_ms == 5


def test_power_loss_at_any_time_keeps_what_was_flushed():
    """Random appends, flushes and crashes over one disk."""
    chance = random.Random(7)
    world = LogWorld()
    flushed = 0
    for _ in range(30):
        world.append_many(chance.randrange(30))
        log = world.log()
        if chance.random() < 0.7:
            log.flush()
            world.runtime.scheduler.run_ready()
            flushed = log.recovery_point
        world.append_many(chance.randrange(5))
        world.disk.crash(chance)
        log = world.restart()
        assert log.log_end_offset >= flushed
        assert values(read_all(log)) == numbers(0, log.log_end_offset)
        flushed = log.log_end_offset


def test_stray_log_is_put_away_for_the_topic_of_its_name(world: LogWorld):
    """The records of the topic that was deleted are kept on disk, and nobody's any more."""
    world.manager.get_or_create_log(PARTITION, TOPIC_ID)
    world.append_many(20)
    log = world.log()
    world.manager.put_stray_away(PARTITION, TOPIC_ID)
    world.manager.put_stray_away(PARTITION, NO_UUID)
    assert world.log() is log
    world.manager.put_stray_away(PARTITION, UUID(int=5))
    new = world.manager.get_or_create_log(PARTITION, UUID(int=5))
    world.runtime.advance(10_000)

    assert (new.topic_id, new.log_end_offset) == (UUID(int=5), 0)
    (stray,) = [name for name in world.disk.list_dir(DIR) if name.endswith("-stray")]
    assert world.disk.file_size(f"{DIR}/{stray}/00000000000000000000.log") > 0
    world.restart()
    assert values(read_all(world.log())) == []
    assert world.disk.is_dir(f"{DIR}/{stray}")


def test_idle_directory_that_fails_is_noticed():
    """Nobody writes: one that is gone is missed at the next checkpoint, a broken one soon after."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.log()
    world.runtime.advance(60_000)
    world.disk.remove_tree("/data/a")
    world.disk.fail("replace", "/data/b/*", error=errno.EIO)
    world.runtime.advance(6_000)
    assert [log_dir.is_offline for log_dir in world.manager.dirs] == [True, False]
    world.runtime.advance(60_000)

    assert [log_dir.is_offline for log_dir in world.manager.dirs] == [True, True]


def test_checkpoint_that_is_missing_is_written_again(world: LogWorld):
    """Somebody has removed the file, and not the directory."""
    world.append_many(5)
    world.runtime.advance(6_000)
    world.disk.unlink(f"{DIR}/replication-offset-checkpoint")
    world.runtime.advance(6_000)

    assert checkpoint(world, "replication-offset-checkpoint") == {PARTITION: 5}


def test_directory_that_cannot_be_claimed_is_left_out():
    """The others are this broker's all the same."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.disk.fail("replace", "/data/a/meta.properties", error=errno.ENOSPC)
    world.manager.claim(1, "cluster")
    assert [each.is_offline for each in world.manager.dirs] == [True, False]

    properties = world.manager.dirs[1].read_meta_properties()
    assert (properties.broker_id, properties.cluster_id) == (1, "cluster")


def test_checkpoint_that_made_the_code_fail_is_written_the_next_time(
    world: LogWorld, caplog, monkeypatch
):
    """Each write waits for the one before it: none was made any more."""
    world.append_many(3)
    high_watermarks = world.manager.dirs[0].high_watermarks
    failures = [ValueError("planted")]

    write = OffsetCheckpoint.write

    def fail_once(each, offsets):
        if each is high_watermarks and failures:
            raise failures.pop()
        write(each, offsets)

    monkeypatch.setattr(OffsetCheckpoint, "write", fail_once)
    for _ in range(2):
        world.manager.checkpoints.write_high_watermarks()
        world.runtime.scheduler.run_ready()

    assert "cannot be written" in caplog.text
    assert high_watermarks.read() == {PARTITION: 3}
    assert world.manager.checkpoints.are_on_disk


def test_retention_of_one_log_keeps_no_other_back(world: LogWorld, caplog, monkeypatch):
    """Whatever it makes the code raise; it is named."""
    world.configure(retention_ms=1000)
    for partition in range(2):
        log = world.log(partition)
        log.append_as_leader(memoryview(bytearray(new_batch(b"x"))), 0, now_ms=NOW_MS)
        log.update_high_watermark(1)
    world.runtime.advance(5000)
    monkeypatch.setattr(
        type(world.log().segments.first),
        "largest_timestamp_ms",
        lambda segment: 1 // (segment.directory != world.log().dir),
    )

    assert at_once(world.manager.delete_old_segments()) == 1
    assert "Retention of topic-0 has failed" in caplog.text


def test_retention_of_many_logs_pauses_and_leaves_alone_what_changes_then(world: LogWorld):
    """Others run in its pauses: a log may be deleted, or get a longer retention."""
    world.configure(retention_ms=1000, segment_bytes=100)
    for partition in range(4):
        for _ in range(SEGMENTS_IN_A_SLICE // 2):
            log = world.log(partition)
            log.append_as_leader(memoryview(bytearray(new_batch(b"x"))), 0, now_ms=NOW_MS)
            log.update_high_watermark(log.log_end_offset)
    world.runtime.clock.advance(5000)
    work = world.manager.delete_old_segments()
    next(work)
    assert [world.log(each).log_start_offset > 0 for each in range(4)] == [True, True, False, False]
    world.manager.delete_log(TopicPartition("topic", 2))
    world.configure(retention_ms=-1)

    assert at_once(work) == SEGMENTS_IN_A_SLICE
    assert world.log(3).log_start_offset == 0
