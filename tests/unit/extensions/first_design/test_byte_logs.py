"""All logs of the first design of a broker: partitions, flushes, retention, full and dead disks."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from byte_logs_world import PAGES, ROOT, ByteLogsWorld, entry

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.extensions.first_design import byte_logs
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

OTHER = TopicPartition("pages", 1)


def test_partitions_are_made_by_the_first_message_for_them():
    """Each has its directory; a partition that a topic has not got is the wrong one."""
    world = ByteLogsWorld()
    made = []
    world.logs.on_created = made.append
    world.append(b"a")
    world.append(b"b", to=OTHER)

    assert world.disk.list_dir(ROOT)[-2:] == ["pages_0", "pages_1"]
    assert made == ["pages"]
    assert world.logs.partition_count("pages") == 2
    for partition in (-1, 2, 2**31 - 1):
        with pytest.raises(KafkaError) as refused:
            world.logs.check("pages", partition)
        assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic in ("", "..", "a/b", "x" * 250):
        with pytest.raises(KafkaError):
            world.logs.check(topic, 0)


def test_topic_keeps_its_partitions_when_the_setting_has_fewer():
    """They hold messages; a topic of later has as many as the setting says."""
    world = ByteLogsWorld()
    world.append(b"b", to=OTHER)
    world = world.again(num_partitions=1)

    assert world.read(of=OTHER) == entry(b"b")
    assert world.logs.check(*OTHER) == OTHER
    assert world.logs.partition_count("new") == 1


def test_name_too_long_for_a_directory_is_refused_and_the_disk_goes_on():
    """249 characters are a topic's name, and too many with a number behind them only sometimes."""
    world = ByteLogsWorld(num_partitions=200_000)
    name = "x" * 249
    world.append(b"a", to=TopicPartition(name, 10_000))

    with pytest.raises(KafkaError, match="255 bytes"):
        world.append(b"a", to=TopicPartition(name, 100_000))
    assert not world.logs.log_dir.is_offline


def test_partitions_have_a_limit(monkeypatch):
    """Anybody makes them, and each keeps a file open."""
    monkeypatch.setattr(byte_logs, "MAX_LOGS", 1)
    world = ByteLogsWorld()
    world.append(b"a")

    with pytest.raises(KafkaError, match="1 partitions of the first design"):
        world.append(b"b", to=OTHER)
    world.append(b"c")


def test_log_is_forced_to_disk_after_so_many_messages():
    """The third message makes readers see all of them."""
    world = ByteLogsWorld(first_design_flush_interval_messages=3)
    world.append(b"a", b"b")
    assert world.read() == b""
    world.append(b"c")

    assert world.read() == entry(b"a") + entry(b"b") + entry(b"c")


def test_log_is_forced_to_disk_after_an_interval():
    """However few messages there are."""
    world = ByteLogsWorld(first_design_flush_interval_messages=1000)
    told = []
    world.logs.on_flushed.append(told.append)
    world.append(b"a")
    world.runtime.advance(999)
    assert world.read() == b""
    world.runtime.advance(1)

    assert world.read() == entry(b"a")
    assert told == [world.logs.logs[PAGES]]


def test_power_loss_costs_no_message_that_a_reader_has_seen():
    """A power loss costs no message a reader has seen; the next gets the first lost id."""
    world = ByteLogsWorld(first_design_flush_interval_messages=2)
    world.append(b"a", b"b")
    world.append(b"c")
    world.disk.crash()
    world = world.again(killed=True)

    assert world.read() == entry(b"a") + entry(b"b")
    world.append(b"d")
    assert world.read(20) == entry(b"d")


def test_restart_after_a_clean_stop_reads_no_messages():
    """The mark of a clean stop says that all is on disk; after a kill it is not there."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.stop()
    world.disk.fail("pread", times=1_000)
    ByteLogsWorld(mock_runtime(disk=world.disk))
    world.disk.faults.clear()

    assert not world.disk.exists(f"{ROOT}/.kafka_cleanshutdown")
    assert world.again(killed=True).read() == entry(b"a")


def test_nothing_is_appended_behind_the_mark_of_a_clean_stop():
    """What comes after it might be torn by a crash, and would not be looked at."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.run(world.logs.stop())
    for call in (lambda: world.append(b"b"), lambda: world.logs.append(PAGES, entry(b"b"), 1)):
        with pytest.raises(KafkaError, match="the broker stops"):
            call()

    assert world.logs.logs[PAGES].end == 10


def test_recovery_begins_at_the_checkpoint():
    """What was on disk when it was written is not read again, even if it is damaged by now."""
    world = ByteLogsWorld(log_flush_offset_checkpoint_interval_ms=5000, log_segment_bytes=14)
    world.append(b"a")
    world.append(b"b")
    world.runtime.advance(5000)
    world.append(b"c")
    path = f"{ROOT}/pages_0/00000000000.kafka"
    world.disk.replace(path, b"\xff" * 20)

    assert world.again(killed=True).read(20) == entry(b"c")


