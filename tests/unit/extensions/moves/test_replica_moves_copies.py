"""What a move copies, file by file, when the log changes meanwhile; and what ends a move."""

from __future__ import annotations

import errno
from collections import Counter
from uuid import UUID

import pytest
from log_world import PARTITION, LogWorld, numbers, read_all, values

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.replica_move import ReplicaMove
from ottla.log import log_loader
from ottla.log.log import Log
from ottla.log.log_retention import delete_old_segments
from ottla.log.recovery import LoadedLog, LogSource, load_log
from ottla.structs import NO_UUID, TopicPartition

A, B, C = "/data/a", "/data/b", "/data/c"
OTHER = TopicPartition("topic", 1)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
MARK = f"{B}/topic-0/replica-move"
ORIGINAL_MARK = f"{A}/topic-0/replica-moves-to"


def world_of(*dirs: str, rate: int | None = None, **settings: str) -> LogWorld:
    """Partition 0 in the first of some directories, with batches of a producer."""
    if rate is not None:
        settings[RATE] = str(rate)
    world = LogWorld(**{"log.dirs": ",".join(dirs), **settings})
    for number in range(100):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        world.append(b"%d" % number, epoch=number // 20, **header)
    assert world.log().dir == f"{A}/topic-0"
    return world


def move(world: LogWorld, path: str = B) -> ReplicaMove:
    """Ask for a move and begin it."""
    world.moves.alter(PARTITION, path)
    world.runtime.scheduler.run_ready()
    (target,) = [log_dir for log_dir in world.manager.dirs if log_dir.path == path]
    under_way = world.moves.into(target)
    return under_way[0] if under_way else None


def go_on_without_limit(world: LogWorld) -> None:
    world.moves.update_config(BrokerConfig.parse({}))
    world.runtime.scheduler.run_ready()


def check_arrived(world: LogWorld, expected: list[bytes], path: str = B) -> None:
    """The log is in its new place, with just the files that belong to it, and all of them."""
    log = world.log()
    assert log.dir == f"{path}/topic-0"
    assert values(read_all(log)) == expected
    names = {name for segment in log.segments for name in segment.files()}
    snapshots = map(
        log.producer_state_manager.snapshot_path, log.producer_state_manager.snapshot_offsets
    )
    kept = {"leader-epoch-checkpoint", "partition.metadata", "replica-move"}
    found = {f"{log.dir}/{name}" for name in world.names() if name not in kept}
    assert found == names | set(snapshots)
    for segment in log.segments:
        segment.write_indexes()
        for index in (segment.offset_index, segment.time_index):
            assert world.disk.contents(index.path) == bytes(index.raw_entries())


def cut(world: LogWorld, log: Log, offset: int) -> list[bytes]:
    world.runtime.scheduler.run(world.manager.truncate(log, offset))
    for number in range(30):
        world.append(b"new %d" % number, epoch=9)
    return [*numbers(0, offset), *(b"new %d" % number for number in range(30))]


def shorten(world: LogWorld, log: Log, offset: int) -> list[bytes]:
    log.maybe_increment_log_start_offset(offset)
    assert delete_old_segments(log, world.runtime.clock.now_ms())
    return numbers(offset, 100)


def drop(world: LogWorld, log: Log, offset: int) -> list[bytes]:
    world.runtime.scheduler.run(world.manager.truncate_fully_and_start_at(log, 500))
    world.append(b"500", epoch=9)
    return [b"500"]


@pytest.mark.parametrize("change", [cut, shorten, drop])
@pytest.mark.parametrize("rate", [300, 1000])
def test_log_that_changes_where_it_was_copied_arrives_as_it_is_by_then(change, rate):
    """Files of segments that are gone are not in the copy, and bytes that were cut are not."""
    world = world_of(A, B, rate=rate)
    future = move(world)
    while future.end_offset < 40:
        world.runtime.advance(1000)
    expected = change(world, world.log(), 30)
    go_on_without_limit(world)

    check_arrived(world, expected)


def test_copy_is_described_by_how_far_it_goes():
    """Before its end offset everything is there, from one segment to the next."""
    world = world_of(A, B, rate=300)
    log, future = world.log(), move(world)
    seen: set[int] = set()
    for _ in range(60):
        world.runtime.advance(500)
        end = future.end_offset
        seen.add(end)
        segment = log.segments.since(end)[0]
        before = sum(each.size for each in log.segments if each.base_offset < segment.base_offset)
        assert 0 <= future.size_in_bytes - before - segment.position_of(end) <= segment.size

    assert set(log.segments.base_offsets[1:]) < seen
    assert max(seen) == log.segments.active.base_offset


def test_batches_of_a_segment_are_copied_last():
    """The copy is described by the size of that file: the rest is there by then."""
    world = world_of(A, B, rate=300)
    written: dict[str, list[str]] = {}

    def watch(name: str, path: str) -> None:
        if name == "pwrite" and path.startswith(f"{B}/topic-0.") and "snapshot" not in path:
            stem, _, suffix = path.rpartition("/")[2].partition(".")
            written.setdefault(stem, []).append(suffix)

    world.disk.on_call = watch
    move(world)
    world.runtime.advance(200_000)

    assert len(written) > 5
    for suffixes in list(written.values())[:-1]:
        assert list(dict.fromkeys(suffixes)) == ["index", "timeindex", "log"]


def test_segment_that_is_copied_is_not_looked_at_again():
    """A log has thousands of them, and a move goes through all for each piece."""
    world = world_of(A, B)
    looks: Counter[str] = Counter()
    world.disk.on_call = lambda name, path: (
        looks.update([path]) if name == "file_size" and path.endswith(".txnindex") else None
    )
    move(world)

    assert len(looks) > 6
    assert max(looks.values()) < 12


def test_copy_is_complete_before_it_gets_the_name_of_the_partition():
    """With the epochs, which batches do not tell once they are compacted; no file stays open."""
    world = world_of(A, B)
    known: list[bytes] = []
    epochs = world.log().leader_epoch_cache.contents()

    def watch(name: str, path: str) -> None:
        if name == "rename" and path.endswith("-future"):
            known.append(world.disk.contents(f"{path}/leader-epoch-checkpoint"))

    world.disk.on_call = watch
    move(world)
    world.runtime.advance(5000)

    assert known == [epochs]
    check_arrived(world, numbers(0, 100))
    assert all(path.startswith(f"{B}/topic-0/") for path in world.disk.open_files)
    assert len(world.disk.open_files) == len(set(world.disk.open_files))


def test_segment_that_is_deleted_while_it_is_read_does_not_end_the_move():
    """The worker finds its file renamed, and the copy goes on with what is left."""
    world = world_of(A, B)
    log = world.log()

    def delete(name: str, path: str) -> None:
        if name == "open" and path == log.segments.first.path and "-future" not in path:
            world.disk.on_call = None
            shorten(world, log, 40)

    log.segments.first.close()
    world.disk.on_call = delete
    move(world)

    assert log.segments.first.base_offset > 0
    check_arrived(world, numbers(40, 100))


def test_log_that_is_deleted_while_it_is_read_is_no_fault_of_its_directory():
    """The worker finds the log's directory renamed; no directory goes offline for that."""
    world = world_of(A, B)
    log = world.log()

    def delete(name: str, path: str) -> None:
        if name == "open" and path == log.segments.first.path and "-future" not in path:
            world.disk.on_call = None
            world.manager.delete_log(log.topic_partition)

    log.segments.first.close()
    world.disk.on_call = delete
    move(world)
    world.runtime.advance(60_000)

    assert log.is_deleted
    assert [each.is_offline for each in world.manager.dirs] == [False, False]
    names = [name for path in (A, B) for name in world.disk.list_dir(path)]
    assert [name for name in names if name.startswith("topic-")] == []


def test_file_that_is_gone_from_the_disk_is_the_fault_of_its_directory():
    """Nobody has deleted the segment, so that the log is not whole."""
    world = world_of(A, B)
    world.disk.unlink(world.log().segments.first.path)
    move(world)

    assert [each.is_offline for each in world.manager.dirs] == [True, False]


# -- several moves


def test_two_partitions_move_at_the_same_time():
    """As many as there are directories; no move waits for that of another partition."""
    world = world_of(A, B, rate=1000)
    other = TopicPartition("topic", 1)
    with pytest.raises(KafkaError, match="will be made in"):
        world.moves.alter(other, A)
    log = world.log(1)
    world.moves.alter(PARTITION, B)
    world.moves.alter(other, B)
    world.runtime.advance(5000)

    assert log.dir == f"{B}/topic-1"
    assert world.log().dir == f"{A}/topic-0"


def test_move_that_was_asked_for_while_another_ends_goes_on_from_there():
    """The log has arrived in the second directory, but its original is not yet gone."""
    world = world_of(A, B, C)

    def ask_again(name: str, path: str) -> None:
        if (name, path) == ("rename", f"{A}/topic-0"):
            world.disk.on_call = None
            world.moves.alter(PARTITION, C)

    world.disk.on_call = ask_again
    move(world)

    check_arrived(world, numbers(0, 100), C)
    world.runtime.advance(5000)
    assert [world.disk.list_dir(each).count("topic-0") for each in (A, B, C)] == [0, 0, 1]


def test_move_that_is_taken_back_at_once_touches_no_disk():
    """It had not begun."""
    world = world_of(A, B)
    calls: list[str] = []
    world.moves.alter(PARTITION, B)
    world.moves.alter(PARTITION, A)
    world.disk.on_call = lambda name, path: calls.append(name)
    world.runtime.scheduler.run_ready()

    assert "make_dirs" not in calls
    check_arrived(world, numbers(0, 100), A)


def test_log_is_not_compacted_while_a_second_move_of_it_is_under_way():
    """The end of the first one does not allow it again."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    world = world_of(A, B, C, rate=1000)
    world.configure(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    world.log().roller.roll()
    move(world)
    world.runtime.advance(2000)
    move(world, C)
    world.cleaner.clean_filthiest()
    world.runtime.advance(2000)
    assert (world.log().log_dir.path, world.log().cleaned_offset) == (A, 0)
    go_on_without_limit(world)
    world.runtime.advance(100_000)

    assert (world.log().log_dir.path, world.log().cleaned_offset) == (C, 100)


def test_log_moves_on_a_broker_that_does_not_compact():
    """There is no cleaner to wait for."""
    world = world_of(A, B, **{"log.cleaner.enable": "false"})
    move(world)

    check_arrived(world, numbers(0, 100))


# -- faults


def test_mark_of_a_copy_stays_until_every_directory_is_there():
    """One that is offline may hold the original, also while the log moves on."""
    world = world_of(A, B, C)
    world.manager.dirs[2].fail(OSError("gone"))
    move(world)
    check_arrived(world, numbers(0, 100))
    assert world.disk.exists(MARK)
    world.moves.update_config(BrokerConfig.parse({RATE: "100"}))
    move(world, A)

    assert world.log().dir == f"{B}/topic-0"
    assert world.disk.exists(MARK)
    world.kill()
    world.start()
    assert not world.disk.exists(MARK)
    world.disk.crash()
    assert not world.disk.exists(MARK)


def lock_out(world: LogWorld, path: str) -> None:
    """Start anew without a directory: it cannot be locked."""
    world.disk.fail("lock", f"{path}/*")
    world.start()
    assert [each.path for each in world.manager.dirs if each.is_offline] == [path]


def check_not_served(world: LogWorld) -> None:
    for is_new in (False, True):
        with pytest.raises(KafkaError) as caught:
            world.manager.get_or_create_log(PARTITION, NO_UUID, is_new=is_new)
        assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.may_be_on_disk(PARTITION)


def test_original_is_not_served_where_the_log_in_which_it_went_on_cannot_be_loaded(monkeypatch):
    """Its directory works, and yet the log has what the original lacks."""
    world = world_of(A, B)
    world.disk.fail("rename", f"{A}/topic-0")
    move(world)
    world.append_many(5)
    world.kill()

    def load(source: LogSource) -> LoadedLog:
        if source.directory.startswith(B):
            raise ValueError("planted")
        return load_log(source)

    with monkeypatch.context() as patched:
        patched.setattr(log_loader, "load_log", load)
        world.start()
        check_not_served(world)
        world.stop()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 105)


@pytest.mark.parametrize("operation", ["exists", "fsync_dir", "unlink"])
def test_mark_that_stays_on_a_copy_takes_no_other_directory_offline(operation):
    """The disk refuses something when it is taken away; the next start has the log."""
    world = world_of(A, B)
    world.disk.fail("rename", f"{A}/topic-0")
    move(world)
    world.kill()
    paths = {"exists": f"{B}/topic-0/replica-move", "fsync_dir": B, "unlink": MARK}
    skip = {"exists": 1, "fsync_dir": 2, "unlink": 0}[operation]
    world.disk.fail(operation, paths[operation], skip=skip)
    world.start()
    assert [each.path for each in world.manager.dirs if each.is_offline] == [B]
    world.kill()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 100)
    assert not world.disk.exists(MARK)


# What a start without a directory does before the next one, which has it.
LIVES = {
    "nothing": lambda world: None,
    "checkpoints": lambda world: world.runtime.advance(100_000),
    "a deletion": lambda world: (world.log(1), world.manager.delete_log(OTHER)),
}


def compacted_world() -> LogWorld:
    """A log with gaps between its segments, which begins behind its first segment."""
    world = LogWorld(**{"log.dirs": f"{A},{B}"})
    world.configure(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.0")
    for number in range(200):
        world.append(b"." * 40, key=b"%d" % number if number % 50 < 7 else b"k", epoch=1)
    for _ in range(2):
        world.log().roller.roll()
        world.log().flush()
        world.runtime.advance(100_000)
        world.append(b"last", key=b"k")
    world.log().maybe_increment_log_start_offset(3)
    world.log().flush()
    world.manager.checkpoints.write_all()
    world.runtime.advance(100_000)
    assert world.log().cleaned_offset > 150
    return world


def contents(world: LogWorld) -> tuple[object, ...]:
    log = world.log()
    offsets = log.log_start_offset, log.log_end_offset, log.high_watermark
    return (*offsets, [(record.offset, record.value) for record in read_all(log)])


@pytest.mark.parametrize("end", [LogWorld.stop, LogWorld.kill])
@pytest.mark.parametrize("live", LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("why", ["aside", "unusable"])
def test_log_that_is_not_served_keeps_its_offsets(monkeypatch, why, live, end):
    """Without them records that were deleted are back, and gaps of compaction cut the log."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    world = compacted_world()
    before = contents(world)

    def load(source: LogSource) -> LoadedLog:
        if why == "unusable" and source.topic_partition == PARTITION:
            raise ValueError("planted")
        return load_log(source)

    world.kill()
    if why == "aside":
        world.disk.replace(ORIGINAL_MARK, B.encode())
        world.disk.fail("lock", f"{B}/*")
    with monkeypatch.context() as patched:
        patched.setattr(log_loader, "load_log", load)
        world.start()
        check_not_served(world)
        live(world)
        world.runtime.advance(10_000)
        end(world)
    world.start()

    assert contents(world) == before


def test_original_is_not_served_while_the_directory_is_away_in_which_the_log_went_on():
    """It lacks what was acknowledged there: a broker that is in sync with it would lose that."""
    world = world_of(A, B)
    world.disk.fail("rename", f"{A}/topic-0")
    move(world)
    assert world.log().dir == f"{B}/topic-0"
    world.append_many(5)
    world.kill()
    lock_out(world, B)
    check_not_served(world)
    world.stop()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 105)
    assert world.log().dir == f"{B}/topic-0"


