"""The same on the file system of the machine, where files have descriptors and locks are real."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

import pytest
from log_world import NOW_MS, LogWorld, new_batch, numbers, read_all, values

from ottla.errors import ConfigError
from ottla.log.log_manager import LogManager
from ottla.log.log_retention import delete_old_segments
from ottla.record.memory_records import batches
from ottla.record.record_batch import assign_offset
from ottla.runtime import LocalDisk, Runtime
from ottla.runtime.scheduler import at_once
from ottla.testing import mock_runtime


def real_world(tmp_path: Path) -> LogWorld:
    """Virtual time, and the disk of the machine."""
    mock = mock_runtime()
    mock.clock.advance(NOW_MS - mock.clock.now_ms())
    parts = {part: getattr(mock, part) for part in Runtime._fields}
    return LogWorld(Runtime(**{**parts, "disk": LocalDisk()}), str(tmp_path / "data"))


def release(world: LogWorld) -> None:
    """What the end of a process does: its descriptors are closed."""
    for log in world.manager.all_logs():
        log.close()
    for log_dir in world.manager.dirs:
        log_dir.release()


def test_region_can_be_sent_from_its_descriptor(tmp_path: Path):
    """As os.sendfile does: position and size are those of whole batches."""
    world = real_world(tmp_path)
    world.append_many(10)
    region = world.log().read(4, 200, max_offset=10, min_one_message=True).records
    data = os.pread(region.file.fileno(), region.size, region.position)

    assert [batch.base_offset for batch in batches(data)] == [4, 5]
    release(world)


def test_memory_does_not_grow_with_the_data(tmp_path: Path):
    """Records are in the page cache and nowhere else; of closed segments nothing is kept."""
    world = real_world(tmp_path)
    world.configure(segment_bytes=4_000_000, index_interval_bytes=4096, retention_ms=-1)
    log = world.log()
    data = memoryview(bytearray(new_batch(b"x" * 100_000)))

    def write_and_read(count: int) -> None:
        for _ in range(count):
            assign_offset(data, 0, 0, -1)
            log.append_as_leader(data, 0, now_ms=NOW_MS)
            log.update_high_watermark(log.log_end_offset)
        for offset in range(0, log.log_end_offset, 7):
            log.read(offset, 300_000, max_offset=log.log_end_offset, min_one_message=True)
        world.runtime.scheduler.run_ready()
        at_once(world.manager.delete_old_segments())

    write_and_read(100)
    tracemalloc.start()
    try:
        write_and_read(300)
        gc.collect()  # what is garbage already does not count
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(log.segments) > 9
    assert grown < 1_000_000  # and the files have 30 MB more; other threads count as well
    release(world)


@pytest.mark.parametrize("cut", [0, 1, 69, 70, 71, 100])
def test_killed_broker_comes_back_with_whole_batches(tmp_path: Path, cut):
    """Whatever is cut off the newest segment."""
    world = real_world(tmp_path)
    world.append_many(40)
    size = len(new_batch(b"39"))
    path = Path(world.active_path())
    release(world)
    os.truncate(path, path.stat().st_size - cut)
    world.start()

    left = 40 - -(-cut // size)
    assert values(read_all(world.log())) == numbers(0, left)
    world.append_many(5)
    world.stop()
    world.start()
    assert values(read_all(world.log())) == numbers(0, left + 5)
    release(world)


def test_deleted_files_and_directories_are_gone(tmp_path: Path):
    """Segments after their delay, a partition after its own."""
    world = real_world(tmp_path)
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(60)
    delete_old_segments(log, NOW_MS)
    world.runtime.scheduler.advance(1000)
    logs = [name for name in os.listdir(log.dir) if name.endswith((".log", ".deleted"))]
    assert logs == [f"{60:020d}.log"]

    world.manager.delete_log(log.topic_partition)
    world.runtime.scheduler.advance(1000)
    assert not [name for name in os.listdir(tmp_path / "data") if name.startswith("topic")]
    release(world)


def test_directory_is_locked_for_a_second_broker(tmp_path: Path):
    """By flock, which ends with the process."""
    world = real_world(tmp_path)
    second = LogManager(world.runtime, world.config, lambda _: world.topic_config())
    with pytest.raises(ConfigError, match="another process"):
        second.acquire()

    release(world)
    second.acquire()
    second.dirs[0].release()
