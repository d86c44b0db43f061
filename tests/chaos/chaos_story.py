"""A load during which something happens, and the counts of what became of the records."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from chaos_world import BROKERS, ChaosWorld
from cluster_load import LASTING, read_places, until
from confluent_kafka import KafkaError, Message, Producer

from ottla import Admin, NewTopic

RATE = 1500
TICK_S = 0.01
IN_THE_AIR = 6000
PARTITIONS = 3
LIMIT_S = 90.0
ISR_LIMIT_S = 60.0


@dataclass(slots=True)
class History:
    """What was acknowledged and what is there, by partition, in order.

    `acked` has the offset that each number was given; librdkafka does not know that of one which
    was there already when it was sent again. `places` has the offset where it is.
    """

    acked: dict[int, dict[int, int]]
    read: dict[int, list[int]] = field(default_factory=dict)
    places: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return sum(len(set(self.acked[p]) - set(self.read[p])) for p in self.acked)

    @property
    def duplicated(self) -> int:
        return sum(len(numbers) - len(set(numbers)) for numbers in self.read.values())

    @property
    def moved(self) -> int:
        """How many are not where the acknowledgement said."""
        return sum(
            offset >= 0 and self.places[partition].get(number, offset) != offset
            for partition, numbers in self.acked.items()
            for number, offset in numbers.items()
        )

    @property
    def reordered(self) -> int:
        return sum(
            later < earlier
            for numbers in self.read.values()
            for earlier, later in pairwise(numbers)
        )


class ChaosLoad:
    """Numbers 0, 1, 2, ... into each partition, at a rate, with acks=all."""

    def __init__(self, bootstrap_servers: str, topic: str, **settings: object) -> None:
        self.topic = topic
        self.acked: dict[int, dict[int, int]] = {index: {} for index in range(PARTITIONS)}
        self.problems: list[str] = []
        self.latencies_s: list[float] = []
        self.longest_gap_s = 0.0
        self._sent = [0] * PARTITIONS
        self._last_ack_s: dict[int, float] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "message.timeout.ms": 120_000,
                **LASTING,
                # How long it takes to notice a leader that hangs, or that is none any more.
                "request.timeout.ms": 4_000,
                "socket.timeout.ms": 5_000,
                "error_cb": self._on_error,
                **settings,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.monotonic()
        self._thread.start()

    @property
    def count(self) -> int:
        """How many were acknowledged so far."""
        return sum(map(len, self.acked.values()))

    @property
    def rate(self) -> float:
        """Acknowledged records a second, faults and all."""
        return self.count / (time.monotonic() - self._began_s)

    @property
    def p99_ms(self) -> float:
        """How long 99 of 100 waited for their acknowledgement at most."""
        return 1000 * sorted(self.latencies_s)[len(self.latencies_s) * 99 // 100]

    def until_more(self, count: int = 100, limit_s: float = LIMIT_S) -> None:
        """Wait until each partition has acknowledged so many more."""
        before = {index: len(numbers) for index, numbers in self.acked.items()}
        until(
            lambda: all(len(self.acked[p]) >= before[p] + count for p in self.acked),
            f"{count} more records in each partition ({self.problems[-1:]})",
            limit_s,
        )

    def end(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        left = self._producer.flush(LIMIT_S)
        assert left == 0, f"{left} records are still on their way"

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop.is_set():
            due += TICK_S
            if sum(self._sent) - self.count < IN_THE_AIR:
                for _ in range(max(1, int(RATE * TICK_S / PARTITIONS))):
                    for partition in range(PARTITIONS):
                        self._sent[partition] += 1
                        self._producer.produce(
                            self.topic,
                            str(number).encode(),
                            partition=partition,
                            on_delivery=self._on_delivery,
                        )
                    number += 1
            self._producer.poll(0)
            self._stop.wait(max(0.001, due - time.monotonic()))
            due = max(due, time.monotonic() - 1)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"fatal: {error}")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(str(error))
            return
        partition, now_s = message.partition(), time.monotonic()
        gap_s = now_s - self._last_ack_s.get(partition, now_s)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._last_ack_s[partition] = now_s
        self.latencies_s.append(message.latency())
        self.acked[partition][int(message.value())] = message.offset()


class Story:
    """A topic under load in a world to which something happens.

    At its end everything recovers, the replicas get in sync, and the counts are printed; nothing
    may be lost but `may_lose` records.
    """

    def __init__(
        self,
        world: ChaosWorld,
        name: str,
        seed: int,
        *,
        assignment: dict[int, list[int]] | None = None,
        **config: str,
    ) -> None:
        self.world = world
        self.name = name
        self.seed = seed
        self.chance = random.Random(f"{seed}-{name}")
        self.topic = f"story-{name}-{seed}".replace(" ", "-")
        self.brokers = set(BROKERS)
        self.may_lose = 0
        settings = {"min.insync.replicas": "2"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        if assignment is None:
            new = NewTopic(self.topic, PARTITIONS, 3, configs=settings)
        else:
            new = NewTopic(self.topic, replica_assignment=assignment, configs=settings)
        with Admin(world.bootstrap_servers) as admin:
            admin.create_topics([new])
        self.isr_full_s = 0.0
        self.producer_settings: dict[str, object] = {}

    def __enter__(self) -> Story:
        world = self.world
        until(lambda: all(self.in_sync(p) for p in range(PARTITIONS)), "the topic has leaders")
        self.load = ChaosLoad(world.bootstrap_servers, self.topic, **self.producer_settings)
        self.load.until_more(200)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.recover()
        if error is None:
            self._conclude()
        self.load.end()
        if error is None:
            self._count()

    @property
    def leader(self) -> int:
        """The leader of partition 0."""
        return self.world.leader(self.topic)

    @property
    def followers(self) -> list[int]:
        """The brokers that do not lead partition 0."""
        return sorted(self.brokers - {self.leader})

    def in_sync(self, partition: int = 0) -> set[int]:
        return self.world.in_sync(self.topic, partition)

    def until_leader_is_not(self, *brokers: int) -> None:
        until(lambda: self.leader not in (-1, *brokers), f"a leader other than {brokers}")

    def until_in_sync(self, limit_s: float = ISR_LIMIT_S) -> None:
        """Wait until each partition's in-sync replicas are all replicas."""
        until(
            lambda: all(self.in_sync(p) == self.brokers for p in range(PARTITIONS)),
            "all replicas are in sync",
            limit_s,
        )

    def last(self, low_s: float, high_s: float | None = None) -> None:
        """Let what has been done last for so long, while the load goes on."""
        threading.Event().wait(low_s if high_s is None else self.chance.uniform(low_s, high_s))

    def _conclude(self) -> None:
        began_s = time.monotonic()
        self.load.until_more(100)
        self.until_in_sync()
        self.isr_full_s = time.monotonic() - began_s
        self.world.until_registered()

    def _count(self) -> None:
        history = History(self.load.acked)
        for partition in range(PARTITIONS):
            found = read_places(
                self.world.bootstrap_servers, self.topic, partition, limit_s=LIMIT_S
            )
            history.read[partition] = [number for number, _ in found]
            history.places[partition] = dict(found)
        print(
            f"{self.name:<34} seed={self.seed} acked={self.load.count} lost={history.lost} "
            f"duplicated={history.duplicated} reordered={history.reordered} moved={history.moved} "
            f"p99_ms={self.load.p99_ms:.0f} longest_gap_ms={self.load.longest_gap_s * 1000:.0f} "
            f"isr_full_ms={self.isr_full_s * 1000:.0f} {self.world.footprint()}",
            flush=True,
        )
        assert history.lost <= self.may_lose, f"{history.lost} acknowledged records are lost"
        assert not history.duplicated, f"{history.duplicated} records are there twice"
        assert not history.reordered, f"{history.reordered} records are out of order"
        assert not history.moved, f"{history.moved} records are not at their offsets"
        if not self.may_lose:
            assert not self.load.problems, self.load.problems[:3]
        for partition in range(PARTITIONS):
            until(lambda p=partition: self._has_equal_replicas(p), f"equal replicas of {partition}")

    def _has_equal_replicas(self, partition: int) -> bool:
        logs = {self.world.log_bytes(each, self.topic, partition) for each in self.brokers}
        return len(logs) == 1
