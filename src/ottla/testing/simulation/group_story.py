"""Members of a group share a topic: classic ones, those of KIP-848, or both in one group."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.clients.committed_offsets import GroupMembership
from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceKind,
    RebalanceListener,
)
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import CONSUMER_PROTOCOL, ConsumerConfig
from ottla.errors import KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import ConsumerGroupMetadataKey, GroupMetadataKey
from ottla.replication.partition import Partition
from ottla.structs import OFFSETS_TOPIC, TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.invariants import History, batches_of, partitions_of
from ottla.testing.simulation.story import PEACE_LIMIT_MS, TOPIC, Story
from ottla.testing.simulation.workload import POLL_MS, SimulatedClient

# How often the brokers have removed a group, according to __consumer_offsets.


class GroupStory(Story):
    """Members are killed, paused and shut down cleanly, and others join for a while."""

    def __init__(self, seed: int) -> None:
        self._members: list[GroupReader] = []
        self._awaits_work = False
        self._unaware: GroupReader | None = None
        """A member that is paused at work until another is given records of its partitions."""
        self._owners: list[RecordOwner] = []
        """The owners of these partitions when it was paused."""
        super().__init__(seed)
        self._protocols = self.world.random.choice(PROTOCOLS)
        self._ledger = GroupLedger(self.history, partial(count_removals, self.cluster, GROUP))
        self._ledger.ends.update(self.cluster.first_offsets)

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._start_writer("writer0", interval_ms=400)
        self._members += [self._start_member(f"member{number}") for number in range(MEMBERS)]

    def _start_member(self, name: str) -> GroupReader:
        protocol = self.world.random.choice(self._protocols)
        member = GroupReader(self.cluster, name, self._ledger, TOPIC, protocol)
        member.process.spawn(member.run(), "read in a group")
        return member

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [
            self._kill_member,
            self._pause_member,
            self._stop_member,
            self._add_member,
            *[self._pause_member_at_work] * PAUSE_AT_WORK_WEIGHT,
        ]

    def _kill_member(self, chance: random.Random) -> str:
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].process.kill()
        self._members[index] = self._start_member(name)
        return f"kill {name} and start it again"

    def _pause_member(self, chance: random.Random) -> str:
        member, delay_ms = chance.choice(self._members), chance.randint(1_000, 12_000)
        member.process.pause()
        self.world.loop.add_timer(delay_ms, member.process.resume)
        return f"pause {member.name} for {delay_ms} ms"

    def _stop_member(self, chance: random.Random) -> str:
        """Stop a member cleanly; another replaces it."""
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].is_told_to_stop = True
        self._members[index] = self._start_member(name)
        return f"stop {name} and start it again"

    def _add_member(self, chance: random.Random) -> str:
        delay_ms = chance.randint(1_000, 10_000)
        guest = self._start_member("guest")

        def leave() -> None:
            guest.is_told_to_stop = True

        self.world.loop.add_timer(delay_ms, leave)
        return f"one more member for {delay_ms} ms"

    def _pause_member_at_work(self, chance: random.Random) -> str:
        """Pause the next member between records and their commit, until it has a successor."""
        self._awaits_work = True
        return "wait for a member that works on records, to pause it"

    def _look(self) -> None:
        super()._look()
        if self._awaits_work and not self.nemesis.is_stopped:
            busy = (each for each in self._members if each.at_work and each.process.is_running)
            member = next(busy, None)
            if member is not None:
                self._awaits_work = False
                self._unaware = member
                self._owners = self._owners_of_work(member)
                member.process.pause()
                self.world.loop.add_timer(MAX_PAUSE_AT_WORK_MS, member.process.resume)
        elif self._unaware is not None and self._owners != self._owners_of_work(self._unaware):
            self._unaware.process.resume()
            self._unaware = None

    def _owners_of_work(self, member: GroupReader) -> list[RecordOwner]:
        return [self._ledger.owner_of(partition) for partition in member.at_work]

    def _end(self) -> None:
        super()._end()
        if self.history.violations:
            return
        if not self.world.run_until(self._has_got_everything, PEACE_LIMIT_MS):
            self.history.violations.append(
                f"the group has got {self._ledger.ends} only: {self._state()}"
            )

    def _has_got_everything(self) -> bool:
        return all(self._ledger.ends.get(tp, 0) >= self._end_of(tp) for tp in self.partitions)


def count_removals(cluster: SimulatedCluster, group_id: str) -> int:
    """Count the committed batches that remove the last records of the group.

    A group that migrates to the consumer protocol loses the record of one kind as well, but gets
    one of the other kind in the same batch. One that returns to the classic protocol is counted:
    if its coordinator dies before it has members again, its generations start from scratch.
    """
    kinds = GroupMetadataKey(group=group_id), ConsumerGroupMetadataKey(group=group_id)
    keys = {encode_versioned(key, key.max_version) for key in kinds}
    logs: dict[TopicPartition, Partition] = {}
    for host in cluster.hosts:
        for partition in partitions_of(host) if host.is_running else ():
            name = partition.topic_partition
            if name.topic == OFFSETS_TOPIC:
                known = logs.setdefault(name, partition)
                logs[name] = max(known, partition, key=lambda each: each.high_watermark)
    count = 0
    for partition in logs.values():
        start, end = partition.log.log_start_offset, partition.high_watermark
        for batch in batches_of(partition, start, end):
            values = [record.value for record in batch.records() if record.key in keys]
            count += bool(values) and not any(values)
    return count


# What a group was given and has committed, as its members report it, and what is impossible.


class RecordOwner(NamedTuple):
    """The member that was given a partition's records, and its generation or member epoch."""

    generation: int
    member_id: str


