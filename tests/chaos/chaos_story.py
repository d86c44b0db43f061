"""A load during which something happens, and the counts of what became of the records."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType

from broker_requests import BrokerConnection, partition_answer, produce_request
from chaos_load import (
    A_FEW_IN_THE_AIR,
    IN_THE_AIR,
    LIMIT_S,
    PARTITIONS,
    ChaosLoad,
    ConstantReader,
    History,
)
from chaos_world import BROKERS, SESSION_S, ChaosWorld
from cluster_load import read_places
from registry_history import RegistryHistory

from ottla import Admin, NewTopic
from ottla.errors import ErrorCode
from ottla.testing import wait_until

FAILOVER_S = SESSION_S + 3
HUNG_S = SESSION_S + 5
"""For a leader that hangs or is cut off: what it was sent is sent to another after a while."""
HANDOVER_S = 2.0
ISR_LIMIT_S = 60.0
MIN_RATE = 1000
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name


class Story:
    """A topic under load in a world to which something happens.

    At its end everything recovers, the replicas get in sync, and the counts are printed; nothing
    may be lost but `may_lose` records, and no partition may go without an acknowledgement for
    longer than `gap_limit_s`, which is None where two must be in sync and are not. Where it is not
    `timed`, it may take any time: that is for machines that have much else to do.
    """

    def __init__(
        self,
        world: ChaosWorld,
        name: str,
        seed: int,
        *,
        assignment: dict[int, list[int]] | None = None,
        timed: bool = True,
        **config: str,
    ) -> None:
        self.world = world
        self.name = name
        self.seed = seed
        self.chance = random.Random(f"{seed}-{name}")
        self.topic = f"story-{name}-{seed}".replace(" ", "-")
        self.brokers = set(BROKERS)
        self.timed = timed
        self.may_lose = 0
        self.min_rate = MIN_RATE
        self.gap_limit_s: float | None = FAILOVER_S
        self.back_s = 0.0
        self.isr_full_s = 0.0
        self.acked_directly: list[int] = []
        self.producer_settings: dict[str, object] = {}
        settings = {"min.insync.replicas": "2"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        assignment = self._any_assignment() if assignment is None else assignment
        new = NewTopic(self.topic, replica_assignment=assignment, configs=settings)
        with Admin(world.bootstrap_servers) as admin:
            admin.create_topics([new])

    def _any_assignment(self) -> dict[int, list[int]]:
        """Each broker leads a partition, by the seed."""
        order = self.chance.sample(BROKERS, len(BROKERS))
        return {p: order[p:] + order[:p] for p in range(PARTITIONS)}

    def __enter__(self) -> Story:
        servers = self.world.bootstrap_servers
        self.until(lambda: all(self.in_sync(p) for p in range(PARTITIONS)), "it has leaders")
        self.world.network.late_s = 0.0
        most = IN_THE_AIR if self.timed else A_FEW_IN_THE_AIR
        self.load = ChaosLoad(servers, self.topic, most, **self.producer_settings)
        self.reader = ConstantReader(servers, self.topic)
        try:
            self.load.until_more(200)
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_up()
            return
        try:
            self.world.recover()
            self._conclude()
            self.load.end()
            self._count()
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """Leave nothing running behind; what has failed is known already."""
        with contextlib.suppress(Exception):
            self.world.recover()
            self.load.end()
        self.reader.close()

    @property
    def leader(self) -> int:
        """The leader of partition 0."""
        return self.world.leader(self.topic)

    @property
    def followers(self) -> list[int]:
        """The brokers that do not lead partition 0."""
        return sorted(self.brokers - {self.leader})

    @property
    def epochs(self) -> list[int]:
        """The leader epochs of all partitions."""
        return [int(self.world.state(self.topic, p)["leader_epoch"]) for p in range(PARTITIONS)]

    @property
    def history(self) -> RegistryHistory:
        """What ZooKeeper was told of this topic so far."""
        world = self.world
        return RegistryHistory.of(world.zookeeper.data_dir, world.chroot, self.topic)

    @property
    def gap_count(self) -> int:
        """How often a broker took a gap between two batches of the load for a lost record."""
        return len(re.findall(rf"refused a batch for {self.topic}-\d+: {GAP}", self.world.log))

    def in_sync(self, partition: int = 0) -> set[int]:
        return self.world.in_sync(self.topic, partition)

    def until(self, condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait for a condition; the limit is for what hangs, not for what is slow."""
        wait_until(condition, what, limit_s)

    def until_leader_is_not(self, *brokers: int) -> None:
        self.until(lambda: self.leader not in (-1, *brokers), f"a leader other than {brokers}")

    def until_in_sync(self) -> None:
        """Wait until each partition's in-sync replicas are all replicas."""
        wait_until(
            lambda: all(self.in_sync(p) == self.brokers for p in range(PARTITIONS)),
            "all replicas are in sync",
            ISR_LIMIT_S if self.timed else LIMIT_S,
        )

    def until_writable(self) -> None:
        """Everybody who is needed is there: each partition takes records again soon."""
        began_s = time.monotonic()
        self.load.until_more(1)
        waited_s = time.monotonic() - began_s
        self.back_s = max(self.back_s, waited_s)
        assert waited_s < FAILOVER_S or not self.timed, (
            f"writable again after {waited_s:.1f} s{self._excuse}"
        )

    def refuses(self, broker_id: int) -> bool:
        """Whether this broker refuses a record for partition 0; else it must be there at the end.

        An old leader may still acknowledge what its followers fetch before they hear of the new
        one: that has it, too.
        """
        with BrokerConnection(self.world.ports[broker_id]) as connection:
            answer = partition_answer(connection.ask(produce_request(self.topic)))
        if not answer.error_code:
            self.acked_directly.append(answer.base_offset)
        return bool(answer.error_code)

    def last(self, low_s: float, high_s: float | None = None) -> None:
        """Let what has been done last for so long, while the load goes on."""
        threading.Event().wait(low_s if high_s is None else self.chance.uniform(low_s, high_s))

    @property
    def late_s(self) -> float:
        """How much later than asked for the machine let load or network go on, at the worst."""
        return max(self.load.late_s, self.world.network.late_s)

    @property
    def _excuse(self) -> str:
        """The time limits of the acceptance suppose a machine that lets processes run."""
        return (
            f" (the machine has let the test itself wait for {self.late_s:.1f} s: "
            "where that is much, tell the story again on a machine with less to do)"
        )

    def _conclude(self) -> None:
        self.until_writable()
        began_s = time.monotonic()
        self.until_in_sync()
        self.isr_full_s = time.monotonic() - began_s
        self.load.until_more(500)
        self.world.until_registered()

    def _count(self) -> None:
        load, told = self.load, History(self.load.acked, self.reader.seen)
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for partition in ends:
            found = read_places(
                self.world.bootstrap_servers, self.topic, partition, limit_s=LIMIT_S
            )
            ends[partition] = len(found)
            told.add(partition, found)
        assert set(self.acked_directly) <= set(told.strangers), "what an old leader took is lost"
        if not self.may_lose:
            self.reader.until_at(ends)
        history = self.history
        elections = sum(len(history.leaders(p)) - 1 for p in range(PARTITIONS))
        print(
            f"{self.name:<34} seed={self.seed} acked={load.count} rate={load.rate:.0f} "
            f"lost={told.lost} duplicated={told.duplicated} reordered={told.reordered} "
            f"moved={told.moved} gone={told.gone} gaps={self.gap_count} elections={elections} "
            f"controllers={history.controllers_since(history.first_zxid)} "
            f"p99_ms={load.p99_ms:.0f} longest_gap_ms={load.longest_gap_s * 1000:.0f} "
            f"back_ms={self.back_s * 1000:.0f} isr_full_ms={self.isr_full_s * 1000:.0f} "
            f"late_ms={self.late_s * 1000:.0f} {self.world.footprint()}",
            flush=True,
        )
        self._check(told)
        history.check(is_unclean=bool(self.may_lose))
        history.check_beliefs(self.world.log)
        self.world.check_answers()
        for partition in range(PARTITIONS):
            self.until(
                lambda p=partition: self._has_equal_replicas(p), f"equal replicas of {partition}"
            )

    def _check(self, told: History) -> None:
        load, gap_s = self.load, self.load.longest_gap_s
        assert told.lost <= self.may_lose, f"{told.lost} acknowledged records are lost"
        assert not told.duplicated, f"{told.duplicated} records are there twice"
        assert not told.reordered, f"{told.reordered} records are out of order"
        assert not told.moved, f"{told.moved} records are not at their offsets"
        if not self.may_lose:
            assert not self.gap_count, f"a broker has missed {self.gap_count} batches"
            assert not load.problems, load.problems[:3]
            assert not self.reader.problems, self.reader.problems[:3]
            assert not told.gone, f"{told.gone} records were read that are gone"
        if self.timed and self.gap_limit_s is not None:
            assert gap_s < self.gap_limit_s, (
                f"nothing written for {gap_s:.1f} s {load.longest_gap}{self._excuse}"
            )
        if self.timed:
            assert load.rate >= self.min_rate, f"{load.rate:.0f} records/s{self._excuse}"

    def _has_equal_replicas(self, partition: int) -> bool:
        logs = {self.world.log_bytes(each, self.topic, partition) for each in self.brokers}
        return len(logs) == 1
