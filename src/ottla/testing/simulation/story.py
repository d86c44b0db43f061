"""One run of the simulated world: load, faults, peace, and whether everything is as it must be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from ottla.structs import TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.invariants import Watcher, check_in_the_end, partitions_of
from ottla.testing.simulation.nemesis import Nemesis
from ottla.testing.simulation.workload import History, Reader, TopicMaker, Writer
from ottla.testing.simulation.world import World

TOPIC: Final = "story"
PARTITIONS: Final = 2
START_LIMIT_MS: Final = 60_000
TROUBLE_MS: Final = 40_000
PEACE_LIMIT_MS: Final = 180_000
LOOK_EVERY_STEPS: Final = 8


@dataclass(slots=True)
class Outcome:
    """What came of a seed: `violations` is empty where all is well."""

    seed: int
    violations: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    acknowledged_count: int = 0
    seen_count: int = 0
    virtual_ms: int = 0
    step_count: int = 0
    fingerprint: str = ""


class Story:
    """A cluster of three, two writers and a reader; trouble for a while, then peace."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        # Without a flush per batch a whole cluster that loses power loses records, and may.
        flushes = self.world.random.random() < 0.5
        settings: dict[str, str | int] = {"log.flush.interval.messages": 1} if flushes else {}
        self.cluster = SimulatedCluster(self.world, 3, **settings)
        self.history = History()
        self.watcher = Watcher(self.cluster, self.history)
        self.nemesis = Nemesis(self.cluster, may_lose_power=flushes)
        self.partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        self._writers: list[Writer] = []
        self._steps = 0

    def run(self) -> Outcome:
        """Tell it to the end, or to the first violation."""
        self.world.after_step = self._look
        self._begin()
        if not self.history.violations:
            self.nemesis.start()
            self.world.run(TROUBLE_MS)
            self.nemesis.stop()
            self._end()
        return self._outcome()

    def _begin(self) -> None:
        maker = TopicMaker(self.cluster, "maker", self.history)
        maker.process.spawn(maker.create(TOPIC, PARTITIONS, 3), "create the topic")
        if not self.world.run_until(lambda: maker.is_done, START_LIMIT_MS):
            self.history.violations.append("the topic was not created")
            return
        for number in range(2):
            writer = Writer(self.cluster, f"writer{number}", self.history)
            writer.process.spawn(writer.run(TOPIC, 150), "write")
            self._writers.append(writer)
        reader = Reader(self.cluster, "reader", self.history)
        reader.process.spawn(reader.run(self.partitions), "read")

    def _end(self) -> None:
        for writer in self._writers:
            writer.is_told_to_stop = True
        if not self.world.run_until(self._is_whole, PEACE_LIMIT_MS):
            self.history.violations.append(f"no peace after {PEACE_LIMIT_MS} ms: {self._state()}")
            return
        last = Reader(self.cluster, "last-reader", self.history)
        last.process.spawn(last.run(self.partitions), "read everything")

        def has_read_all() -> bool:
            return all(last.next_offsets.get(tp, 0) >= self._end_of(tp) for tp in self.partitions)

        if not self.world.run_until(has_read_all, PEACE_LIMIT_MS):
            self.history.violations.append(f"not everything can be read: {last.next_offsets}")
        self.history.violations += check_in_the_end(self.cluster, self.history, TOPIC)

    def _is_whole(self) -> bool:
        return (
            all(writer.is_done for writer in self._writers)
            and self.cluster.is_serving
            and all(self._end_of(tp) >= 0 for tp in self.partitions)
        )

    def _end_of(self, topic_partition: TopicPartition) -> int:
        """Where the partition ends, if all replicas are in sync and have all of it; else -1."""
        ends = set()
        has_leader = False
        for host in self.cluster.hosts:
            for partition in partitions_of(host):
                if partition.topic_partition != topic_partition:
                    continue
                ends |= {partition.log.log_end_offset, partition.high_watermark}
                has_leader |= partition.is_leader and len(partition.isr) == 3
        return ends.pop() if has_leader and len(ends) == 1 else -1

    def _state(self) -> str:
        lines = [f"writers done {[writer.is_done for writer in self._writers]}"]
        for host in self.cluster.hosts:
            lines.append(f"{host.name} {host.process} serving={host.is_serving} {host.failure!r}")
            lines += [
                f"  {p.topic_partition} leader {p.leader} epoch {p.leader_epoch} isr {p.isr} "
                f"end {p.log.log_end_offset} hw {p.high_watermark}"
                for p in partitions_of(host)
                if p.topic_partition in self.partitions
            ]
        return "\n".join(lines)

    def _look(self) -> None:
        self._steps += 1
        if self._steps % LOOK_EVERY_STEPS == 0:
            self.watcher.look()

    def _outcome(self) -> Outcome:
        seen = self.history.seen.values()
        text = repr((self.world.step_count, self.nemesis.log, self.history.acknowledged))
        return Outcome(
            self.world.seed,
            self.history.violations,
            self.nemesis.log,
            sum(map(len, self.history.acknowledged.values())),
            sum(map(len, seen)),
            self.world.now_ms,
            self.world.step_count,
            hashlib.sha256(text.encode()).hexdigest()[:16],
        )
