"""Replicas that move from one log directory to another while they are written and read."""

from __future__ import annotations

import asyncio
import errno
from uuid import UUID

import pytest
from log_world import PARTITION, LogWorld, numbers, read_all, values

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.segment_copy import Paths, Piece, SourceCutError
from ottla.log.log_dir import LogDir
from ottla.log.log_retention import delete_old_segments
from ottla.log.offset_checkpoint import OffsetCheckpoint
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing import MemoryDisk

A, B, C = "/data/a", "/data/b", "/data/c"
SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def two_dirs(**settings: str) -> LogWorld:
    """Partition 0 in the first of two directories."""
    world = LogWorld(**{"log.dirs": f"{A},{B}", **settings})
    assert world.log().dir == f"{A}/topic-0"
    return world


def move(world: LogWorld, path: str) -> None:
    world.moves.alter(PARTITION, path)


def settle(world: LogWorld) -> None:
    """Let everything come to its end that needs no time."""
    world.runtime.scheduler.run_ready()


def held(world: LogWorld, *paths: str) -> list[list[str]]:
    """The directories of partitions, by the log directory that they are in."""
    names = [world.disk.list_dir(path) for path in paths]
    return [[name for name in each if name.startswith("topic-")] for each in names]


def refusal(world: LogWorld, path: str, partition: TopicPartition = PARTITION) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.moves.alter(partition, path)
    return caught.value.error


def start_slowly(count: int = 100) -> LogWorld:
    """A move that has begun, has copied something, and waits."""
    world = two_dirs(**SLOW)
    world.append_many(count)
    move(world, B)
    world.runtime.advance(2000)
    assert 0 < world.moves.into(world.manager.dirs[1])[0].end_offset < count
    return world


