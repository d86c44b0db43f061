"""A story with every kind of client and every kind of fault at once, and what became of it all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from broker_requests import BrokerConnection
from chaos_load import LIMIT_S, PARTITIONS
from chaos_story import Story
from chaos_world import BROKERS, ChaosWorld
from coordinator_places import OFFSETS, TRANSACTIONS
from direct_reads import COMMITTED, UNCOMMITTED, Leader, OffsetWatcher, ask_leader
from group_owners import MEMBERS, GroupMember, GroupOwners
from ledger import Fate, Ledger
from ledger_clients import (
    ConfluentReader,
    ConfluentWriter,
    LedgerReader,
    LedgerWriter,
    OttlaReader,
    OttlaWriter,
)
from mixed_faults import MixedFaults
from remade_topic import RemadeTopic
from worker import Worker

from ottla import Admin, KafkaError, NewTopic
from ottla.structs import TopicPartition
from ottla.testing import NeverHappenedError, wait_until

LEDGER, REMADE = "ledger", "remade"
PROTOCOLS = ("classic", "consumer")


class Mixture:
    """The clients beside the load of a story, and what they have found wrong."""

    def __init__(self, told: Story) -> None:
        self.told = told
        self.world: ChaosWorld = told.world
        world, servers, seed = told.world, told.world.bootstrap_servers, told.seed
        self.ledger = Ledger()
        self.writers: list[LedgerWriter] = [
            OttlaWriter(servers, LEDGER, "ottla", self.ledger, seed),
            ConfluentWriter(servers, LEDGER, "librdkafka", self.ledger, seed),
        ]
        self.readers: list[LedgerReader] = [
            OttlaReader(servers, LEDGER, "ottla", self.ledger),
            ConfluentReader(servers, LEDGER, "librdkafka", self.ledger),
        ]
        self.groups = [GroupOwners(f"group-{protocol}") for protocol in PROTOCOLS]
        self.members = [
            GroupMember(servers, told.topic, group, protocol, f"{seed}-{protocol}-{number}")
            for group, protocol in zip(self.groups, PROTOCOLS, strict=True)
            for number in range(MEMBERS)
        ]
        self.remade = RemadeTopic(world, REMADE)
        names = [group.name for group in self.groups]
        self.watcher = OffsetWatcher(
            world, told.topic, PARTITIONS, told.load.acked_ends.__getitem__, names
        )
        self.out_of_sync: list[str] = []
        self.hanging: list[str] = []
        self._wrong_at_the_end: list[str] = []

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self.writers, *self.readers, *self.members, self.remade, self.watcher]

    @property
    def moving_topics(self) -> list[str]:
        """The topics whose partitions may be moved."""
        return [self.told.topic, LEDGER, OFFSETS, TRANSACTIONS]

    def begin(self) -> None:
        """Let all clients begin, and wait until each has done something."""
        settings = {"min.insync.replicas": "2", "segment.bytes": "200000"}
        with Admin(self.world.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(LEDGER, PARTITIONS, len(BROKERS), configs=settings)])
        for worker in self.workers:
            worker.begin()
        self.until_all_have_more()

    def until_all_have_more(self) -> None:
        """Wait until transactions were committed, and more was read and given."""
        committed = self.ledger.count(Fate.COMMITTED)
        given = [group.given for group in self.groups]
        lives, offsets = self.remade.lives, self.watcher.offsets.looks
        wait_until(
            lambda: (
                self.ledger.count(Fate.COMMITTED) > committed
                and all(g.given > n for g, n in zip(self.groups, given, strict=True))
                and self.remade.lives > lives
                and self.watcher.offsets.looks > offsets
            ),
            "all clients go on",
            LIMIT_S,
            seen=lambda: (self.problems, self.summary()),
        )

    def end(self) -> None:
        """Once there is peace: what was moved comes back, and the clients end."""
        self.until_all_have_more()
        self._bring_replicas_back()
        for worker in [*self.writers, *self.members, self.remade]:
            worker.tell_to_stop()
        for worker in [*self.writers, *self.members, self.remade]:
            worker.join(LIMIT_S)
        self._count_hanging()
        self._read_to_the_end()
        for worker in [*self.readers, self.watcher]:
            worker.join(LIMIT_S)

    def stop(self) -> None:
        """Whatever has failed: leave nothing running."""
        for worker in self.workers:
            worker.tell_to_stop()

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for topic in self.moving_topics for p in range(PARTITIONS)]

    def _bring_replicas_back(self) -> None:
        """Every partition has its three replicas again, and all of them are in sync."""
        world, partitions = self.world, self._partitions()
        wait_until(lambda: self._is_asked_back(partitions), "all replicas are asked back", LIMIT_S)
        lagging = left(partitions, lambda each: world.in_sync(*each) == set(BROKERS))
        self.out_of_sync = [f"{each}: {world.state(*each)}" for each in lagging]

    def _is_asked_back(self, partitions: Sequence[TopicPartition]) -> bool:
        wanted = dict.fromkeys(partitions, BROKERS)
        try:
            with Admin(self.world.bootstrap_servers) as admin:
                admin.alter_partition_reassignments(wanted)
        except KafkaError:
            return False
        return True

    def _count_hanging(self) -> None:
        """No transaction is open any more: readers of committed records get to the end."""
        self.hanging = [str(p) for p in left(self._partitions(), self._has_no_open_transaction)]

    def _has_no_open_transaction(self, partition: TopicPartition) -> bool:
        ends = ask_leader(self.world, partition, both_ends)
        return ends is not None and 0 <= ends[0] == ends[1]

    def _read_to_the_end(self) -> None:
        """Wait until the readers have seen all, and note what is wrong with it."""

        def wrong() -> list[str]:
            return [each for reader in self.readers for each in reader.view.wrong_at_the_end()]

        try:
            wait_until(lambda: not wrong(), "all is read", LIMIT_S)
        except NeverHappenedError:
            self._wrong_at_the_end = wrong()

    @property
    def problems(self) -> list[str]:
        """What clients were told that they must not be told."""
        return [each for worker in self.workers for each in worker.problems]

    def counts(self) -> Iterator[tuple[str, list[str]]]:
        """What must not be, each kind with what was found of it."""
        views = [reader.view for reader in self.readers]
        yield "aborted_seen", [each for view in views for each in view.aborted]
        yield "gaps_seen", [each for view in [*views, *self.groups] for each in view.gaps]
        yield "reordered_seen", [each for view in views for each in view.reordered]
        yield "torn", self._wrong_at_the_end
        yield "two_owners", [each for group in self.groups for each in group.two_owners]
        yield "offsets_fallen", self.watcher.offsets.fallen
        yield "ends_fallen", self.watcher.ends.fallen
        yield "hanging", self.hanging
        yield "out_of_sync", self.out_of_sync
        yield "stale_lives", self.remade.stale
        remade = self.remade
        yield "lost_in_lives", remade.lost
        yield "twice_in_lives", remade.duplicated + remade.reordered
        yield "problems", self.problems

    def summary(self) -> str:
        """How much was done."""
        fates = " ".join(f"{f.name.lower()}={self.ledger.count(f)}" for f in Fate)
        shown = [sum(map(len, reader.view.shown.values())) for reader in self.readers]
        given = {group.name: group.given for group in self.groups}
        looks = self.watcher.ends.looks, self.watcher.offsets.looks
        return f"{fates} shown={shown} given={given} lives={self.remade.lives} looks={looks}"


def left(
    partitions: Sequence[TopicPartition], is_well: Callable[[TopicPartition], bool]
) -> Sequence[TopicPartition]:
    """The partitions that are not well after a while; none as soon as all have been."""

    def all_are_well() -> bool:
        nonlocal partitions
        partitions = [each for each in partitions if not is_well(each)]
        return not partitions

    with contextlib.suppress(NeverHappenedError):
        wait_until(all_are_well, "all partitions are well", LIMIT_S)
    return partitions


def both_ends(leader: Leader, connection: BrokerConnection) -> tuple[int, int]:
    """The end for readers of committed records, and the end for others."""
    stable, end = (leader.end_offset(connection, each) for each in (COMMITTED, UNCOMMITTED))
    return stable, end


def check(mixture: Mixture, faults: MixedFaults) -> None:
    """Print all counts; AssertionError with what was found if one of them is not 0."""
    counts = [*mixture.counts(), ("ended_by_itself", faults.ended)]
    print("  ", mixture.summary())
    print("   faults:", " ".join(f"{name}={n}" for name, n in sorted(faults.counts.items())))
    print("  ", " ".join(f"{name}={len(found)}" for name, found in counts), flush=True)
    wrong = {name: found[:5] for name, found in counts if found}
    assert not wrong, wrong
