"""The logs of the first design, written, flushed, rolled and shortened, and what a crash leaves."""

from __future__ import annotations

import random

from byte_logs_world import PAGES, ByteLogsWorld, entry
from crash_notes import Notes, at_now, recording_runtime

from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.crash_states import CrashPoint, Fate

PARTITIONS = (PAGES, TopicPartition("pages", 1))
SETTINGS = {
    "first_design_flush_interval_messages": 4,
    "log_segment_bytes": 90,
    "log_retention_bytes": 200,
}
AT_ONCE = SETTINGS | {"first_design_flush_interval_messages": 1}
Ends = dict[TopicPartition, int]
Promise = tuple[Ends, Ends]
"""By partition: up to where it was written, and up to where it was flushed."""


class ByteLogStory:
    """Two partitions; the promise is that no id that a reader may have seen is another message."""

    def __init__(self, seed: int, steps: int) -> None:
        chance = random.Random(seed)
        self.written: dict[TopicPartition, bytes] = dict.fromkeys(PARTITIONS, b"")
        self.notes: Notes[Promise] = Notes()
        self.world = ByteLogsWorld(recording_runtime(), **SETTINGS)
        self.disk = self.world.disk
        self.notes.add(0, ({}, {}))
        self.starts: Notes[Ends] = Notes()
        """How far retention may have come, from the beginning of a step on."""
        for step in range(steps):
            began = len(self.trace)
            partition = chance.choice(PARTITIONS)
            texts = [
                b"%d" % step + b"." * chance.randrange(30) for _ in range(chance.choice([1, 3]))
            ]
            self.written[partition] += b"".join(map(entry, texts))
            self.world.append(*texts, to=partition)
            if chance.random() < 0.1:
                self.world.logs.flush_due()
                self.world.runtime.scheduler.run_ready()
            if chance.random() < 0.05:
                self.world.logs.write_checkpoint()
                self.world.runtime.scheduler.run_ready()
            if chance.random() < 0.1:
                self.world.retain()
            self.note(began)

    @property
    def trace(self):
        return self.disk.trace

    def note(self, began: int) -> None:
        logs = self.world.logs.logs
        ends = {partition: log.end for partition, log in logs.items()}
        flushed = {partition: log.flushed for partition, log in logs.items()}
        self.notes.add(len(self.trace), (ends, flushed))
        self.starts.add(began, {partition: log.start for partition, log in logs.items()})

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """All that was promised is at its id, and the next message is readable behind it."""
        world = ByteLogsWorld(at_now(mock_runtime(disk=disk)), **AT_ONCE)
        written, flushed = self.notes.at(point.length)
        needed = written if point.fate is Fate.KEPT else flushed
        for partition in PARTITIONS:
            log = world.logs.logs.get(partition)
            end = 0 if log is None else log.end
            assert end >= needed.get(partition, 0), f"{partition} ends at {end}"
            if log is not None:
                found = world.read_all(partition)
                assert found == self.written[partition][log.start : log.end]
                assert log.start + len(found) == log.end
                assert log.start <= self.starts.at(point.length).get(partition, 0)
        for partition in PARTITIONS:
            world.append(b"more", to=partition)
            end = world.logs.logs[partition].end
            world.retain()
            assert world.read(end - len(entry(b"more")), partition) == entry(b"more")
        assert not world.logs.log_dir.is_offline
        seen = {each: world.read_all(each) for each in PARTITIONS}
        world.disk.crash()
        world = world.again(killed=True, **AT_ONCE)
        assert all(world.read_all(each).endswith(seen[each]) for each in PARTITIONS)
        world.stop()
