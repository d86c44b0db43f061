"""A crash between any two calls to the disk: the next start finds what it can go on from."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from log_world import LogWorld, numbers, read_all, values

from ottla.errors import KafkaError
from ottla.log.log_truncation import truncate_to
from ottla.runtime.scheduler import at_once

OPERATIONS = ["open", "pwrite", "truncate", "rename", "unlink", "replace", "fsync", "fsync_dir"]


def live(world: LogWorld, progress: list[int]) -> None:
    """A life with appends, rolls, flushes, retention and a clean stop; notes what was promised."""
    for number in range(40):
        world.append(b"%d" % number, epoch=number // 15)
        progress[0] = number + 1
        if number % 10 == 9:
            world.log().flush()
            world.runtime.scheduler.run_ready()
            world.manager.checkpoints.write_recovery_points()
            world.runtime.scheduler.run_ready()
            progress[1] = world.log().recovery_point
    world.log().maybe_increment_log_start_offset(15)
    at_once(world.manager.delete_old_segments())
    world.manager.checkpoints.write_log_start_offsets()
    world.runtime.advance(2000)
    world.stop()


def live_until_the_disk_dies(operation: str, skip: int) -> tuple[LogWorld, list[int], bool]:
    """The acknowledged and the flushed end when the disk stopped working; whether it did."""
    world = LogWorld()
    world.log().flush()
    progress = [0, 0]
    faults = [
        world.disk.fail(name, times=1_000_000, skip=skip if name == operation else 1_000_000)
        for name in OPERATIONS
    ]
    try:
        live(world, progress)
    except KafkaError:
        pass  # an append was refused: the disk is dead
    died = any(fault.times < 1_000_000 for fault in faults)
    world.disk.faults.clear()
    return world, progress, died


@pytest.mark.parametrize("operation", OPERATIONS)
def test_log_survives_the_end_of_the_process_at_any_call(operation):
    """Everything acknowledged is there, in order, and more can be appended."""
    skip, died = 0, True
    while died:
        world, (acknowledged, _), died = live_until_the_disk_dies(operation, skip)
        log = world.restart()
        assert log.log_end_offset >= acknowledged
        assert values(read_all(log)) == numbers(log.log_start_offset, log.log_end_offset)
        world.append_many(3)
        skip += 1

    assert skip > 1


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("operation", ["rename", "unlink", "truncate", "pwrite"])
def test_truncation_that_is_cut_short_leaves_no_hole(operation, flushed):
    """The log ends between the old end and the new one."""
    for skip in range(30):
        world = LogWorld()
        world.append_many(60)
        if flushed:
            world.log().flush()
            world.runtime.scheduler.run_ready()
            world.manager.checkpoints.write_recovery_points()
            world.runtime.scheduler.run_ready()
        fault = world.disk.fail(operation, times=1000, skip=skip)
        try:
            truncate_to(world.log(), 20)
        except KafkaError:
            assert fault.times < 1000
        world.disk.faults.clear()
        log = world.restart()
        assert log.log_end_offset >= 20
        assert values(read_all(log)) == numbers(0, log.log_end_offset)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("offset", [0, 20])
def test_cut_that_loses_its_power_leaves_no_hole(operation, offset):
    """Also one at the log's start, which has the first segment stand for all of them."""
    skip, died = 0, True
    chance = random.Random(operation)
    while died:
        world = LogWorld()
        world.append_many(60)
        world.log().flush()
        world.runtime.scheduler.run_ready()
        world.manager.checkpoints.write_recovery_points()
        world.disk.sync_all()
        fault = world.disk.fail(operation, times=1000, skip=skip)
        with suppress(KafkaError):
            truncate_to(world.log(), offset)
        died = fault.times < 1000
        world.disk.faults.clear()
        world.disk.crash(chance)
        log = world.restart()
        assert log.log_end_offset >= offset
        assert values(read_all(log)) == numbers(0, log.log_end_offset)
        skip += 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_log_survives_a_power_loss_at_any_call(operation):
    """Everything flushed is there; what lies behind may be torn anywhere."""
    skip, died = 0, True
    chance = random.Random(operation)
    while died:
        world, (_, flushed), died = live_until_the_disk_dies(operation, skip)
        world.disk.crash(chance if skip % 2 else None)
        log = world.restart()
        assert log.log_end_offset >= flushed
        assert values(read_all(log)) == numbers(log.log_start_offset, log.log_end_offset)
        world.append_many(3)
        skip += 1

    assert skip > 1
