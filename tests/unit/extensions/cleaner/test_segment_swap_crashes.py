"""The end of the process, or of the power, between any two calls to the disk."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from breadth import some
from cleaner_world import CleanerWorld

from ottla.errors import KafkaError
from ottla.testing import MemoryDisk, mock_runtime

OPERATIONS = ["open", "pwrite", "truncate", "rename", "unlink", "replace", "fsync", "fsync_dir"]
KEYS = 4
FOREVER = 1_000_000

Entry = tuple[bytes, bytes | None]


@dataclass
class History:
    """What was appended, by offset, and how far it was known to be on disk."""

    entries: list[Entry] = field(default_factory=list)
    flushed: int = 0

    def state(self, end: int) -> dict[bytes, bytes]:
        """The last value of each key before an offset, without the deleted ones."""
        last = dict(self.entries[:end])
        return {key: value for key, value in last.items() if value is not None}


def live(compacted: CleanerWorld, history: History) -> None:
    """Three times: write and overwrite keys, delete some, compact."""
    for turn in range(3):
        for number in range(14):
            key = b"%d" % (number * (turn + 1) % KEYS)
            value = None if number % 7 == 5 else b"%d-%d" % (turn, number)
            compacted.put((key, value))
            history.entries.append((key, value))
        compacted.roll()
        history.flushed = compacted.log().recovery_point
        compacted.clean()
        compacted.manager.checkpoints.write_recovery_points()
        compacted.runtime.advance(6000)


def live_until_the_disk_dies(operation: str, skip: int) -> tuple[CleanerWorld, History, bool]:
    """A compacted whose disk has stopped working at a call; whether it came so far."""
    compacted = CleanerWorld()
    compacted.log().flush()
    compacted.runtime.scheduler.run_ready()
    history = History()
    faults = [
        compacted.disk.fail(name, times=FOREVER, skip=skip if name == operation else FOREVER)
        for name in OPERATIONS
    ]
    faults[OPERATIONS.index(operation)].times = FOREVER
    try:
        live(compacted, history)
    except KafkaError:
        pass  # an append or a roll was refused: the disk is dead
    died = any(fault.times < FOREVER for fault in faults)
    compacted.runtime.advance(10_000)
    compacted.disk.faults.clear()
    return compacted, history, died


class Death(NamedTuple):
    """What a process has left behind whose disk stopped working at some call."""

    left: bytes
    """The disk and the history, pickled: equal for calls that leave the same."""

    now_ms: int

    def afterlife(self) -> tuple[MemoryDisk, History]:
        """For a test to change."""
        return pickle.loads(self.left)

    def restart(self, disk: MemoryDisk) -> CleanerWorld:
        """The next process, on the disk as it is now."""
        disk.locked.clear()
        runtime = mock_runtime(disk=disk)
        runtime.clock.advance(self.now_ms - runtime.clock.now_ms())
        return CleanerWorld(runtime=runtime)


@pytest.fixture(scope="module", params=some(OPERATIONS))
def deaths(request) -> list[Death]:
    """One at each call of an operation, and the life in which it never failed."""
    found, died = [], True
    while died:
        compacted, history, died = live_until_the_disk_dies(request.param, len(found))
        left = pickle.dumps((compacted.disk, history))
        found.append(Death(left, compacted.runtime.clock.now_ms()))
    assert len(found) > 1
    return found


@pytest.fixture(scope="module")
def survived() -> set[Death]:
    """Deaths that a process has got over: a third of all calls leave what another has left."""
    return set()


def check(compacted: CleanerWorld, history: History) -> None:
    """Every record is at its old place, and together they are the last values."""
    log = compacted.log()
    log.update_high_watermark(log.log_end_offset)
    pairs = compacted.pairs()
    assert not compacted.leftovers()
    assert [(offset, *history.entries[offset]) for offset, _, _ in pairs] == pairs
    state = {key: value for _, key, value in pairs}
    live_state = {key: value for key, value in state.items() if value is not None}
    assert live_state == history.state(log.log_end_offset)


def goes_on(compacted: CleanerWorld, history: History) -> None:
    """More can be appended and compacted."""
    for number in range(6):
        entry = (b"%d" % (number % 2), b"new-%d" % number)
        compacted.put(entry)
        del history.entries[compacted.log().log_end_offset - 1 :]
        history.entries.append(entry)
    compacted.roll_and_clean()
    assert compacted.log().cleaned_offset == compacted.log().log_end_offset
    check(compacted, history)


def test_compaction_survives_the_end_of_the_process_at_any_call(deaths, survived):
    """Nothing is lost or comes back, no offset changes, and the next round does the rest."""
    for death in set(some(deaths)) - survived:
        disk, history = death.afterlife()
        compacted = death.restart(disk)
        assert compacted.log().log_end_offset >= len(history.entries)
        check(compacted, history)
        goes_on(compacted, history)
        survived.add(death)


def test_compaction_survives_a_power_loss_at_any_call(deaths, request):
    """What was flushed is there, as a value or by a later one of its key that is there as well."""
    chance = random.Random(request.node.callspec.params["deaths"])
    for number, death in some(enumerate(deaths)):
        disk, history = death.afterlife()
        disk.crash(chance if number % 2 else None)
        compacted = death.restart(disk)
        assert compacted.log().log_end_offset >= history.flushed
        check(compacted, history)
        goes_on(compacted, history)


@pytest.mark.parametrize("contents", [None, b"", b"nonsense"], ids=["missing", "empty", "damaged"])
def test_compacted_log_without_checkpoints_keeps_what_lies_behind_its_gaps(contents, caplog):
    """It was cut at the first offset that compaction had removed, and with it the whole log."""
    compacted = CleanerWorld()
    for number in range(40):
        compacted.put((b"%d" % (number % 3), b"%d" % number))
    compacted.roll_and_clean()
    for number in range(40, 60):
        compacted.put((b"%d" % (number % 3), b"%d" % number))
    compacted.roll_and_clean()
    before, end = compacted.pairs(), compacted.log().log_end_offset
    assert len(before) < end
    compacted.kill()
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        compacted.disk.unlink(f"/data/{name}")
        if contents is not None:
            compacted.overwrite(f"/data/{name}", contents)
    compacted.start()

    assert (compacted.pairs(), compacted.log().log_end_offset) == (before, end)
    assert "for compacted, as there is no recovery point" in caplog.text
    compacted.put((b"0", b"new"))
    compacted.roll_and_clean()
    assert compacted.restart().log_end_offset == end + 1
