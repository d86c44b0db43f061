"""A log that moves between two directories while it is written, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from crash_notes import OneLogStory, at_now, recording_runtime
from log_story import check_producers
from log_world import PARTITION, LogWorld, read_all

from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.crash_states import CrashPoint

A, B = "/data/a", "/data/b"
DIRS = {"log.dirs": f"{A},{B}"}


class MoveStory(OneLogStory):
    """One partition that moves to and fro, appended to in between, flushed, rolled and cut once."""

    def __init__(self) -> None:
        super().__init__(LogWorld(recording_runtime(), **DIRS))
        self.contents: list[set[bytes]] = []
        self.count = 0
        small = {"PIECE_BYTES": 400, "LAST_PIECE_BYTES": 250}
        with patch.multiple("ottla.extensions.moves.replica_move", **small):
            for turn, target in enumerate((B, A, B)):
                self.append(8)
                self.world.log().flush()
                self.world.moves.alter(PARTITION, target)
                self.world.runtime.scheduler.run(self.move(turn, target))
                self.world.runtime.advance(3000)
                self.note()

    def append(self, count: int) -> None:
        for _ in range(count):
            offset = self.world.log().log_end_offset
            self.count += 1
            text = b"%d %d" % (offset, self.count) + b"." * 60
            header = {"producer_id": 1, "producer_epoch": 0, "base_sequence": self.sequence()}
            if offset == len(self.contents):
                self.contents.append(set())
            self.contents[offset].add(text)
            self.world.append(text, **header)
            self.note()

    def sequence(self) -> int:
        state = self.world.log().producer_state_manager.producers.get(1)
        return 0 if state is None else state.last_sequence + 1

    async def move(self, turn: int, target: str) -> None:
        """Step by step, with appends all the way, flushes now and then, and in turn 1 a cut."""
        step = 0
        while self.world.moves._tasks:
            step += 1
            self.append(step % 3 == 0)
            if step % 7 == 0:
                self.world.log().flush()
            if turn == 1 and step == 12:
                await self.cut()
            await asyncio.sleep(0)
            self.note()
        assert self.world.log().log_dir.path == target

    async def cut(self) -> None:
        log = self.world.log()
        offset = log.log_end_offset - 3
        self.notes.add(len(self.disk.trace), (offset, min(offset, log.recovery_point)))
        await self.world.manager.truncate(log, offset)
        self.note()

    def live_without(self, disk: MemoryDisk, path: str, point: CrashPoint) -> None:
        """A start with one directory alone serves a log that has all that was promised, or none."""
        disk.fail("lock", f"{path}/*")
        world = LogWorld(at_now(mock_runtime(disk=disk)), **DIRS)
        log = world.manager.get_log(PARTITION)
        if log is not None:
            self.check_end(log, point)
        world.runtime.advance(100_000)
        world.stop()

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """There is one log, with all that was promised; it can be moved and written to."""
        away = (None, A, B)[point.length % 3]
        if away is not None:
            self.live_without(disk, away, point)
        world = LogWorld(at_now(mock_runtime(disk=disk)), **DIRS)
        log = world.log()
        self.check_end(log, point)
        for record in read_all(log):
            assert record.value in self.contents[record.offset]
        check_producers(log)
        world.runtime.advance(100_000)
        found = [name for path in (A, B) for name in disk.list_dir(path) if PARTITION.topic in name]
        assert found == [str(PARTITION)]
        world.append(b"new")
        end_offset = log.log_end_offset
        world.moves.alter(PARTITION, B if log.log_dir.path == A else A)
        world.runtime.advance(100_000)
        world.stop()
        world.start()
        assert world.log().log_end_offset == end_offset
        world.stop()
