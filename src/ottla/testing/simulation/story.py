"""One run of the simulated world: load, faults, peace, and the checks at the end.

`PowerStory` is the one in which all machines lose power at once, `UncleanStory` the one in which
replicas lead that were not in sync.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, Final

from ottla.replication.partition import Partition
from ottla.structs import NO_EPOCH, TopicPartition
from ottla.testing.simulation.administrator import Administrator
from ottla.testing.simulation.cluster import Host, SimulatedCluster, is_controller
from ottla.testing.simulation.cluster_at_rest import (
    LogStarts,
    check_log_matching,
    check_rest,
    partitions_without_logs,
)
from ottla.testing.simulation.conditions import Conditions
from ottla.testing.simulation.edges import near_ends
from ottla.testing.simulation.invariants import (
    History,
    Watcher,
    check_idle,
    check_in_the_end,
    partitions_of,
    replicas_of,
)
from ottla.testing.simulation.nemesis import Nemesis
from ottla.testing.simulation.replay import check_coordinators
from ottla.testing.simulation.small_slices import small_slices
from ottla.testing.simulation.workload import EndReader, Reader, SimulatedClient, TopicMaker, Writer
from ottla.testing.simulation.world import Turns, World
from ottla.testing.virtual_loop import TimelessError

TOPIC: Final = "story"
PARTITIONS: Final = 2
REPLICAS: Final = 3
START_LIMIT_MS: Final = 60_000
TROUBLE_MS: Final = 30_000
PEACE_LIMIT_MS: Final = 180_000
LOOK_EVERY_STEPS: Final = 4
COMPARE_MS: Final = 5_000
"""How often the replicas are compared while things break."""
REST_LIMIT_MS: Final = 60_000
REST_STEP_MS: Final = 2_000
TWO_LEADERS_WEIGHT: Final = 4
"""How much likelier than another fault it is that two leaders in succession die."""
REPLACED_CONTROLLER_WEIGHT: Final = 3
"""How much likelier than another fault it is that the controller has a successor unawares."""
MAX_UNAWARE_MS: Final = 4_000


@dataclass(slots=True)
class Outcome:
    """The result of a seed; `violations` is empty if it passed."""

    seed: int
    violations: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    acknowledged_count: int = 0
    seen_count: int = 0
    virtual_ms: int = 0
    step_count: int = 0
    fingerprint: str = ""


class Story:
    """Three brokers with writers and a reader: faults for a while, then peace.

    Invariant: everything that happens follows from the seed.
    """

    brokers: ClassVar[int] = REPLICAS
    may_flush_each_batch: ClassVar[bool] = True
    may_retain: ClassVar[bool] = False
    """Whether records may go for the size of their log: no client counts on all of them."""
    always_pauses: ClassVar[bool] = False
    """Whether work in slices pauses in each world, not only in some."""
    trouble_ms: ClassVar[int] = TROUBLE_MS
    settings: ClassVar[Mapping[str, str | int]] = {}

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        # Without a flush per batch, a cluster that loses power may lose records: no violation.
        flushes = self.may_flush_each_batch and self.world.random.random() < 0.5
        self.conditions = Conditions.drawn(seed, self.may_retain)
        if self.always_pauses:
            self.conditions = self.conditions._replace(has_small_slices=True)
        if self.conditions.has_small_slices:
            self.world.turns = Turns(random.Random(f"turns {seed}"))
        settings = {**self.conditions.settings, **self.settings}
        if flushes:
            settings["log.flush.interval.messages"] = 1
        self.cluster = SimulatedCluster(self.world, self.brokers, **settings)
        for host in self.cluster.hosts:
            host.disk.fail_at_random(self.conditions.calls_per_fault)
        self.history = History()
        self.partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        self._take_edges()
        self.watcher = Watcher(self.cluster, self.history)
        self.watcher.flushes_late = not self.may_flush_each_batch
        self.nemesis = Nemesis(self.cluster, flushes, self._more_faults(), self.conditions.kinds)
        self._writers: list[SimulatedClient] = []
        self._steps = 0
        self._compared_ms = 0
        self._log_starts = LogStarts()
        self._operator: Administrator | None = None
        self._doomed: TopicPartition | None = None
        """The partition of which two leaders in succession are to die."""
        self._first_epoch = NO_EPOCH
        """The epoch of the first of these leaders, once it is dead."""

    def _take_edges(self) -> None:
        """Put the topic into the cluster before it runs, where its numbers begin near an edge."""
        edges = self.conditions.edges
        if edges is not None:
            edges.prepare(self.cluster, TOPIC, PARTITIONS, tuple(range(1, REPLICAS + 1)))
            for partition in self.partitions:
                self.history.note_deleted(partition, edges.offset)

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        self.world.after_step = self._look
        try:
            with (
                near_ends() if self.conditions.edges else nullcontext(),
                small_slices() if self.conditions.has_small_slices else nullcontext(),
            ):
                self._tell()
        except TimelessError as error:
            self.history.violations.append(f"{self.world.now_ms} ms: {error}")
        outcome = self._outcome()
        self.world.close()
        return outcome

    def _tell(self) -> None:
        self._begin()
        if not self.history.violations:
            self.nemesis.start()
            self.world.run_until(lambda: bool(self.history.violations), self.trouble_ms)
        if not self.history.violations:
            self.nemesis.stop()
            self._end()
        if not self.history.violations:
            self.history.violations += self._wrong_until(lambda: check_idle(self.cluster))
        if not self.history.violations:
            self.history.violations += self._come_to_rest()

    def _come_to_rest(self) -> list[str]:
        """End all clients; returns the violations of the cluster after a while, or nothing."""
        wrong = self._wrong_until(
            lambda: [text for host in self.cluster.hosts for text in check_coordinators(host)]
        )
        for process in self.world.processes:
            process.is_told_to_stop = True
        return wrong or self._wrong_until(lambda: check_rest(self.cluster))

    def _wrong_until(self, check: Callable[[], list[str]]) -> list[str]:
        """The violations that a check finds for so long that they are not only late."""
        end_ms = self.world.now_ms + REST_LIMIT_MS
        wrong = check()
        while wrong and not self.history.violations and self.world.now_ms < end_ms:
            self._elect_for_lost_logs()
            self.world.run(REST_STEP_MS)
            wrong = check()
        return wrong

    def _elect_for_lost_logs(self) -> None:
        """Elect leaders as the log of a broker says that has lost a log where it alone is in sync.

        A broker that was paused when a topic was made, and was killed before it had the log, does
        not know that nothing was lost. Whether anything was is for the history to say.
        """
        stuck = partitions_without_logs(self.cluster)
        if stuck:
            self._operator = self._operator or Administrator(self.cluster, "operator", self.history)
            self._operator.elect_unclean_leaders(stuck)

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [
            *[self._lose_two_leaders] * TWO_LEADERS_WEIGHT,
            *[self._replace_controller] * REPLACED_CONTROLLER_WEIGHT,
        ]

    def _lose_two_leaders(self, chance: random.Random) -> str:
        """Kill a leader as it commits, and its successor once the third replica follows that.

        The third then leads with the log from when it began to follow the second (KIP-101).
        """
        self._doomed, self._first_epoch = chance.choice(self.partitions), NO_EPOCH
        return f"two leaders of {self._doomed} are to die"

    def _replace_controller(self, chance: random.Random) -> str:
        """Pause the controller, and end its session: it resumes as if it had no successor."""
        host = next((host for host in self.cluster.hosts if is_controller(host)), None)
        if host is None or host.process is None:
            return "there is no controller to replace"
        host.process.pause()
        ended_ms = self.nemesis.end_session(host)
        delay_ms = ended_ms + chance.randint(100, MAX_UNAWARE_MS)
        self.world.loop.add_timer(delay_ms, host.process.resume)
        return f"pause controller {host.name} for {delay_ms} ms, its session ends in {ended_ms} ms"

    def _kill_doomed(self, doomed: TopicPartition) -> None:
        running = [
            (host, partition)
            for host in self.cluster.hosts
            if host.is_running
            for partition in partitions_of(host)
            if partition.topic_partition == doomed
        ]
        for host, leader in running:
            if not leader.is_leader or leader.leader_epoch <= self._first_epoch:
                continue
            followers = [partition for _, partition in running if partition is not leader]
            if self._first_epoch != NO_EPOCH:
                if any(each.leader_epoch == leader.leader_epoch for each in followers):
                    self._doomed = None
                    self._replace(host, f"which begins to lead {doomed}")
                    return
            elif len(followers) == len(isr_of(leader)) - 1 == REPLICAS - 1 and all(
                each.high_watermark < leader.high_watermark for each in followers
            ):
                self._first_epoch = leader.leader_epoch
                self._replace(host, f"which alone knows what is committed of {doomed}")
                return

    def _replace(self, host: Host, reason: str) -> None:
        self.nemesis.kill_for_a_while(host, reason)
        self.nemesis.end_session(host)

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._start_writers()
        reader = Reader(self.cluster, "reader", self.history)
        reader.process.spawn(reader.run(self.partitions), "read")
        self._watch_ends(self.partitions)

    def _start_writers(self) -> None:
        for number in range(2):
            self._start_writer(f"writer{number}", interval_ms=200)

    def _watch_ends(
        self, partitions: list[TopicPartition], isolation_level: str = "read_uncommitted"
    ) -> None:
        """Have a client ask for the ends of partitions that lose nothing."""
        watcher = EndReader(self.cluster, "end-reader", self.history, isolation_level)
        watcher.process.spawn(watcher.run(partitions), "ask for the ends")

    def _make_topic(self, topic: str) -> None:
        if topic in {partition.topic for partition in self.cluster.first_offsets}:
            return  # it was there before
        maker = TopicMaker(self.cluster, "maker", self.history)
        maker.process.spawn(maker.create(topic, PARTITIONS, REPLICAS), "create the topic")
        if not self.world.run_until(lambda: maker.is_done, START_LIMIT_MS):
            self.history.violations.append(f"topic {topic} was not created: {self._state()}")

    def _start_writer(self, name: str, interval_ms: int, burst: int = 1) -> None:
        writer = Writer(self.cluster, name, self.history)
        writer.process.spawn(writer.run(TOPIC, interval_ms, burst), "write")
        self._writers.append(writer)

    def _end(self) -> None:
        for writer in self._writers:
            writer.is_told_to_stop = True
        if not self._is_at_peace():
            return
        self._read_everything({tp: self._end_of(tp) for tp in self.partitions})
        if self._is_at_peace():  # a reassignment that was asked for may have begun meanwhile
            self.history.violations += check_in_the_end(self.cluster, self.history, TOPIC)

    def _is_at_peace(self) -> bool:
        """Wait until everything is whole; a violation if it does not become so."""
        is_whole = self._is_reached(self._is_whole)
        if not is_whole:
            self.history.violations.append(f"no peace after {PEACE_LIMIT_MS} ms: {self._state()}")
        return is_whole

    def _is_reached(self, goal: Callable[[], bool], limit_ms: int | None = None) -> bool:
        """Wait for a goal where there are no more faults, but may be work for an administrator."""
        limit_ms = limit_ms or PEACE_LIMIT_MS
        if self.world.run_until(goal, limit_ms):
            return True
        if not partitions_without_logs(self.cluster):
            return False
        self._elect_for_lost_logs()
        return self.world.run_until(goal, limit_ms)

    def _read_everything(self, ends: dict[TopicPartition, int]) -> None:
        last = Reader(self.cluster, "last-reader", self.history)
        last.process.spawn(last.run(self.partitions), "read everything")

        def has_read_all() -> bool:
            return all(last.next_offsets.get(tp, 0) >= end for tp, end in ends.items())

        if not self._is_reached(has_read_all):
            self.history.violations.append(f"not everything can be read: {last.next_offsets}")

    def _is_whole(self) -> bool:
        return (
            all(writer.is_done for writer in self._writers)
            and self.cluster.is_serving
            and all(self._end_of(tp) >= 0 for tp in self.partitions)
        )

    def _end_of(self, topic_partition: TopicPartition) -> int:
        """The end of the partition if all replicas are in sync and have all of it, else -1."""
        replicas = replicas_of(self.cluster, topic_partition)
        ends = {p.log.log_end_offset for p in replicas} | {p.high_watermark for p in replicas}
        is_whole = len(replicas) == max((len(isr_of(p)) for p in replicas), default=0) == REPLICAS
        return ends.pop() if is_whole and len(ends) == 1 else -1

    def _state(self) -> str:
        lines = [f"writers done {[writer.is_done for writer in self._writers]}"]
        for host in self.cluster.hosts:
            lines.append(f"{host.name} {host.process} serving={host.is_serving} {host.failure!r}")
            lines += [
                f"  {p.topic_partition} leader {p.leader} epoch {p.leader_epoch} isr {isr_of(p)} "
                f"end {p.log.log_end_offset} hw {p.high_watermark}"
                for p in partitions_of(host)
            ]
        return "\n".join(lines)

    def _look(self) -> None:
        self._steps += 1
        if self._steps % LOOK_EVERY_STEPS == 0:
            self.watcher.look()
            if self.world.now_ms >= self._compared_ms + COMPARE_MS:
                self._compared_ms = self.world.now_ms
                self.history.violations += check_log_matching(self.cluster)
                self.history.violations += self._log_starts.check(self.cluster)
        if self._doomed is not None and not self.nemesis.is_stopped:
            self._kill_doomed(self._doomed)

    def _outcome(self) -> Outcome:
        text = repr((self.world.step_count, self.nemesis.log, self.history.acknowledged))
        return Outcome(
            self.world.seed,
            self.history.violations,
            self.nemesis.log,
            sum(map(len, self.history.acknowledged.values())),
            sum(map(len, self.history.seen.values())),
            self.world.now_ms,
            self.world.step_count,
            hashlib.sha256(text.encode()).hexdigest()[:16],
        )


def isr_of(partition: Partition) -> tuple[int, ...]:
    """The replicas in sync, as the leader knows them; empty for a follower."""
    return () if partition.leadership is None else partition.leadership.in_sync.committed