@pytest.mark.parametrize("target", [B, C])
def test_original_is_served_where_the_log_has_not_gone_on(target):
    """The broker was killed before the swap; or the directory is none of its own any more."""
    world = world_of(A, B)
    world.disk.replace(ORIGINAL_MARK, target.encode())
    world.kill()
    if target == C:
        lock_out(world, B)
    else:
        world.start()

    assert values(read_all(world.log())) == numbers(0, 100)
    assert not world.disk.exists(ORIGINAL_MARK)


@pytest.mark.parametrize("operation", ["exists", "read_bytes", "unlink"])
def test_mark_that_cannot_be_read_or_removed_takes_its_directory_offline(operation):
    """As any other error of a disk at a start; the next start finds the log."""
    world = world_of(A, B)
    world.disk.replace(ORIGINAL_MARK, B.encode())
    world.kill()
    world.disk.fail(operation, ORIGINAL_MARK)
    world.start()
    assert [each.path for each in world.manager.dirs if each.is_offline] == [A]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.log().check_available()
    world.stop()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 100)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_original_has_no_mark_where_the_swap_is_refused(error):
    """Or it would not be served where the target has failed, which has none of its records."""
    world = world_of(A, B)
    world.disk.fail("rename", f"{B}/*-future", error=error)
    move(world)
    assert world.log().dir == f"{A}/topic-0"
    assert not world.disk.exists(ORIGINAL_MARK)
    world.kill()
    lock_out(world, B)

    assert values(read_all(world.log())) == numbers(0, 100)