def test_follower_of_segments_that_are_deleted_is_out_of_range_and_begins_again_by_choice():
    """It may go on at the smallest id, or at the largest; an answer under way still reads."""
    world = ByteLogsWorld(
        log_segment_bytes=14, log_retention_bytes=20, log_segment_delete_delay_ms=60_000
    )
    world.append(b"a")
    region = world.logs.read(PAGES, 0, 100)
    for text in (b"b", b"c", b"d", b"e", b"f"):
        world.append(text)
    world.retain()

    with pytest.raises(KafkaError) as refused:
        world.read(10)
    assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert region.read() == entry(b"a")
    assert world.logs.offsets_before(PAGES, -2, 1) == [40]
    assert world.logs.offsets_before(PAGES, -1, 1) == [60]
    assert world.read_all() == entry(b"e") + entry(b"f")
    assert world.disk.list_dir(f"{ROOT}/pages_0") == ["00000000040.kafka"]
    world.runtime.advance(60_000)
    with pytest.raises(OSError, match="closed"):
        region.read()


def test_log_whose_messages_all_were_too_old_goes_on_at_the_next_id():
    """A new file is on disk before the last one goes: ids do not begin again."""
    world = ByteLogsWorld(log_retention_ms=1000)
    world.append(b"a")
    world.runtime.advance(2000)
    world.disk.fail("unlink")
    world.retain()
    world.disk.crash()
    world = world.again(killed=True, log_retention_ms=1000)
    assert world.logs.logs[PAGES].end == 10
    world.runtime.advance(2000)
    world.retain()
    world.append(b"b")
    world.disk.crash()
    world = world.again(killed=True)

    assert world.read(10) == entry(b"b")


def test_full_disk_refuses_messages_and_goes_on_when_it_has_room():
    """Nothing of them is in the log, and the directory stays in service."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.disk.fill(3)
    for to in (PAGES, OTHER):
        with pytest.raises(KafkaError) as refused:
            world.append(b"b", to=to)
        assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.logs.log_dir.is_offline
    assert world.read_all() == entry(b"a")
    world.disk.capacity_in_bytes = None
    world.append(b"c")

    assert world.read_all() == entry(b"a") + entry(b"c")
    assert world.again(killed=True).read_all() == entry(b"a") + entry(b"c")


@pytest.mark.parametrize("operation", ["open", "pwrite", "fsync", "fsync_dir"])
def test_disk_that_fails_takes_the_directory_offline(operation):
    """No message counts any longer, no reader sees one that is not on disk."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.disk.fail(operation)
    is_of_new_file = operation in ("open", "fsync_dir")
    with suppress(KafkaError):
        world.append(b"b", to=TopicPartition("new", 0) if is_of_new_file else PAGES)

    assert world.logs.log_dir.is_offline
    assert world.read() == entry(b"a")
    with pytest.raises(KafkaError) as refused:
        world.logs.check("pages", 0)
    assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    world.stop()
    assert not world.disk.exists(f"{ROOT}/.kafka_cleanshutdown")


@pytest.mark.parametrize("operation", ["fsync", "fsync_dir"])
def test_flush_that_could_not_be_tried_is_tried_again(operation):
    """Too many files are open: nothing was dropped by the kernel."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.logs.logs[PAGES].close_unused(2**62)
    world.disk.fail("open" if operation == "fsync" else "fsync_dir", error=errno.EMFILE)
    with suppress(KafkaError):
        world.append(b"b", to=PAGES if operation == "fsync" else OTHER)
    world.runtime.advance(1000)

    assert not world.logs.log_dir.is_offline
    assert all(log.flushed == log.end for log in world.logs.logs.values())
    assert not any(log.has_new_names for log in world.logs.logs.values())


@pytest.mark.parametrize(("error", "is_offline"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_checkpoint_that_can_not_be_written(error, is_offline):
    """A full disk may have room again; what fails otherwise is not trusted any longer."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.disk.fail("replace", f"{ROOT}/recovery-point*", error=error)
    world.logs.write_checkpoint()
    world.runtime.scheduler.run_ready()

    assert world.logs.log_dir.is_offline is is_offline


def test_one_checkpoint_is_written_at_a_time(monkeypatch):
    """Of two that replace a file at once one would fail, which a disk must not be blamed for."""
    world = ByteLogsWorld()
    world.append(b"a")
    written = []
    monkeypatch.setattr(world.logs, "_write", lambda points, copied: written.append(points))
    for count in (1, 2):
        world.logs.write_checkpoint()
        world.logs.write_checkpoint()
        world.runtime.scheduler.run_ready()
        assert len(written) == count
    world.logs.write_checkpoint()
    world.stop()
    assert len(written) == 4


def test_directory_that_can_not_be_read_is_offline_from_the_start():
    """The broker serves today's topics."""
    world = ByteLogsWorld()
    world.append(b"a")
    world.stop()
    world.disk.fail("list_dir", ROOT)
    world = ByteLogsWorld(mock_runtime(disk=world.disk))

    assert world.logs.log_dir.is_offline


def test_directory_of_another_process_is_refused():
    """Two would write over each other."""
    world = ByteLogsWorld()
    with pytest.raises(ConfigError, match="locked"):
        ByteLogsWorld(mock_runtime(disk=world.disk))
