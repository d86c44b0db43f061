"""What of the logs is on disk at which time: checkpoints, names and marks."""

from __future__ import annotations

import asyncio
import errno
import logging
from uuid import UUID

import pytest
from log_world import DIR, NOW_MS, PARTITION, LogWorld, new_batch, numbers, read_all, values

from ottla.errors import ErrorCode, KafkaError
from ottla.log import log_loader
from ottla.log.log_manager import CHECKPOINT_RETRY_MS, LogAttachment
from ottla.log.offset_checkpoint import OffsetCheckpoint
from ottla.structs import NO_UUID, TopicPartition

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
OTHER = TopicPartition("topic", 1)
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
NEW_ID = UUID("11234567-89ab-cdef-0123-456789abcdef")


def checkpoint(world: LogWorld, name: str) -> dict[TopicPartition, int]:
    return OffsetCheckpoint(world.disk, f"{DIR}/{name}").read()


def settle(world: LogWorld) -> None:
    world.runtime.scheduler.run_ready()


def fill(world: LogWorld) -> None:
    """Let partition 0 have a value in each checkpoint."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(5)
    log.cleaned_offset = 3
    log.flush()
    settle(world)
    world.manager.checkpoints.write_all()
    settle(world)
    assert [PARTITION in checkpoint(world, name) for name in CHECKPOINTS] == [True] * 4


def delete(world: LogWorld) -> None:
    world.manager.delete_log(PARTITION)


def put_stray_away(world: LogWorld, topic_id: UUID | None = NEW_ID) -> None:
    world.log().topic_id = TOPIC_ID
    world.manager.put_stray_away(PARTITION, topic_id)


def put_gone_away(world: LogWorld) -> None:
    put_stray_away(world, None)


@pytest.mark.parametrize("leave", [delete, put_stray_away, put_gone_away])
def test_checkpoints_forget_a_log_that_leaves(world: LogWorld, leave):
    """All of them, and each time: what they say would be applied to a new log of that name."""
    for _ in range(2):
        fill(world)
        leave(world)
        settle(world)
        assert [checkpoint(world, name) for name in CHECKPOINTS] == [{}] * 4
        assert world.manager.get_log(PARTITION) is None
        suffix = "-delete" if leave is delete else "-stray"
        names = [name for name in world.disk.list_dir(DIR) if name.startswith("topic-0")]
        assert names[0].endswith(suffix)
        world.runtime.advance(2000)
        assert len(names := [n for n in world.disk.list_dir(DIR) if n.startswith("topic-0")]) == (
            0 if leave is delete else len(names)
        )


class Removals(LogAttachment):
    """Notes which partitions leave."""

    def __init__(self) -> None:
        self.seen: list[TopicPartition] = []

    def on_removal(self, topic_partition: TopicPartition) -> None:
        self.seen.append(topic_partition)


@pytest.mark.parametrize("leave", [delete, put_stray_away, put_gone_away])
def test_attachments_hear_of_a_log_that_leaves(world: LogWorld, leave):
    """Once, so that a move of it is given up."""
    removals = Removals()
    world.manager.attach(removals)
    fill(world)
    leave(world)

    assert removals.seen == [PARTITION]


def test_deletion_that_a_stop_has_interrupted_is_finished(world: LogWorld):
    """Its directory has the name that says so."""
    path = f"{DIR}/topic-9.0123456789abcdef0123456789abcdef-delete"
    world.disk.make_dirs(path)
    world.restart()
    assert world.disk.is_dir(path)
    world.runtime.advance(100_000)

    assert not world.disk.exists(path)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_of_a_log_and_its_copy_the_one_that_reaches_further_stays(more):
    """The copy, if neither does: it has what was flushed at the end of the move."""
    one, two = "/data/a", "/data/b"
    world = LogWorld(**{"log.dirs": f"{one},{two}"})
    for number in range(5):
        world.append(b"%d" % number, epoch=number)
    world.stop()
    world.disk.make_dirs(f"{two}/topic-0")
    for name in world.disk.list_dir(f"{one}/topic-0"):
        world.overwrite(f"{two}/topic-0/{name}", world.disk.contents(f"{one}/topic-0/{name}"))
    world.overwrite(f"{two}/topic-0/replica-move", b"")
    for path, is_shorter in ((one, more > 0), (two, more < 0)):
        log_path = f"{path}/topic-0/{0:020d}.log"
        if is_shorter:
            data = world.disk.contents(log_path)
            world.overwrite(log_path, data[: len(data) * 4 // 5])
    world.start()

    assert world.log().dir == (one if more < 0 else two) + "/topic-0"
    assert world.log().log_end_offset == 5


@pytest.mark.parametrize("count", [0, 1, 9])
@pytest.mark.parametrize("is_same", [True, False])
def test_log_that_was_made_while_another_was_away_is_told_from_it(is_same, count):
    """It is the partition's, unless it is of the same topic and reaches less far."""
    one, two = "/data/a", "/data/b"
    world = LogWorld(**{"log.dirs": f"{one},{two}"})
    world.manager.get_or_create_log(PARTITION, TOPIC_ID)
    world.append_many(5)
    world.stop()
    world.disk.fail("lock", f"{one}/*")
    world.start()
    world.manager.get_or_create_log(PARTITION, TOPIC_ID if is_same else NEW_ID)
    world.append_many(count)
    world.stop()
    world.start()

    is_old = is_same and count < 5
    assert world.log().dir == f"{one if is_old else two}/topic-0"
    assert world.log().log_end_offset == (5 if is_old else count)