@pytest.mark.parametrize(
    "path",
    [
        f"{A}/recovery-point-offset-checkpoint",
        f"{A}/log-start-offset-checkpoint",
        f"{B}/log-start-offset-checkpoint",
    ],
)
def test_checkpoint_that_cannot_be_written_ends_the_move(path):
    """The log stays where it is, and another try succeeds once there is room."""
    world = world_of(A, B)
    world.log().maybe_increment_log_start_offset(5)
    fault = world.disk.fail("replace", path, error=errno.ENOSPC, times=10**6)
    move(world)
    world.runtime.advance(1000)
    check_arrived(world, numbers(5, 100), A)
    assert world.disk.list_dir(B).count("topic-0") == 0
    assert not any(each.is_offline for each in world.manager.dirs)
    fault.times = 0
    move(world)

    check_arrived(world, numbers(5, 100))


def test_target_that_cannot_be_synced_is_offline():
    """What it holds is not known any more; the log stays where it is."""
    world = world_of(A, B)
    world.disk.fail("fsync", f"{B}/*", error=errno.EIO)
    move(world)

    assert [each.is_offline for each in world.manager.dirs] == [False, True]
    check_arrived(world, numbers(0, 100), A)


def test_target_whose_copy_cannot_be_removed_is_offline():
    """An error that does not pass is one of the directory."""
    world = world_of(A, B)
    world.disk.fail("pwrite", f"{B}/*-future/*", error=errno.ENOSPC)
    world.disk.fail("remove_tree", f"{B}/*-future", error=errno.EIO)
    move(world)

    assert [each.is_offline for each in world.manager.dirs] == [False, True]


