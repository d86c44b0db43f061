"""Any one call of the disk fails, in any change of a log: memory and files never part ways."""

from __future__ import annotations

import copy
import errno
import os
import struct
from collections.abc import Callable
from itertools import count
from typing import NamedTuple
from uuid import UUID

import pytest
from breadth import rounds
from log_world import NOW_MS, PARTITION, LogWorld, new_batch, read_all, values

from ottla.errors import KafkaError
from ottla.log import log_loader
from ottla.log.follower_append import append_as_follower
from ottla.log.log import Log
from ottla.log.log_truncation import truncate_fully_and_start_at, truncate_to
from ottla.log.log_validator import AppendOrigin
from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk, mock_runtime

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EMFILE", "EIO")}
SHORT = 0
"""The disk takes the first bytes of a write, and has no room for the rest."""
ROUNDS = rounds({**ERRORS, "SHORT": SHORT})
TWO_DIRS = "/data/a,/data/b"
OLD_ID, NEW_ID = UUID(int=5), UUID(int=6)


class OneFault:
    """The call of a certain number fails."""

    def __init__(self, number: int, error: int) -> None:
        self.number = number
        self.error = error
        self.struck = ""
        self._count = 0

    def __call__(self, operation: str, path: str) -> int | None:
        self._count += 1
        if self._count == self.number:
            self.struck = f"{operation} {path}"
            if not self.error and operation == "pwrite":
                self.number += 1  # the rest of this write is asked for next
                return 3
            error = self.error or errno.ENOSPC
            raise OSError(error, os.strerror(error), path)
        return None


class State(NamedTuple):
    """What a log says of itself."""

    start: int
    end: int
    records: list[tuple[int, bytes | None]]
    epochs: list[tuple[int, int]]
    producers: dict[int, tuple[int, int, int]]
    aborted: list[tuple[int, ...]]


def state_of(log: Log) -> State:
    producers = log.producer_state_manager.producers.values()
    return State(
        log.log_start_offset,
        log.log_end_offset,
        [(record.offset, record.value) for record in read_all(log)],
        [tuple(entry) for entry in log.leader_epoch_cache.entries],
        {
            each.producer_id: (
                each.producer_epoch,
                each.last_sequence,
                each.current_txn_first_offset,
            )
            for each in producers
        },
        [tuple(each) for segment in log.segments for each in segment.txn_index.entries()],
    )


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """A disk with the same contents, which no process has locked."""
    return MemoryDisk(root=copy.deepcopy(disk.root))


def another_life(world: LogWorld, disk: MemoryDisk) -> LogWorld:
    """What a start finds on a disk, at the same time of the clock."""
    runtime = mock_runtime(disk=disk)
    runtime.clock.advance(world.runtime.clock.now_ms() - runtime.clock.now_ms())
    found = type(world).__new__(type(world))
    found.topic = dict(world.topic)
    LogWorld.__init__(found, runtime, world.directory, **world.broker_settings)
    found.topic = dict(world.topic)
    return found


def idempotent(world: LogWorld, sequence: int, **header) -> None:
    world.append(
        b"%d" % world.log().log_end_offset,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        **header,
    )


