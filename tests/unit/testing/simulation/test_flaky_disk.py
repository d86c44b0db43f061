"""A disk that fails at any call, by chance or because it was told to."""

from __future__ import annotations

import random

import pytest

from ottla.testing.simulation.flaky_disk import ERRORS, FlakyDisk
from ottla.testing.simulation.world import MAX_JOB_MS


def use(disk, rounds):
    """Write, read and rename for a while; returns the errors by number."""
    errors = []
    for number in range(rounds):
        for call in (
            lambda: disk.make_dirs("/d"),
            lambda n=number: disk.open(f"/d/{n}", create=True).pwrite(b"abc" * 40, 0),
            lambda n=number: disk.read_bytes(f"/d/{n}"),
            lambda n=number: disk.rename(f"/d/{n}", f"/d/{n}.old"),
            lambda: disk.fsync_dir("/d"),
        ):
            try:
                call()
            except FileNotFoundError:
                pass  # it could not be made
            except OSError as error:
                errors.append(error.errno)
    return errors


def test_calls_fail_at_random_with_errors_of_all_kinds():
    """About as often as was asked for; what a write has done by then, short or not, stays."""
    disk = FlakyDisk(random.Random(1))
    assert use(disk, 20) == []
    disk.fail_at_random(20)

    errors = use(disk, 400)

    assert 50 < len(errors) < 200
    assert set(errors) <= {number for numbers in ERRORS.values() for number in numbers}
    assert len(set(errors)) > 2


def test_mended_disk_fails_no_more():
    """It has room, and is quick again."""
    disk = FlakyDisk(random.Random(1))
    disk.fail_at_random(2)
    disk.refuse("rename", 5)
    disk.slow_ms = 8_000
    disk.fill()

    disk.mend()

    assert use(disk, 50) == []
    assert max(disk.job_ms(random.Random(seed)) for seed in range(50)) <= MAX_JOB_MS


def test_refused_calls_are_counted():
    """So many calls of one kind fail, and those of other kinds do not."""
    disk = FlakyDisk(random.Random(1))
    disk.make_dirs("/d")
    disk.refuse("fsync_dir", 2)
    for _ in range(2):
        with pytest.raises(OSError, match="/d"):
            disk.fsync_dir("/d")

    disk.fsync_dir("/d")


def test_slow_disk_takes_its_time():
    """Jobs in the background take seconds, each another time."""
    disk = FlakyDisk(random.Random(1))
    disk.slow_ms = 8_000

    times = [disk.job_ms(random.Random(seed)) for seed in range(20)]

    assert min(times) >= 2_000
    assert len(set(times)) > 10