def test_original_that_cannot_be_renamed_after_the_move_is_offline():
    """Even if the error may pass: it has the name of the partition, which is elsewhere now."""
    world = world_of(A, B)
    world.disk.fail("rename", f"{A}/topic-0", error=errno.EMFILE)
    move(world)

    assert [each.is_offline for each in world.manager.dirs] == [True, False]
    check_arrived(world, numbers(0, 100))


def test_log_in_a_failed_directory_cannot_move():
    """The request is refused, and nothing is begun."""
    world = world_of(A, B)
    world.manager.dirs[0].fail(OSError("gone"))
    with pytest.raises(KafkaError) as caught:
        world.moves.alter(PARTITION, B)

    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.moves.into(world.manager.dirs[1]) == []


@pytest.mark.parametrize("path", [A, B])
def test_resumed_copy_is_thrown_away_unless_the_log_is_elsewhere(path):
    """A directory may hold both the log and what is left of a copy of it."""
    world = world_of(A, B)
    name = "topic-0.0123456789abcdef0123456789abcdef-future"
    world.disk.make_dirs(f"{path}/{name}")
    world.restart(clean=True)
    world.runtime.advance(60_000)

    check_arrived(world, numbers(0, 100), path)
    assert name not in world.disk.list_dir(path)


def original_that_stays(*dirs: str) -> LogWorld:
    """A log that has moved from the first directory to the second, which has failed by then."""
    world = world_of(*dirs)
    world.manager.get_or_create_log(PARTITION, UUID(int=1))
    world.disk.fail("rename", f"{A}/topic-0", error=errno.EROFS)
    move(world)
    assert world.log().dir == f"{B}/topic-0"
    assert world.manager.dirs[0].is_offline
    return world