def begin() -> LogWorld:
    """A log of several segments and epochs, with idempotent batches, flushed up to the middle."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.manager.get_or_create_log(PARTITION, OLD_ID)
    for number in range(18):
        idempotent(world, number, epoch=number // 8)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    for number in range(18, 24):
        idempotent(world, number)
    world.runtime.scheduler.run_ready()
    world.manager.checkpoints.write_all()
    world.runtime.scheduler.run_ready()
    return world


# The changes: each says what it has acknowledged by returning.


def append(world: LogWorld) -> None:
    for number in range(24, 44):
        idempotent(world, number, epoch=3)


def append_and_flush(world: LogWorld) -> None:
    world.configure(flush_messages=1)
    for number in range(24, 36):
        idempotent(world, number)
        world.runtime.scheduler.run_ready()
    world.runtime.advance(3000)


def append_after_a_start(world: LogWorld) -> None:
    """The indexes are not in memory yet."""
    append(world)


def transactions(world: LogWorld) -> None:
    for number in range(4):
        header = {"producer_id": 9, "producer_epoch": 0, "base_sequence": number}
        world.append(b"t%d" % number, is_transactional=True, **header)
        abort(world)


def abort(world: LogWorld) -> None:
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0), NOW_MS, 9, 0
    )
    log, data = world.log(), memoryview(bytearray(marker))
    log.append_as_leader(data, 2, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


def follow(world: LogWorld) -> None:
    log = world.log()
    for number in range(24, 60, 4):
        fetched = b"".join(
            new_batch(
                b"%d" % offset,
                base_offset=offset,
                partition_leader_epoch=4,
                producer_id=7,
                producer_epoch=0,
                base_sequence=offset,
            )
            for offset in range(number, number + 4)
        )
        append_as_follower(log, memoryview(fetched), 4, NOW_MS)
        log.update_high_watermark(log.log_end_offset)


def follow_after_a_start(world: LogWorld) -> None:
    follow(world)


def truncate(world: LogWorld) -> None:
    log = world.log()
    world.runtime.scheduler.run(world.manager.truncate(log, 9))
    world.manager.checkpoints.write_all()
    world.runtime.scheduler.run_ready()


def truncate_at_once(world: LogWorld) -> None:
    truncate_to(world.log(), 13)


def restart_elsewhere(world: LogWorld) -> None:
    truncate_fully_and_start_at(world.log(), 500)


def restart_in_the_past(world: LogWorld) -> None:
    world.log().maybe_increment_log_start_offset(20)
    at_once(world.manager.delete_old_segments())
    truncate_fully_and_start_at(world.log(), 3)


def retain(world: LogWorld) -> None:
    world.configure(retention_bytes=500)
    at_once(world.manager.delete_old_segments())
    world.runtime.advance(3000)


def roll(world: LogWorld) -> None:
    world.log().roller.roll()
    world.runtime.scheduler.run_ready()


def checkpoint(world: LogWorld) -> None:
    world.log().maybe_increment_log_start_offset(15)
    world.manager.checkpoints.write_all()
    world.runtime.scheduler.run_ready()


def move(world: LogWorld) -> None:
    pytest.importorskip("ottla.extensions.moves", reason="moves are deleted")
    world.moves.alter(PARTITION, "/data/b")
    world.runtime.advance(3000)


CHANGES = {
    each.__name__: each
    for each in (
        append,
        append_and_flush,
        append_after_a_start,
        transactions,
        follow,
        follow_after_a_start,
        truncate,
        truncate_at_once,
        restart_elsewhere,
        restart_in_the_past,
        retain,
        roll,
        checkpoint,
        move,
    )
}


def prepared(change: Callable[[LogWorld], None]) -> LogWorld:
    world = begin()
    if change not in (append_after_a_start, follow_after_a_start):
        return world
    world.stop()
    return another_life(world, copy_of(world.disk))


def outcomes(change: Callable[[LogWorld], None], errors: list[int]):
    """The world after each call of the disk in a change has failed, one after the other."""
    for number in count(1):
        world = prepared(change)
        fault = world.disk.on_call = OneFault(number, errors[number % len(errors)])
        refused = None
        try:
            change(world)
        except KafkaError as failure:
            refused = failure
        world.disk.on_call = None
        if not fault.struck:
            assert number > 1
            return
        yield world, fault.struck, refused


def check_same(log: Log, found: Log, struck: str) -> None:
    """A log is what a start makes of its files.

    Where it begins is written down now and then, and a truncation may leave its end a little behind
    that of the last batch.
    """
    if found.log_start_offset < log.log_start_offset:
        found.update_high_watermark(log.log_start_offset)
        found.maybe_increment_log_start_offset(log.log_start_offset)
    ours, theirs = state_of(log), state_of(found)
    assert theirs.records == ours.records, struck
    assert theirs.end <= ours.end, struck
    assert theirs.start == ours.start, struck
    assert theirs.epochs == ours.epochs, struck
    assert theirs.producers == ours.producers, struck
    assert theirs.aborted == ours.aborted, struck
    for segment in log.segments:
        positions = [each.position for each in segment.offset_index.entries()]
        assert positions == sorted(set(positions)), struck


@pytest.mark.parametrize("errors", ROUNDS.values(), ids=ROUNDS)
@pytest.mark.parametrize("name", CHANGES)
def test_log_is_what_its_files_say_or_its_directory_is_offline(name, errors):
    """Whichever call fails, and with whichever error: that passes, or it is the end."""
    change = CHANGES[name]
    before = state_of(prepared(change).log())
    done = prepared(change)
    change(done)
    after = state_of(done.log())
    known = dict(before.records) | dict(after.records)
    for world, struck, refused in outcomes(change, errors):
        offline = [each for each in world.manager.dirs if each.is_offline]
        log = world.manager.get_log(PARTITION)
        found = another_life(world, copy_of(world.disk)).log()
        assert found.topic_id == OLD_ID, struck
        if not offline:
            names = [name for each in TWO_DIRS.split(",") for name in world.disk.list_dir(each)]
            assert names.count("topic-0") == 1, struck
        if log.log_dir not in offline:
            check_same(log, found, struck)
        elif refused is None:
            pass  # noticed in the background: whoever asks next is told
        theirs = state_of(found)
        assert dict(theirs.records).items() <= known.items(), struck
        if name.startswith(("append", "transactions", "follow", "roll", "checkpoint", "move")):
            # Nothing was to be cut: what is acknowledged is there.
            acknowledged = state_of(log).records if log.log_dir not in offline else before.records
            wanted = [each for each in acknowledged if each[0] >= theirs.start]
            assert theirs.records[: len(wanted)] == wanted, struck
        check_it_goes_on(found, struck)


def check_it_goes_on(log: Log, struck: str) -> None:
    before = log.log_end_offset
    data = memoryview(bytearray(new_batch(b"more")))
    info = log.append_as_leader(data, 9, now_ms=NOW_MS)
    assert (info.first_offset, values(read_all(log))[-1]) == (before, b"more"), struck


@pytest.mark.parametrize("errors", ROUNDS.values(), ids=ROUNDS)
def test_refused_change_is_made_by_the_next_attempt(errors):
    """A truncation that was said to be done by a second attempt has left nothing of the end."""
    for change in (truncate, truncate_at_once, restart_elsewhere, retain):
        done = prepared(change)
        change(done)
        wanted = state_of(done.log())
        for world, struck, _ in outcomes(change, errors):
            if any(each.is_offline for each in world.manager.dirs):
                continue
            change(world)
            assert state_of(world.log()) == wanted, struck
            check_same(world.log(), another_life(world, copy_of(world.disk)).log(), struck)


@pytest.mark.parametrize("errors", ROUNDS.values(), ids=ROUNDS)
def test_topic_that_is_made_again_has_no_record_of_the_older_one(errors):
    """However the deletion or the creation fails, and after a restart as well."""
    done = []

    def change(world: LogWorld) -> None:
        done.clear()
        world.manager.delete_log(PARTITION)
        world.runtime.advance(20_000)
        done.append("deleted")
        world.manager.get_or_create_log(PARTITION, NEW_ID)
        world.append(b"new", epoch=0)
        done.append("made")

    for world, struck, _ in outcomes(change, errors):
        restarted = another_life(world, copy_of(world.disk))
        for each in (world, restarted):
            log = each.manager.get_log(PARTITION)
            if log is None or not log.is_available:
                continue
            if log.topic_id == NEW_ID or "made" in done:
                assert set(values(read_all(log))) <= {b"new"}, struck
            else:
                assert "deleted" not in done or not log.log_end_offset, struck
        if not any(each.is_offline for each in world.manager.dirs):
            world.manager.delete_log(PARTITION)
            world.manager.get_or_create_log(PARTITION, UUID(int=8))
            world.append(b"newest", epoch=0)
            assert values(read_all(world.log())) == [b"newest"], struck


@pytest.mark.parametrize("errors", ROUNDS.values(), ids=ROUNDS)
def test_compaction_that_fails_loses_no_last_value(errors):
    """Whatever call of it: the last value of each key stays, before and after a restart."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    from cleaner_world import CleanerWorld  # its folder may be deleted

    fault_number = 0
    while True:
        fault_number += 1
        world = CleanerWorld()
        for number in range(12):
            world.put((b"%d" % (number % 3), b"%d" % number))
        world.roll()
        world.runtime.scheduler.run_ready()
        fault = world.disk.on_call = OneFault(fault_number, errors[fault_number % len(errors)])
        world.cleaner.clean_filthiest()
        world.runtime.advance(10_000)
        world.disk.on_call = None
        if not fault.struck:
            break
        logs = [another_life(world, copy_of(world.disk)).log()]
        if not world.log().log_dir.is_offline:
            logs.append(world.log())
        for log in logs:
            last = {record.key: record.value for record in read_all(log)}
            assert last == {b"0": b"9", b"1": b"10", b"2": b"11"}, fault.struck
    assert fault_number > 30


