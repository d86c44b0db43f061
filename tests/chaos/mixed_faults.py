"""All that can befall a cluster, drawn by a seed, several at once, while a load goes on."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence

from chaos_world import BROKERS, ZOOKEEPER, ChaosWorld, end
from coordinator_places import OFFSETS, TRANSACTIONS
from cut_network import CLIENT, Road
from small_disk import SmallDisk

from ottla import Admin, KafkaError
from ottla.structs import TopicPartition
from ottla.testing import wait_until

AT_ONCE = 2
"""How many faults last at a time; one more makes no difference to a cluster of three."""
LONGEST_S = 6.0
"""Three sessions: the others notice, and elect. What waits for an answer still waits then."""
PAUSE_S = 0.8
STORM = 12
"""After so many faults the cluster gets a moment: three brokers of which one is always down or
not in sync again might take no record for minutes, and then there would be little to check."""
TICK_S = 0.05
LIMIT_S = 120.0
LEAST_ROOM = 1 << 16
NO_ROOM = ("every log directory has failed", "none can be used")
"""What a broker says that ends, or does not start, because its only directory has failed."""
NO_REGISTRY = ("the session at ZooKeeper ended before the answer came",)
"""What one says that cannot start: its session has ended in the middle of that, as ZooKeeper has
hung. Kafka's ends as well; whoever runs it starts it again."""

Undo = Callable[[], object]


def over() -> None:
    """What ends a fault that lasts no time: nothing."""