@pytest.mark.parametrize("leave", [delete, put_stray_away, put_gone_away])
def test_log_in_a_failed_directory_stays_known(world: LogWorld, leave):
    """Whoever wants it gone is told, and tries again when the directory is back."""
    fill(world)
    log = world.log()
    log.topic_id = TOPIC_ID
    log.log_dir.is_offline = True
    with pytest.raises(KafkaError) as caught:
        leave(world)

    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.get_log(PARTITION) is log
    assert world.disk.is_dir(log.dir)


@pytest.mark.parametrize(("failures", "is_offline"), [(2, False), (1000, True)])
def test_deletion_waits_a_little_for_room_for_the_checkpoints(world, failures, is_offline):
    """What was deleted may make it; else the directory goes, for it would lie to the next start."""
    fill(world)
    fault = world.disk.fail("replace", f"{DIR}/recovery*", error=errno.ENOSPC, times=failures)
    noted: list[bool] = []
    world.manager.when_deletions_are_noted(lambda: noted.append(True))
    assert noted == [True]
    delete(world)
    world.manager.when_deletions_are_noted(lambda: noted.append(False))
    settle(world)
    assert noted == [True]
    world.runtime.advance(10 * CHECKPOINT_RETRY_MS)

    assert noted == [True, False]
    assert world.manager.dirs[0].is_offline is is_offline
    assert is_offline or checkpoint(world, CHECKPOINTS[0]) == {}
    assert fault.times < failures


def test_what_belongs_to_no_log_is_kept_under_another_name(world: LogWorld):
    """A new log of that name begins without its records."""
    world.disk.make_dirs(f"{DIR}/topic-0")
    world.overwrite(f"{DIR}/topic-0/{0:020d}.log", b"of another life")
    assert world.log().log_end_offset == 0

    (stray,) = [name for name in world.disk.list_dir(DIR) if name.endswith("-stray")]
    assert world.disk.contents(f"{DIR}/{stray}/{0:020d}.log") == b"of another life"


def test_log_may_be_on_disk_where_a_directory_has_failed(world: LogWorld):
    """Any may, for not everything can be read."""
    assert not world.manager.may_be_on_disk(PARTITION)
    world.manager.dirs[0].fail(OSError("gone"))

    assert world.manager.may_be_on_disk(PARTITION)


# -- cutting logs


