"""Lives of a broker's storage on a recording disk, and what each promised at every moment.

A story knows after each step how long the trace was and what held from then on; a step that takes
something back (a truncation, a deletion) says so before it begins. `check` starts the real code on
a disk as a crash has left it and holds it against the promise of that moment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from unittest.mock import patch

from byte_log_story import ByteLogStory
from cleaner_world import CleanerWorld
from crash_notes import Notes, OneLogStory, at_now, recording_runtime
from log_story import LogStory, check_producers
from move_story import MoveStory
from transaction_story import TransactionStory

from ottla.errors import KafkaError
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import RegistryError
from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.crash_states import (
    CrashPoint,
    Fate,
    RecordingDisk,
    crash_points,
    crash_state,
    fingerprint,
)


class CompactionStory(OneLogStory):
    """Keys that are overwritten and deleted by idempotent producers, compacted three times."""

    def __init__(self) -> None:
        super().__init__(CleanerWorld(runtime=recording_runtime()))
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.world.log().flush()
        self.world.runtime.scheduler.run_ready()
        for turn in range(3):
            self.live(turn)

    def live(self, turn: int) -> None:
        for number in range(14):
            key = b"%d" % (number * (turn + 1) % 4)
            value = None if number % 7 == 5 else b"%d-%d" % (turn, number)
            sequence = turn * 7 + number // 2
            header = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": sequence}
            self.entries.append((key, value))
            self.world.put((key, value), **header)
            self.note()
        self.world.roll()
        self.note()
        self.world.clean()
        self.note()
        self.world.manager.checkpoints.write_recovery_points()
        self.world.runtime.advance(6000)
        self.note()

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """The last value of each key is there, and each record at its place; then compact."""
        world = CleanerWorld(runtime=at_now(mock_runtime(disk=disk)))
        log = world.log()
        self.check_end(log, point)
        log.update_high_watermark(log.log_end_offset)
        self.check_contents(world)
        world.put((b"new", b"value"))
        world.roll_and_clean()
        assert log.cleaned_offset == log.log_end_offset
        assert world.pairs().pop()[1:] == (b"new", b"value")
        world.stop()

    def check_contents(self, world: CleanerWorld) -> None:
        assert not world.leftovers()
        pairs = world.pairs()
        assert pairs == [(offset, *self.entries[offset]) for offset, _, _ in pairs]
        live = {key: value for _, key, value in pairs if value is not None}
        for _, key, value in pairs:
            if value is None:
                live.pop(key, None)
            else:
                live[key] = value
        last = dict(self.entries[: world.log().log_end_offset])
        assert live == {key: value for key, value in last.items() if value is not None}
        for producer_id, state in world.log().producer_state_manager.producers.items():
            count = (world.log().log_end_offset - producer_id + 1) // 2
            assert state.last_sequence == count - 1
        check_producers(world.log())


PATHS = ["/a", "/b", "/a/c", "/b/d"]
Tree = dict[str, bytes]


class RegistryStory:
    """Nodes of the embedded registry made, set and deleted, its journal folded into snapshots."""

    def __init__(self, seed: int, steps: int) -> None:
        chance = random.Random(seed)
        self.runtime = recording_runtime()
        self.disk: RecordingDisk = self.runtime.disk
        self.notes: Notes[list[Tree]] = Notes()
        self.notes.add(0, [{}])
        tree: Tree = {}
        with patch("ottla.registry.journal.COMPACTION_BYTES", 600):
            registry = EmbeddedRegistry(self.runtime, "/data/registry")
            self.runtime.scheduler.run(registry.start())
            for number in range(steps):
                path = chance.choice(PATHS)
                data = b"%d" % number + b"." * chance.choice([0, 200])
                verb = chance.choice(["create", "set", "set", "delete"])
                changed = {key: value for key, value in tree.items() if key != path}
                if verb != "delete":
                    changed[path] = data
                self.notes.add(len(self.trace), [tree, changed])
                arguments = (path,) if verb == "delete" else (path, data)
                try:
                    self.runtime.scheduler.run(getattr(registry, verb)(*arguments))
                except RegistryError:
                    continue
                tree = changed
                self.notes.add(len(self.trace), [tree])

    @property
    def trace(self):
        return self.disk.trace

    def check(self, disk: MemoryDisk, point: CrashPoint) -> None:
        """All acknowledged writes are there, and at most the one that was under way."""
        runtime = at_now(mock_runtime(disk=disk))
        registry = EmbeddedRegistry(runtime, "/data/registry")
        run = runtime.scheduler.run
        run(registry.start())
        found = {
            path: run(registry.get(path))[0]
            for path in PATHS
            if run(registry.exists(path)) is not None
        }
        assert found in self.notes.at(point.length)
        run(registry.create("/new", b"more"))
        run(registry.close())
        registry = EmbeddedRegistry(runtime, "/data/registry")
        run(registry.start())
        assert run(registry.get("/new"))[0] == b"more"
        run(registry.close())


Story = LogStory | CompactionStory | TransactionStory | MoveStory | RegistryStory | ByteLogStory


def stories(seeds: range) -> dict[str, Story]:
    """One life for each seed, and one each of the other kinds."""
    found: dict[str, Story] = {f"log {seed}": LogStory(seed, steps=80) for seed in seeds}
    found |= {"compaction": CompactionStory(), "transactions": TransactionStory()}
    found |= {"first design": ByteLogStory(1, steps=60)}
    return found | {"moves": MoveStory(), "registry": RegistryStory(1, steps=60)}


@dataclass
class Tally:
    """How many states were made, and how many of them are different."""

    states: int = 0
    distinct: set[bytes] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def enumerate(self, name: str, story: Story, points: list[CrashPoint]) -> None:
        """Check a story at some points; equal states are checked once for each promise."""
        for point in points:
            self.states += 1
            disk = crash_state(story.trace, point)
            mark = fingerprint(disk)
            if mark in self.distinct and point.fate is Fate.TORN:
                continue
            self.distinct.add(mark)
            try:
                story.check(disk, point)
            except (AssertionError, KafkaError, OSError, ValueError, LookupError) as error:
                last = story.trace[point.length - 1] if point.length else None
                self.failures.append(f"{name} at {point} after {last}: {error!r}")


def sample(story: Story, count: int, seed: int) -> list[CrashPoint]:
    """Some of all crash points of a story."""
    points = list(crash_points(len(story.trace), torn=2))
    return random.Random(seed).sample(points, min(count, len(points)))