@pytest.mark.parametrize("errors", ROUNDS.values(), ids=ROUNDS)
def test_directory_is_clean_only_when_all_of_it_is_on_disk(errors):
    """A stop that meets a failing disk is followed by a recovery, and loses nothing."""
    for world, struck, _ in outcomes(LogWorld.stop, errors):
        disk = copy_of(world.disk)
        found = another_life(world, disk).log()
        assert values(read_all(found)) == [b"%d" % number for number in range(24)], struck
        disk = copy_of(world.disk)
        was_clean = [disk.exists(f"{each}/.kafka_cleanshutdown") for each in TWO_DIRS.split(",")]
        if all(was_clean):
            disk.crash()
            found = another_life(world, disk).log()
            assert values(read_all(found)) == [b"%d" % number for number in range(24)], struck


@pytest.mark.parametrize("index", ["*.index", "*.timeindex"])
def test_batch_that_cannot_be_indexed_is_not_written(index):
    """The indexes of a log that was just loaded are read when the first entry is added."""
    world = LogWorld()
    world.append(b"0")
    world.restart(clean=True)
    world.disk.fail("read_bytes", index, error=errno.EMFILE)
    refused = 0
    for number in range(1, 9):
        try:
            world.append(b"%d" % number, timestamp_ms=NOW_MS + number)
        except KafkaError:
            refused = number
    log = world.log()
    check_same(log, another_life(world, copy_of(world.disk)).log(), index)

    assert refused
    assert values(read_all(log)) == [b"%d" % number for number in range(9) if number != refused]