def test_lower_recovery_points_are_on_disk_before_logs_are_cut(world: LogWorld):
    """Those of all logs that are cut in the same turn, with one write."""
    fill(world)
    settle(world)
    other = world.log(1)
    for _ in range(8):
        other.append_as_leader(memoryview(bytearray(new_batch(b"v"))), 0, now_ms=NOW_MS)
    other.flush()
    settle(world)
    world.manager.checkpoints.write_recovery_points()
    settle(world)
    before = checkpoint(world, CHECKPOINTS[0])
    written: list[str] = []
    seen: list[dict[TopicPartition, int]] = []

    def watch(name: str, path: str) -> None:
        if name == "replace":
            written.append(path)
        if name in ("truncate", "rename") and path.endswith(".log"):
            world.disk.on_call = None
            seen.append(checkpoint(world, CHECKPOINTS[0]))
            world.disk.on_call = watch

    world.disk.on_call = watch
    manager = world.manager

    async def cut_both() -> None:
        await asyncio.gather(manager.truncate(world.log(), 20), manager.truncate(other, 3))

    world.runtime.scheduler.run(cut_both())

    assert before[PARTITION] > 20
    assert {offsets[PARTITION] <= 20 and offsets[OTHER] <= 3 for offsets in seen} == {True}
    assert [path.rpartition("/")[2] for path in written].count(CHECKPOINTS[0]) == 1
    assert (world.log().log_end_offset, other.log_end_offset) == (20, 3)


def cut(world: LogWorld, offset: int = 20) -> None:
    world.runtime.scheduler.run(world.manager.truncate(world.log(), offset))


def start_anew(world: LogWorld) -> None:
    world.runtime.scheduler.run(world.manager.truncate_fully_and_start_at(world.log(), 99))


@pytest.mark.parametrize("change", [cut, start_anew])
def test_log_is_not_cut_where_its_recovery_point_cannot_be_lowered(world: LogWorld, change):
    """After a loss of power the higher one would cover what was written in its place."""
    fill(world)
    world.disk.fail("replace", f"{DIR}/recovery*", error=errno.ENOSPC)
    with pytest.raises(KafkaError) as caught:
        change(world)
    assert (caught.value.error, world.log().log_end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 60)
    assert not world.manager.dirs[0].is_offline
    change(world)

    assert world.log().log_end_offset == (20 if change is cut else 99)


@pytest.mark.parametrize("change", [cut, start_anew])
def test_log_of_a_failed_directory_is_not_cut(world: LogWorld, change):
    """Nothing is written there."""
    fill(world)
    log = world.log()
    world.manager.dirs[0].fail(OSError("gone"))
    calls: list[str] = []
    world.disk.on_call = lambda name, path: calls.append(name)
    with pytest.raises(KafkaError) as caught:
        world.runtime.scheduler.run(
            world.manager.truncate(log, 20)
            if change is cut
            else world.manager.truncate_fully_and_start_at(log, 99)
        )

    assert (caught.value.error, calls) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_log_that_is_deleted_while_its_recovery_point_is_lowered_is_not_cut(world: LogWorld):
    """It has no files any more."""
    fill(world)

    def leave(name: str, path: str) -> None:
        if name == "replace":
            world.disk.on_call = None
            delete(world)

    world.disk.on_call = leave
    with pytest.raises(KafkaError):
        cut(world)

    assert not world.manager.dirs[0].is_offline


def test_cut_at_the_end_lowers_nothing(world: LogWorld):
    """All is flushed, and stays so."""
    fill(world)
    calls: list[str] = []
    world.disk.on_call = lambda name, path: calls.append(name)
    cut(world, 60)

    assert (world.log().recovery_point, calls) == (60, [])


# -- starting and stopping


def test_stop_leaves_its_offsets_and_no_open_file(world: LogWorld):
    """Its timers end as well: nothing touches the disk afterwards."""
    world.append_many(60)
    world.log().maybe_increment_log_start_offset(5)
    world.stop()
    assert checkpoint(world, CHECKPOINTS[0]) == {PARTITION: 60}
    assert checkpoint(world, CHECKPOINTS[1]) == {PARTITION: 5}
    assert checkpoint(world, CHECKPOINTS[2]) == {PARTITION: 60}
    assert world.disk.open_files == []
    calls: list[str] = []
    world.disk.on_call = lambda name, path: calls.append(name)
    world.runtime.advance(1_000_000)

    assert calls == []


@pytest.mark.parametrize("name", CHECKPOINTS[:3])
def test_stop_without_its_offsets_is_not_a_clean_one(world: LogWorld, name):
    """The next start does not believe what it finds there."""
    world.append_many(10)
    world.log().maybe_increment_log_start_offset(5)
    world.disk.fail("replace", f"{DIR}/{name}", error=errno.ENOSPC, times=100)
    world.stop()

    assert not world.disk.exists(f"{DIR}/.kafka_cleanshutdown")