@pytest.mark.parametrize("count", [0, 1, 200])
@pytest.mark.parametrize("end", [LogWorld.stop, LogWorld.kill])
def test_topic_that_is_made_again_is_not_that_of_an_original_that_stayed(end, count):
    """However far that reaches: it is of a topic that was deleted."""
    world = original_that_stays(A, B)
    world.manager.delete_log(PARTITION)
    world.runtime.advance(5000)
    world.manager.get_or_create_log(PARTITION, UUID(int=2))
    world.append_many(count)
    end(world)
    for _ in range(2):
        world.start()
        assert world.log().topic_id == UUID(int=2)
        assert values(read_all(world.log())) == numbers(0, count)
        world.runtime.advance(100_000)
        assert [name for name in world.disk.list_dir(A) if "topic-0" in name] == []
        world.stop()


@pytest.mark.parametrize("rate", [10, 10**9])
def test_log_that_moves_on_while_its_first_original_is_away_is_found(rate):
    """Of three directories two or all have one of the partition's name at the next start."""
    world = original_that_stays(A, B, C)
    world.moves.update_config(BrokerConfig.parse({RATE: str(rate)}))
    move(world, C)
    world.append(b"100", epoch=9)
    world.kill()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 101)
    world.runtime.advance(2_000_000)
    assert [world.disk.list_dir(each).count("topic-0") for each in (A, B, C)] == [0, 0, 1]