def test_log_moves_with_all_that_belongs_to_it():
    """Records, indexes, producers, epochs, topic id and offsets; the original goes later."""
    world = two_dirs()
    world.manager.get_or_create_log(PARTITION, TOPIC_ID)
    for number in range(60):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        world.append(b"%d" % number, epoch=number // 20, **header)
    log = world.log()
    log.maybe_increment_log_start_offset(5)
    epochs = list(log.leader_epoch_cache.entries)
    snapshots = {
        name: world.disk.read_bytes(world.path(name))
        for name in world.names()
        if name.endswith(".snapshot")
    }
    move(world, B)
    settle(world)

    assert len(snapshots) > 1
    assert (
        snapshots.items()
        <= {name: world.disk.read_bytes(world.path(name)) for name in world.names()}.items()
    )
    assert (world.log(), log.dir, log.log_dir.path) == (log, f"{B}/topic-0", B)
    assert log.recovery_point == 60
    assert not world.disk.exists(f"{B}/topic-0/replica-move")
    assert [name.endswith("-delete") for name in held(world, A)[0]] == [True]
    world.runtime.advance(2000)
    assert held(world, A, B) == [[], ["topic-0"]]
    world.append_many(10)
    world.stop()
    world.disk.crash()
    world.start()
    log = world.log()
    assert values(read_all(log)) == numbers(5, 70)
    assert (log.topic_id, log.leader_epoch_cache.entries[:3]) == (TOPIC_ID, epochs)
    assert log.producer_state_manager.producers[7].last_sequence == 59


def test_recovery_point_is_on_disk_before_the_original_goes(monkeypatch):
    """Without it, gaps that compaction has left would count as lost records after a crash."""
    world = two_dirs()
    world.append_many(60)
    rename = MemoryDisk.rename
    known = []

    def watched(disk: MemoryDisk, source: str, target: str) -> None:
        if target.endswith("-delete"):
            known.append(OffsetCheckpoint(disk, f"{B}/recovery-point-offset-checkpoint").read())
        rename(disk, source, target)

    monkeypatch.setattr(MemoryDisk, "rename", watched)
    move(world, B)
    settle(world)

    assert [offsets.get(PARTITION, 0) > 0 for offsets in known] == [True]


def test_reads_that_are_under_way_end_on_the_old_files():
    """The bytes of a region stay what they were until the files are removed."""
    world = two_dirs()
    world.append_many(30)
    region = world.log().read(0, 400, max_offset=30, min_one_message=True).records
    before = region.read()
    move(world, B)
    settle(world)

    assert region.read() == before
    world.runtime.advance(2000)
    with pytest.raises(OSError, match="closed"):
        region.read()


def test_log_is_used_while_it_moves():
    """Appended to, rolled, shortened and cut: what arrives is what the log is by then."""
    world = start_slowly()
    log = world.log()
    log.maybe_increment_log_start_offset(30)
    delete_old_segments(log, world.runtime.clock.now_ms())
    world.append_many(40)
    world.runtime.advance(3000)
    world.runtime.scheduler.run(world.manager.truncate(log, 90))
    world.append(b"other", epoch=3)
    assert log.dir == f"{A}/topic-0"
    world.runtime.advance(1000)
    world.append_many(20)
    world.runtime.advance(60_000)

    assert log.dir == f"{B}/topic-0"
    expected = [*numbers(30, 90), b"other", *numbers(91, 111)]
    assert values(read_all(log)) == expected
    log = world.restart()
    assert values(read_all(log)) == expected
    assert log.leader_epoch_cache.end_offset_for(0, 111) == (0, 90)


def test_log_that_was_dropped_as_a_whole_moves_empty():
    """A follower that begins anew at a later offset."""
    world = start_slowly()
    log = world.log()
    world.runtime.scheduler.run(world.manager.truncate_fully_and_start_at(log, 500))
    world.runtime.advance(60_000)

    assert log.dir == f"{B}/topic-0"
    assert world.restart().log_end_offset == 500


def test_move_is_throttled_and_described():
    """The copy is shown with its size and its end; a higher limit is heeded at once."""
    world = start_slowly()
    (future,) = world.moves.into(world.manager.dirs[1])
    assert world.moves.into(world.manager.dirs[0]) == []
    size, end = future.size_in_bytes, future.end_offset
    assert size <= 4000
    world.runtime.advance(1000)
    assert future.size_in_bytes > size
    assert future.end_offset >= end
    world.moves.update_config(BrokerConfig.parse({}))
    settle(world)

    assert world.log().dir == f"{B}/topic-0"
    assert world.moves.into(world.manager.dirs[1]) == []


def test_flush_that_is_waited_for_is_made_in_the_new_place():
    """A record that waits for its flush when the log changes over is acknowledged after it."""
    world = two_dirs()
    world.configure(flush_messages=1)
    world.append_many(20)

    async def append_until_it_has_moved() -> None:
        while world.log().log_dir.path == A:
            world.append(b"%d" % world.log().log_end_offset)
            await asyncio.sleep(0)

    move(world, B)
    world.runtime.scheduler.run(append_until_it_has_moved())
    settle(world)

    log = world.log()
    assert log.log_end_offset > 25
    assert log.recovery_point == log.safe_end_offset == log.log_end_offset
    world.disk.crash()
    world.kill()
    world.start()
    assert world.log().log_end_offset == log.log_end_offset


def test_move_back_gives_the_copy_up():
    """Nothing is left of it, and the same move can be asked for again."""
    world = start_slowly()
    move(world, A)
    settle(world)

    assert held(world, A, B) == [["topic-0"], []]
    assert OffsetCheckpoint(world.disk, f"{B}/replication-offset-checkpoint").read() == {}
    move(world, B)
    world.runtime.advance(60_000)
    assert world.log().dir == f"{B}/topic-0"


def test_move_to_a_third_directory_takes_the_place_of_the_first():
    """Whatever was copied to the second is removed."""
    world = LogWorld(**{"log.dirs": f"{A},{B},{C}", **SLOW})
    world.append_many(100)
    move(world, B)
    world.runtime.advance(2000)
    move(world, C)
    world.runtime.advance(60_000)

    assert held(world, A, B, C) == [[], [], ["topic-0"]]
    move(world, C)
    assert world.moves.into(world.manager.dirs[2]) == []


def test_deleted_partition_does_not_arrive():
    """Neither the log nor its copy is left."""
    world = start_slowly()
    world.manager.delete_log(PARTITION)
    world.runtime.advance(60_000)

    assert held(world, A, B) == [[], []]
    world.log()
    assert world.moves.into(world.manager.dirs[1]) == []


@pytest.mark.parametrize("clean", [True, False])
def test_move_goes_on_after_a_restart(clean):
    """From its beginning, with what is in the log by then."""
    world = start_slowly()
    if clean:
        world.stop()
    else:
        world.kill()
        world.disk.end_process()
    world.start()
    assert world.log().dir == f"{A}/topic-0"
    world.append_many(10)
    world.runtime.advance(200_000)

    assert held(world, A, B) == [[], ["topic-0"]]
    assert values(read_all(world.log())) == numbers(0, 110)


def test_copy_without_an_original_is_removed():
    """It was not complete, and the partition is gone."""
    world = two_dirs()
    world.disk.make_dirs(f"{B}/topic-7.0123456789abcdef0123456789abcdef-future")
    world.restart(clean=True)
    world.runtime.advance(60_000)

    assert held(world, A, B) == [["topic-0"], []]


def test_copy_stays_while_the_original_may_be_in_a_failed_directory(caplog):
    """At the next start with all of them it goes on."""
    world = start_slowly()
    world.stop()
    fault = world.disk.fail("lock", f"{A}/*", times=1)
    fault = world.disk.fail("exists", f"{A}/*", times=1)
    world.start()
    assert world.manager.dirs[0].is_offline
    assert [len(names) for names in held(world, B)] == [1]
    assert "the original may be in a failed directory" in caplog.text
    world.stop()
    fault.times = 0
    world.start()
    world.runtime.advance(200_000)

    assert values(read_all(world.log())) == numbers(0, 100)
    assert world.log().dir == f"{B}/topic-0"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_target_that_fails_does_not_harm_the_original(error):
    """The log stays where it is; only a broken disk takes the directory offline."""
    world = start_slowly()
    world.disk.fail("pwrite", f"{B}/*-future/*", error=error)
    world.runtime.advance(60_000)

    assert world.log().dir == f"{A}/topic-0"
    assert world.manager.dirs[1].is_offline == (error == errno.EIO)
    assert values(read_all(world.log())) == numbers(0, 100)
    if error == errno.ENOSPC:
        assert held(world, B) == [[]]
        move(world, B)
        world.runtime.advance(60_000)
        assert world.log().dir == f"{B}/topic-0"


def test_copy_that_cannot_be_removed_now_is_removed_later():
    """The move has failed, and the disk refuses even that; the next start may be years away."""
    world = start_slowly()
    world.disk.fail("pwrite", f"{B}/*-future/*", error=errno.ENOSPC)
    world.disk.fail("remove_tree", f"{B}/*-future", error=errno.EMFILE, times=3)
    world.runtime.advance(1_000)
    left = held(world, B)
    world.runtime.advance(300_000)

    assert [name.endswith("-future") for name in left[0]] == [True]
    assert held(world, B) == [[]]
    assert not world.manager.dirs[1].is_offline


@pytest.mark.parametrize("operation", ["exists", "file_size", "pread", "modified_ms"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_snapshot_that_cannot_be_read_ends_the_move_and_nothing_else(operation, error):
    """Only a broken disk takes its directory offline; else the copy goes, and the log stays."""
    world = two_dirs()
    for number in range(40):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        world.append(b"%d" % number, **header)
    assert world.log().producer_state_manager.snapshot_offsets
    fault = world.disk.fail(operation, f"{A}/topic-0/*.snapshot", error=error, times=1)
    move(world, B)
    world.runtime.advance(60_000)

    assert fault.times == 0
    assert world.manager.dirs[0].is_offline == (error == errno.EIO)
    if error == errno.EMFILE:
        assert held(world, A, B) == [["topic-0"], []]
        move(world, B)
        world.runtime.advance(60_000)
        assert held(world, A, B) == [[], ["topic-0"]]
        assert values(read_all(world.log())) == numbers(0, 40)


def test_source_that_fails_leaves_the_copy_for_later():
    """Its partitions are offline; the target lives, and a start after the repair goes on."""
    world = start_slowly()
    fault = world.disk.fail("pread", f"{A}/topic-0/*", times=100)
    world.runtime.advance(60_000)
    assert [log_dir.is_offline for log_dir in world.manager.dirs] == [True, False]
    fault.times = 0
    world.restart()
    world.runtime.advance(200_000)

    assert world.log().dir == f"{B}/topic-0"
    assert values(read_all(world.log())) == numbers(0, 100)


def test_original_that_cannot_be_renamed_is_not_taken_for_the_log(caplog):
    """The log has moved; the next start with the old directory sees which one goes further."""
    world = two_dirs()
    world.append_many(40)
    world.disk.fail("rename", f"{A}/topic-0")
    move(world, B)
    settle(world)
    assert [log_dir.is_offline for log_dir in world.manager.dirs] == [True, False]
    world.append_many(5)
    assert held(world, A, B) == [["topic-0"], ["topic-0"]]
    world.stop()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 45)
    assert f"was in {A}/topic-0 too; it is in {B}/topic-0 now" in caplog.text
    world.runtime.advance(60_000)
    assert held(world, A, B) == [[], ["topic-0"]]


def test_refusals_name_the_rule():
    """No such directory, a failed one, and a partition that is not here."""
    world = two_dirs()
    assert refusal(world, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refusal(world, B, TopicPartition("topic", 9)) is ErrorCode.REPLICA_NOT_AVAILABLE
    world.manager.dirs[1].fail(OSError("gone"))
    assert refusal(world, B) is ErrorCode.KAFKA_STORAGE_ERROR


def test_partition_begins_where_it_was_asked_to():
    """Once: when it is made again, the emptiest directory is taken."""
    world = two_dirs()
    partition = TopicPartition("topic", 1)
    for other in (5, 6):
        world.log(other)
    assert refusal(world, A + "/", partition) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert world.log(1).dir == f"{A}/topic-1"
    world.log(8)
    world.manager.delete_log(partition)

    assert world.manager.get_or_create_log(partition, NO_UUID).dir == f"{A}/topic-1"
    refusal(world, B, TopicPartition("topic", 9))
    world.manager.dirs[1].fail(OSError("gone"))
    with pytest.raises(KafkaError, match="offline"):
        world.log(9)


def test_moving_log_is_not_compacted_meanwhile():
    """The cleaner passes it over until it has arrived."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    world = two_dirs(**SLOW)
    world.configure(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    world.append_many(100)
    world.log().roller.roll()
    settle(world)
    move(world, B)
    settle(world)
    world.cleaner.clean_filthiest()
    world.runtime.advance(3000)
    assert world.log().cleaned_offset == 0
    world.runtime.advance(100_000)

    assert world.log().dir == f"{B}/topic-0"
    assert world.log().cleaned_offset == 100
    assert values(read_all(world.log())) == [b"99"]


def test_file_that_is_cut_while_it_is_copied_breaks_no_directory():
    """The copy of the segment is begun anew: a log directory went offline for it."""
    log_dir = LogDir(MemoryDisk(), "/data")
    log_dir.disk.make_dirs("/data")
    log_dir.disk.open("/data/source", create=True).pwrite(b"short", 0)
    piece = Piece(Paths(log_dir, "/data/source", log_dir, "/data/target"), 0, 48)

    with pytest.raises(SourceCutError):
        piece()


def test_moved_records_without_timestamps_are_as_old_as_before():
    """Their age is that of the file, and the copy is not younger than what was copied."""
    world = two_dirs()
    world.configure(retention_ms=3_600_000)
    world.append_many(40, timestamp_ms=-1)
    world.runtime.advance(3_000_000)
    move(world, B)
    settle(world)
    assert world.log().dir == f"{B}/topic-0"
    assert delete_old_segments(world.log(), world.runtime.clock.now_ms()) == 0
    world.runtime.advance(600_001)

    assert delete_old_segments(world.log(), world.runtime.clock.now_ms()) > 2
