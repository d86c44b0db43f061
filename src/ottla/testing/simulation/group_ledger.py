"""Readers of a group, and a ledger of their partitions and commits that finds contradictions."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceKind,
    RebalanceListener,
)
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import CONSUMER_PROTOCOL, ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.workload import POLL_MS, SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.committed_offsets import GroupMembership
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.testing.simulation.cluster import SimulatedCluster
    from ottla.testing.simulation.invariants import History

GROUP: Final = "readers"
COMMIT_TIMEOUT_MS: Final = 8_000
CLOSE_TIMEOUT_MS: Final = 1_000
SESSION_TIMEOUT_MS: Final = 6_000
MAX_WORK_MS: Final = 300
RESTART_MS: Final = 300


class RecordOwner(NamedTuple):
    """The member that was given a partition's records, and its generation or member epoch."""

    generation: int
    member_id: str


NOBODY = RecordOwner(-1, "")


class GroupLedger:
    """The ledger of one group: its members report the partitions given to them, and their commits.

    - No partition is given to two members in one generation.
    - No record is skipped: the next reader of a partition starts where the last was, or earlier.
    - No commit of a member is accepted once a newer member has the partition.
    - No two members of one generation own a partition, each until its revocation has arrived.

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
        """Note that partitions are assigned to a member, which owns them from now on."""
        own = member.membership
        for other in self._members:
            shared = other.owned.intersection(partitions)
            if (
                shared
                and other is not member
                and other.process.is_alive
                and other.membership.member_id != own.member_id
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


def group_settings(protocol: str) -> dict[str, object]:
    """The settings of a member; with the classic protocol it sets its own timeouts."""
    if protocol == CONSUMER_PROTOCOL:
        return {"group.protocol": protocol}
    return {
        "group.protocol": protocol,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 1_000,
    }


def identity(membership: GroupMembership) -> GroupMembership:
    """The membership by which owners are told apart: an instance is itself under each id."""
    return membership._replace(member_id=membership.instance_id or membership.member_id)


class GroupReader(SimulatedClient):
    """One process of a member; requests to it wait until it has committed its current records."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        ledger: GroupLedger,
        topic: str,
        protocol: str,
        **settings: object,
    ) -> None:
        super().__init__(cluster, name, ledger.history)
        self.topics: tuple[str, ...] = (topic,)
        """It subscribes to these when it next polls."""
        self._ledger = ledger
        ledger.note_joined(self)
        self.owned: set[TopicPartition] = set()
        """The partitions that were assigned to it."""
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
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.core = ConsumerCore(self.process.runtime, config)

    async def run(self) -> None:
        subscribed: tuple[str, ...] = ()
        while not self.is_told_to_stop:
            try:
                if self.topics != subscribed:
                    subscribed = self.topics
                    self.core.subscribe(subscribed, RebalanceListener())
                outcome = await self.core.poll(Deadline(self.process.clock, POLL_MS))
                if not isinstance(outcome, list):
                    self._note_event(outcome)
                    self.core.acknowledge()
                elif outcome:
                    await self._work(outcome)
            except KafkaError as error:
                if error.error is ErrorCode.FENCED_INSTANCE_ID:
                    break  # another process is this instance now
                await self.pause(RESTART_MS)  # the next poll joins again, if necessary
        self.owned.clear()
        await self.core.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        self.is_done = True

    @property
    def membership(self) -> GroupMembership:
        """Its member id, and the generation that it is in."""
        assert self.core.coordinator is not None
        return identity(self.core.coordinator.member.membership)

    def _note_event(self, event: RebalanceEvent) -> None:
        if event.kind is RebalanceKind.ASSIGNED:
            self._ledger.note_assigned(self, event.partitions)
            self.owned.update(event.partitions)
        else:
            self.owned.difference_update(event.partitions)

    async def _work(self, records: list[ConsumerRecord]) -> None:
        membership = identity(self.core.group_metadata().membership)
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
        commits = [(GROUP, partition, offset.offset) for partition, offset in offsets.items()]
        self.history.commits |= dict.fromkeys(commits, math.inf)
        await self.core.commit(offsets, Deadline(self.process.clock, COMMIT_TIMEOUT_MS))
        self.history.commits |= dict.fromkeys(commits, self.cluster.world.now_ms)
        # A membership may end while the answer is on its way; a retry uses the one of that time.
        newest = max(before, self.membership, key=attrgetter("generation"))
        for partition, owner in owners.items():
            self._ledger.note_committed(partition, owner, newest)