def test_abort_that_readers_cannot_be_told_of_is_not_acknowledged():
    """The coordinator writes the marker again, where another replica leads."""
    world = begin()
    header = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    world.append(b"t", is_transactional=True, **header)
    world.disk.fail("open", "*.txnindex", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        abort(world)

    assert world.log().log_dir.is_offline


def test_stop_without_its_checkpoints_leaves_no_clean_mark():
    """A log would begin before the records that were deleted, and nothing would look at it."""
    world = begin()
    world.log().maybe_increment_log_start_offset(15)
    world.disk.fail("replace", "*log-start-offset-checkpoint", error=errno.ENOSPC, times=9)
    world.stop()

    assert not world.disk.exists("/data/a/.kafka_cleanshutdown")
    assert world.disk.exists("/data/b/.kafka_cleanshutdown")


def test_partitions_of_other_directories_do_not_notice():
    """One directory has failed in the middle of a deletion; the other one takes records."""
    world = begin()
    other = world.log(1)
    assert other.log_dir is not world.log().log_dir
    world.disk.fail("rename", "*/topic-0", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.manager.delete_log(PARTITION)

    assert [each.is_offline for each in world.manager.dirs] == [True, False]
    assert world.manager.get_log(TopicPartition("topic", 1)) is other
    check_it_goes_on(other, "rename")


@pytest.mark.parametrize("end", [9, 0])
@pytest.mark.parametrize("name", ["recovery-point", "cleaner-offset"])
def test_log_is_not_cut_before_its_checkpoints_are_lowered_on_the_disk(name, end):
    """After a power failure later ones would cover what was written in the place of the rest.

    A gap in what is compacted is none: lost batches would be taken for compacted ones.
    """
    world = begin()
    log = world.log()
    log.cleaned_offset = 20
    world.manager.checkpoints.write_all()
    world.runtime.scheduler.run(world.manager.checkpoints.written())
    assert log.log_dir.cleaned_offsets.read() == {PARTITION: 20}
    world.disk.fail("replace", f"*{name}*", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match=rf"truncating .*{name}"):
        world.runtime.scheduler.run(world.manager.truncate(log, end))
    assert (log.log_end_offset, log.log_dir.is_offline) == (24, False)

    world.runtime.scheduler.run(world.manager.truncate(log, end, lambda: False))
    assert log.log_end_offset == 24
    assert log.log_dir.recovery_points.read()[PARTITION] <= end
    assert log.log_dir.cleaned_offsets.read().get(PARTITION, 0) == end
    world.runtime.scheduler.run(world.manager.truncate(log, end))
    assert log.log_end_offset == end


def test_deletion_is_not_noted_before_the_checkpoints_are_written():
    """A full disk gets some seconds; one that stays full is the end of the directory."""
    for times in (3, 1000):
        world = begin()
        noted = []
        world.disk.fail("replace", "*checkpoint", error=errno.ENOSPC, times=times)
        world.manager.delete_log(PARTITION)
        world.manager.when_deletions_are_noted(lambda noted=noted: noted.append(True))
        world.runtime.scheduler.run_ready()
        assert not noted
        world.runtime.advance(20_000)

        assert noted
        assert world.manager.dirs[0].is_offline == (times == 1000)


@pytest.mark.parametrize("is_known", [False, True])
def test_deleted_log_does_not_come_back_with_the_power(is_known):
    """Its new name is on disk when its deletion is noted, whether checkpoints knew it or not."""
    world = LogWorld(**{"log.dirs": TWO_DIRS})
    world.manager.checkpoints.write_all()
    world.manager.get_or_create_log(PARTITION, OLD_ID)
    idempotent(world, 0)
    world.log().flush()
    world.runtime.scheduler.run_ready()
    if is_known:
        world.manager.checkpoints.write_all()
        world.runtime.scheduler.run_ready()
    noted = []
    world.manager.delete_log(PARTITION)
    world.manager.when_deletions_are_noted(lambda: noted.append(True))
    world.runtime.scheduler.run_ready()
    assert noted
    world.disk.crash()
    world = another_life(world, copy_of(world.disk))

    assert world.manager.get_log(PARTITION) is None


def test_indexes_that_cannot_be_rebuilt_do_not_empty_the_segment():
    """A read finds them wrong and mends them; the disk fails half-way."""
    world = begin()
    log = world.log()
    segment = log.segments.first
    segment.release_indexes()
    file = world.disk.open(segment.offset_index.path)
    file.pwrite(b"\0\0\0\1" * (file.size() // 4), 0)
    size = segment.size
    world.disk.fail("truncate", "*.index", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match="rebuilding its indexes"):
        log.read(9, 1000, max_offset=24, min_one_message=True)

    assert (segment.size, log.log_dir.is_offline) == (size, True)


def test_directory_that_nobody_knows_is_not_taken_for_a_new_log():
    """What is in it stays under another name, and a start finds one log of the partition."""
    world = begin()
    for each in world.manager.dirs:
        world.disk.make_dirs(f"{each.path}/topic-7")
        world.overwrite(f"{each.path}/topic-7/{0:020d}.log", new_batch(b"of another"))
    log = world.manager.get_or_create_log(TopicPartition("topic", 7), NEW_ID)

    assert (log.topic_id, log.log_end_offset) == (NEW_ID, 0)
    strays = [
        name
        for each in world.manager.dirs
        for name in world.disk.list_dir(each.path)
        if name.startswith("topic-7.") and name.endswith("-stray")
    ]
    assert len(strays) == 2
    assert another_life(world, copy_of(world.disk)).log(7).log_end_offset == 0


def test_file_in_the_place_of_a_new_log_takes_no_directory_offline():
    """It stays under another name; one directory alone would end its broker, start after start."""
    world = begin()
    for each in world.manager.dirs:
        world.overwrite(f"{each.path}/topic-7", b"of somebody")
    log = world.manager.get_or_create_log(TopicPartition("topic", 7), NEW_ID)

    assert (log.topic_id, log.log_end_offset) == (NEW_ID, 0)
    assert not any(each.is_offline for each in world.manager.dirs)
    strays = [
        world.disk.read_bytes(f"{each.path}/{name}")
        for each in world.manager.dirs
        for name in world.disk.list_dir(each.path)
        if name.startswith("topic-7.") and name.endswith("-stray")
    ]
    assert strays == [b"of somebody"] * 2


def test_log_that_cannot_be_loaded_at_all_does_not_stop_the_others(monkeypatch):
    """Whatever its files make the code raise."""
    world = begin()
    world.log(1)
    load = log_loader.load_log

    def fail_for_one(source):
        if source.topic_partition == PARTITION:
            raise struct.error("planted")
        return load(source)

    monkeypatch.setattr(log_loader, "load_log", fail_for_one)
    world = another_life(world, copy_of(world.disk))

    assert world.log(1).log_end_offset == 0
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.log()


@pytest.mark.parametrize(
    ("operation", "skip"), [("rename", 0), ("fsync_dir", 4)], ids=["rename", "fsync_dir"]
)
def test_move_whose_original_stays_takes_that_directory_offline(operation, skip):
    """It is there under the partition's name: a new log must not find it."""
    pytest.importorskip("ottla.extensions.moves", reason="moves are deleted")
    world = begin()
    world.moves.alter(PARTITION, "/data/b")
    path = "/data/a/topic-0" if operation == "rename" else "/data/a"
    # Four checkpoints of the directory are synced before.
    world.disk.fail(operation, path, error=errno.ENOSPC, times=1000, skip=skip)
    world.runtime.advance(3000)

    assert [each.is_offline for each in world.manager.dirs] == [True, False]
    assert world.log().log_dir.path == "/data/b"