def test_start_makes_the_names_of_logs_durable_and_writes_what_it_has_found(world: LogWorld):
    """After a crash all is read once; a loss of power soon after that finds the same."""
    world.append_many(40)
    log = world.log()
    world.disk.root.entries["data"].entries["topic-0"].sync_all()
    log = world.restart()
    settle(world)
    assert checkpoint(world, CHECKPOINTS[0])[PARTITION] > 0
    world.kill()
    world.disk.crash()
    world.start()

    assert values(read_all(world.log())) == numbers(0, 40)
    assert log.log_end_offset == 40


def test_start_of_an_empty_directory_writes_a_checkpoint_at_once():
    """From now on it is lost where it is not there."""
    world = LogWorld()

    assert world.disk.exists(f"{DIR}/{CHECKPOINTS[0]}")


def test_start_reports_end_with_what_it_took(caplog):
    """In milliseconds of this start; nothing is reported after it."""
    caplog.set_level(logging.INFO)
    world = LogWorld()
    world.append_many(3)
    world.runtime.advance(50_000)
    world.restart()
    assert "1 of 1 logs are loaded, after 0 ms" in caplog.text
    caplog.clear()
    world.runtime.advance(60_000)

    assert "are loaded" not in caplog.text


@pytest.mark.parametrize(
    ("error", "is_offline"),
    [
        (KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "x"), False),
        (ValueError("x"), False),
        (OSError(errno.EIO, "x"), True),
    ],
)
def test_log_that_cannot_be_loaded_keeps_no_other_back(monkeypatch, error, is_offline):
    """It is refused until the next start; an error of the disk is one of the directory."""
    world = LogWorld()
    world.append_many(3)
    world.log(1)
    world.stop()
    load = log_loader.load_log

    def load_but_one(source):
        if source.topic_partition == PARTITION:
            raise error
        return load(source)

    monkeypatch.setattr(log_loader, "load_log", load_but_one)
    if is_offline:
        with pytest.raises(Exception, match="none can be used"):
            world.start()
        assert world.manager.dirs[0].is_offline
        return
    world.start()
    assert world.manager.get_log(OTHER) is not None
    assert world.manager.may_be_on_disk(PARTITION)
    assert not world.manager.may_be_on_disk(TopicPartition("topic", 9))
    with pytest.raises(KafkaError) as caught:
        world.manager.get_or_create_log(PARTITION, NO_UUID)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR


def test_creation_that_cannot_be_undone_is_the_end_of_its_directory(world: LogWorld):
    """Half a log would be there at the next start."""
    world.disk.fail("open", f"{DIR}/topic-0/*", error=errno.EMFILE)
    world.disk.fail("rename", f"{DIR}/topic-0", error=errno.EMFILE)
    with pytest.raises(KafkaError):
        world.log()

    assert world.manager.dirs[0].is_offline


def test_failures_of_checkpoints_are_told_by_directory_and_file():
    """A log is concerned by those of its own directory, and a cut by one file of them."""
    world = LogWorld(**{"log.dirs": "/data/a,/data/b"})
    world.append_many(3)
    one, other = world.manager.dirs
    checkpoints = world.manager.checkpoints
    world.disk.fail("replace", f"{one.path}/replication*", error=errno.ENOSPC, times=100)
    assert checkpoints.are_on_disk
    checkpoints.write_all()
    settle(world)

    assert not checkpoints.are_on_disk
    checkpoints.check(other)
    checkpoints.check(one, one.recovery_points)
    for asked in ((one,), (one, one.high_watermarks)):
        with pytest.raises(OSError, match="No space"):
            checkpoints.check(*asked)


def test_changed_configuration_reaches_the_cleaner():
    """A changed configuration reaches the cleaner, and all else that is attached."""
    pytest.importorskip("ottla.extensions.cleaner", reason="the cleaner is deleted")
    world = LogWorld(**{"log.cleaner.threads": "0"})
    world.configure(cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    world.append_many(30)
    world.log().roller.roll()
    settle(world)
    world.cleaner.clean_filthiest()
    settle(world)
    assert world.log().cleaned_offset == 0
    world.manager.update_all_configs(world.config.replace(log_cleaner_threads="1"))
    settle(world)

    assert world.log().cleaned_offset > 0