NOBODY = RecordOwner(-1, "")


class GroupLedger:
    """The ledger of one group: all of its members report what they were given and committed.

    - No partition is given to two members in one generation.
    - No record is skipped: the next reader of a partition starts where the last was, or earlier.
    - No commit of a member is accepted once a newer member has the partition.
    - No two members of one generation own a partition, each until it was told that it is revoked.

    A group without members and offsets is removed; the next one of its name counts generations
    from scratch. `removals` returns how often that has happened.
    """

    def __init__(self, history: History, removals: Callable[[], int] = lambda: 0) -> None:
        self.history = history
        self._removals = removals
        self._known_removals = 0
        self._former_members: set[str] = set()
        self.ends: dict[TopicPartition, int] = {}
        self._owners: dict[tuple[TopicPartition, int], str] = {}
        self._latest: dict[TopicPartition, RecordOwner] = {}
        self._members: list[GroupReader] = []

    def note_joined(self, member: GroupReader) -> None:
        """Note a process that is a member of the group, or soon will be."""
        self._members.append(member)

    def note_assigned(self, member: GroupReader, partitions: Iterable[TopicPartition]) -> None:
        """Note that a member is told of partitions that it owns from now on."""
        own = member.membership
        for other in self._members:
            shared = other.owned.intersection(partitions)
            if (
                shared
                and other is not member
                and other.process.is_alive
                and other.membership.generation == own.generation
                and other.membership.member_id not in self._former_members
                and not self._has_begun_anew()
            ):
                self._complain(
                    f"{sorted(shared)} were given to {own} while {other.membership} had them"
                )

    def note_given(
        self, partition: TopicPartition, offset: int, membership: GroupMembership
    ) -> None:
        """Note that a member was given a record; the partition has no transactions in it."""
        end = self.ends.get(partition, 0)
        if offset > end:
            self._complain(
                f"{partition}: {membership.member_id} was given offset {offset}; nobody had {end}"
            )
        self.ends[partition] = max(end, offset + 1)
        if membership.member_id not in self._former_members:
            self._note_owner(partition, membership)

    def _note_owner(self, partition: TopicPartition, membership: GroupMembership) -> None:
        generation, member_id = membership.generation, membership.member_id
        owner = self._owners.setdefault((partition, generation), member_id)
        if owner != member_id:
            if self._has_begun_anew():
                self._owners[partition, generation] = member_id
            else:
                self._complain(
                    f"{partition} was given to {owner} and to {member_id} in generation "
                    f"{generation}"
                )
        if generation > self.owner_of(partition).generation:
            self._latest[partition] = RecordOwner(generation, member_id)

    def _has_begun_anew(self) -> bool:
        """Whether the group was removed since the last call; forgets its owners if so."""
        count = self._removals()
        if count == self._known_removals:
            return False
        self._known_removals = count
        self._former_members.update(self._owners.values())
        self._owners.clear()
        self._latest.clear()
        return True

    def owner_of(self, partition: TopicPartition) -> RecordOwner:
        """The member that was given records of the partition in the newest generation so far."""
        return self._latest.get(partition, NOBODY)

    def note_committed(
        self, partition: TopicPartition, owner: RecordOwner, membership: GroupMembership
    ) -> None:
        """Note an accepted commit; `owner` had the partition when the commit was sent."""
        is_stale = owner.generation > membership.generation
        if owner.member_id != membership.member_id and is_stale and not self._has_begun_anew():
            self._complain(
                f"{partition}: a commit of {membership} was taken; {owner} had the partition"
            )

    def _complain(self, text: str) -> None:
        self.history.violations.append(text)