class MixedFaults:
    """Draws faults, lets each last for a while, and ends it; two may last at the same time.

    A broker whose only disk was full may end by itself: it is started again when there is room.
    One that ends for any other reason is an entry of `ended`.
    """

    def __init__(
        self,
        world: ChaosWorld,
        topics: Sequence[str],
        disks: dict[int, SmallDisk],
        chance: random.Random,
        acked_ends: Sequence[int],
    ) -> None:
        self.world = world
        self.topics = topics
        self.disks = disks
        self.chance = chance
        self.acked_ends = acked_ends
        """How far the load was acknowledged in each of its partitions."""
        self.counts: dict[str, int] = {}
        """How often each fault has happened."""
        self.ended: list[str] = []
        self._lasting: list[tuple[float, Undo]] = []
        self._disturbed: set[str] = set()
        """The ends of the network that a fault has at present."""
        self._was_full: set[int] = set()
        """The brokers whose disks have been full since they were started."""
        self._errands: list[threading.Thread] = []

    def run(self, seconds: float) -> None:
        """Let fault follow fault for so long."""
        kinds = self._kinds()
        over_s, next_s, before = time.monotonic() + seconds, 0.0, 0
        while (now_s := time.monotonic()) < over_s:
            self._end_those_due(now_s)
            self.note_ended()
            if now_s >= next_s and len(self._lasting) < AT_ONCE:
                self._begin(self.chance.choice(kinds))
                next_s = time.monotonic() + self.chance.uniform(0, PAUSE_S)
            if sum(self.counts.values()) >= before + STORM:
                self._calm_down()
                before = sum(self.counts.values())
            threading.Event().wait(TICK_S)

    def _calm_down(self) -> None:
        """End what lasts, and wait until every partition of the load takes records again."""
        self._end_those_due(float("inf"))
        before = list(self.acked_ends)

        def goes_on() -> bool:
            self.note_ended()
            return all(new > old for new, old in zip(self.acked_ends, before, strict=True))

        wait_until(goes_on, "the load goes on between storms", LIMIT_S, seen=lambda: self.ended)

    def _kinds(self) -> list[Callable[[], Undo | None]]:
        kinds = [
            self.kill,
            self.kill_coordinator,
            self.kill_controller,
            self.stop,
            self.pause,
            self.cut,
            self.slow,
            self.reset,
            self.elect,
            self.move,
            self.expire,
            self.pause_zookeeper,
            self.kill_zookeeper,
        ]
        return kinds + [self.fill] * 2 if self.disks else kinds

    def _begin(self, kind: Callable[[], Undo | None]) -> None:
        name = kind.__name__
        undo = kind()
        if undo is None:
            return
        self._count(name)
        if undo is not over:
            due_s = time.monotonic() + self.chance.uniform(0.2, LONGEST_S)
            self._lasting.append((due_s, undo))

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _end_those_due(self, now_s: float) -> None:
        due = [each for each in self._lasting if each[0] <= now_s]
        self._lasting = [each for each in self._lasting if each[0] > now_s]
        for _, undo in due:
            undo()

    def _taken(self, *names: str) -> Callable[[], None] | None:
        """Take ends of the network for a fault; None where one has another fault already."""
        if self._disturbed & set(names):
            return None
        self._disturbed |= set(names)
        return lambda: self._disturbed.difference_update(names)

    # Brokers

    def kill(self) -> Undo | None:
        """kill -9 of any broker."""
        return self._kill(self.chance.choice(BROKERS))

    def kill_coordinator(self) -> Undo | None:
        """kill -9 of the leader of a partition of the coordinators' topics."""
        topic, partition = self.chance.choice([OFFSETS, TRANSACTIONS]), self.chance.randrange(3)
        return self._kill(self._from_registry(lambda: self.world.leader(topic, partition)))

    def kill_controller(self) -> Undo | None:
        """kill -9 of the controller."""
        return self._kill(self._from_registry(lambda: self.world.controller))

    def _from_registry(self, ask: Callable[[], int]) -> int:
        """An answer of ZooKeeper, or none while something has befallen it."""
        return -1 if ZOOKEEPER in self._disturbed else ask()

    def _kill(self, broker_id: int) -> Undo | None:
        if not self.is_alive(broker_id) or (give_back := self._taken(end(broker_id))) is None:
            return None
        self.world.kill_broker(broker_id)
        return lambda: (give_back(), self.start(broker_id))

    def stop(self) -> Undo | None:
        """SIGTERM; one that has not ended when the fault is over is killed."""
        broker_id = self.chance.choice(BROKERS)
        if not self.is_alive(broker_id) or (give_back := self._taken(end(broker_id))) is None:
            return None
        broker = self.world.brokers[broker_id]
        broker.running.send_signal(signal.SIGTERM)

        def undo() -> None:
            broker.kill()
            give_back()
            self.start(broker_id)

        return undo

    def pause(self) -> Undo | None:
        """SIGSTOP."""
        broker_id = self.chance.choice(BROKERS)
        if not self.is_alive(broker_id) or (give_back := self._taken(end(broker_id))) is None:
            return None
        self.world.pause_broker(broker_id)
        return lambda: (give_back(), self.world.resume_broker(broker_id))

    def is_alive(self, broker_id: int) -> bool:
        """Whether the process runs, as far as is known."""
        broker = self.world.brokers.get(broker_id)
        return broker is not None and broker.process is not None and broker.process.poll() is None

    def start(self, broker_id: int) -> None:
        """Start it, and do not wait: it may find nobody, or no room."""
        if self.world.brokers[broker_id].process is None:
            self._was_full.discard(broker_id)
            if broker_id in self.disks and self.disks[broker_id].is_full:
                self._was_full.add(broker_id)
            self.world.launch_broker(broker_id)

    def note_ended(self) -> None:
        """Look for brokers that have ended by themselves."""
        for broker_id in BROKERS:
            broker = self.world.brokers[broker_id]
            is_ours = end(broker_id) in self._disturbed
            if broker.process is None or broker.process.poll() is None or is_ours:
                continue
            status, said = broker.process.poll(), broker.last_log
            broker.kill()
            if broker_id in self._was_full and any(each in said for each in NO_ROOM):
                self._count("ended_on_full_disk")
            elif any(f"ottla broker: {each}" in said for each in NO_REGISTRY):
                self._count("not_started_without_zookeeper")
            else:
                self.ended.append(f"broker {broker_id} has ended with {status}: {said[-2000:]}")
            if broker_id not in self.disks or not self.disks[broker_id].is_full:
                self.start(broker_id)

    # Disks

    def fill(self) -> Undo | None:
        """No room on a broker's disk, or hardly any."""
        broker_id = self.chance.choice(BROKERS)
        disk = self.disks[broker_id]
        if disk.is_full:
            return None
        self._was_full.add(broker_id)
        disk.fill(self.chance.choice([0, self.chance.randrange(LEAST_ROOM)]))

        def undo() -> None:
            disk.empty()
            if end(broker_id) not in self._disturbed:
                self.note_ended()
                self.start(broker_id)

        return undo

    # Networks

    def cut(self) -> Undo | None:
        """What goes from one end to another is held, or both ways; then the connections may end."""
        one, other = self._two_ends()
        pairs = [(one, other), (other, one)]
        pairs = self.chance.choice([pairs, pairs[:1]])
        self.world.network.cut(*pairs)
        ends = CLIENT not in (one, other) and self.chance.random() < 0.5

        def undo() -> None:
            if ends:
                self.world.network.reset(one, other)
            self.world.network.mend(*pairs)

        return undo

    def slow(self) -> Undo | None:
        """100 ms, 3 Mbit/s and 1 % loss from one end to another."""
        one, other = self._two_ends()
        self.world.network.slow(Road(0.1, 3_000_000 / 8, 0.01, self.chance), (one, other))
        return lambda: self.world.network.mend((one, other))

    def reset(self) -> Undo | None:
        """All connections between two ends are closed."""
        self.world.network.reset(*self._two_ends())
        return over

    def _two_ends(self) -> tuple[str, str]:
        one = self.chance.choice(BROKERS)
        others = [end(each) for each in BROKERS if each != one]
        return end(one), self.chance.choice([*others, CLIENT, ZOOKEEPER])

    # Administration

    def elect(self) -> Undo | None:
        """The preferred replicas are made leaders."""
        self._errand(lambda admin: admin.elect_leaders())
        return over

    def move(self) -> Undo | None:
        """A partition gets other replicas: two or three of them, in any order."""
        partition = TopicPartition(self.chance.choice(self.topics), self.chance.randrange(3))
        replicas = self.chance.sample(BROKERS, self.chance.choice([2, 3]))
        self._errand(lambda admin: admin.alter_partition_reassignments({partition: replicas}))
        return over

    def _errand(self, work: Callable[[Admin], object]) -> None:
        """Ask the cluster for something; it may be refused, or never be answered."""

        def run() -> None:
            servers = self.world.bootstrap_servers
            with contextlib.suppress(KafkaError), Admin(servers, request_timeout_ms=5000) as admin:
                work(admin)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._errands.append(thread)

    # The registry

    def expire(self) -> Undo | None:
        """A broker's session is ended from beside."""
        broker_id = self.chance.choice(BROKERS)
        taken = (end(broker_id), ZOOKEEPER)
        if not self.is_alive(broker_id) or (give_back := self._taken(*taken)) is None:
            return None
        if self.world.registration(broker_id):
            self.world.expire_soon(broker_id)
        return give_back

    def pause_zookeeper(self) -> Undo | None:
        """SIGSTOP of ZooKeeper."""
        if (give_back := self._taken(ZOOKEEPER)) is None:
            return None
        self.world.zookeeper.pause()
        return lambda: (self.world.zookeeper.resume(), give_back())

    def kill_zookeeper(self) -> Undo | None:
        """kill -9 of ZooKeeper, whose data stay."""
        if (give_back := self._taken(ZOOKEEPER)) is None:
            return None
        self.world.zookeeper.kill()
        return lambda: (self.world.zookeeper.start(), give_back())

    # The end

    def make_peace(self) -> None:
        """End all faults: everything runs, all can reach each other, and every disk has room."""
        self._end_those_due(float("inf"))
        for disk in self.disks.values():
            disk.empty()
        self.world.network.heal()
        for errand in self._errands:
            errand.join(LIMIT_S)
        for broker_id in BROKERS:
            self.start(broker_id)
        wait_until(self._all_serve, "all brokers serve", LIMIT_S, seen=lambda: self.ended)

    def _all_serve(self) -> bool:
        """Whether all are registered; one that had no room just now is started once more."""
        self.note_ended()
        return all(map(self.is_alive, BROKERS)) and all(map(self.world.registration, BROKERS))