# A member of a group that reads, spends time on the records, and commits.


GROUP: Final = "readers"
COMMIT_TIMEOUT_MS: Final = 8_000
CLOSE_TIMEOUT_MS: Final = 1_000
SESSION_TIMEOUT_MS: Final = 6_000
MAX_WORK_MS: Final = 300
RESTART_MS: Final = 300


def group_settings(protocol: str) -> dict[str, object]:
    """The settings of a member; with the classic protocol it sets its own timeouts."""
    if protocol == CONSUMER_PROTOCOL:
        return {"group.protocol": protocol}
    return {
        "group.protocol": protocol,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 1_000,
    }


class GroupReader(SimulatedClient):
    """One process of a member; requests to it wait until it has committed what it works on."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, ledger: GroupLedger, topic: str, protocol: str
    ) -> None:
        super().__init__(cluster, name, ledger.history)
        self.topic = topic
        self._ledger = ledger
        ledger.note_joined(self)
        self.owned: set[TopicPartition] = set()
        """The partitions that it was told that it has."""
        self.at_work: tuple[TopicPartition, ...] = ()
        """The partitions of which it was given records that it has not yet committed."""
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": 20_000,
                "request.timeout.ms": 5_000,
                **group_settings(protocol),
            }
        )
        self.core = ConsumerCore(self.process.runtime, config)

    async def run(self) -> None:
        self.core.subscribe([self.topic], RebalanceListener())
        while not self.is_told_to_stop:
            try:
                outcome = await self.core.poll(Deadline(self.process.clock, POLL_MS))
                if not isinstance(outcome, list):
                    self._note_event(outcome)
                    self.core.acknowledge()
                elif outcome:
                    await self._work(outcome)
            except KafkaError:
                await self.pause(RESTART_MS)  # the next poll joins again, if necessary
        self.owned.clear()
        await self.core.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        self.is_done = True

    @property
    def membership(self) -> GroupMembership:
        """Its member id, and the generation that it is in."""
        assert self.core.coordinator is not None
        return self.core.coordinator.member.membership

    def _note_event(self, event: RebalanceEvent) -> None:
        if event.kind is RebalanceKind.ASSIGNED:
            self._ledger.note_assigned(self, event.partitions)
            self.owned.update(event.partitions)
        else:
            self.owned.difference_update(event.partitions)

    async def _work(self, records: list[ConsumerRecord]) -> None:
        membership = (await self.core.group_metadata()).membership
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._ledger.note_given(partition, record.offset, membership)
            self.history.note_seen(partition, record.offset, record.value)
            offsets[partition] = OffsetAndMetadata(record.offset + 1)
        self.at_work = tuple(offsets)
        await self.pause(self.process.runtime.random.randint(1, MAX_WORK_MS))
        self.at_work = ()
        owners = {partition: self._ledger.owner_of(partition) for partition in offsets}
        before = self.membership
        await self.core.commit(offsets, Deadline(self.process.clock, COMMIT_TIMEOUT_MS))
        # A membership may end while the answer is on its way; a retry uses the one of that time.
        newest = max(before, self.membership, key=attrgetter("generation"))
        for partition, owner in owners.items():
            self._ledger.note_committed(partition, owner, newest)


MEMBERS: Final = 2
PAUSE_AT_WORK_WEIGHT: Final = 3
"""How much likelier than another fault it is that a member does not notice its successor."""
MAX_PAUSE_AT_WORK_MS: Final = 15_000
CLASSIC: Final = "classic"
PROTOCOLS: Final[tuple[tuple[str, ...], ...]] = (
    (CONSUMER_PROTOCOL,),
    (CONSUMER_PROTOCOL,),
    (CLASSIC,),
    (CLASSIC, CONSUMER_PROTOCOL),
)
"""The protocols in a story; each process of a member speaks one of them."""
