"""What the leader that ZooKeeper names says itself: offsets that must never fall.

A broker that is no leader any more, and does not know it, may tell old offsets to whoever asks it,
as one of Kafka does. So the questions here name the leader epoch: that broker refuses them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from broker_requests import BrokerConnection
from coordinator_places import OFFSETS, java_partition
from kazoo.exceptions import KazooException
from worker import Worker

from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.record.memory_records import batches
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from chaos_world import ChaosWorld

Answer = TypeVar("Answer")

ANSWER_S = 3.0
LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION, FETCH_VERSION = 6, 8, 13
LATEST = -1
UNCOMMITTED, COMMITTED = 0, 1
COORDINATOR_PARTITIONS = 3
UNREACHABLE = (OSError, AssertionError, KazooException)
"""What may come in place of an answer: AssertionError where the connection was closed."""


class Leader:
    """The leader of a partition as ZooKeeper has it, asked directly."""

    def __init__(self, world: ChaosWorld, partition: TopicPartition) -> None:
        state = world.state(partition.topic, partition.partition)
        self.partition = partition
        self.epoch = int(state["leader_epoch"])
        self.broker_id = int(state["leader"])
        self._port = world.ports.get(self.broker_id, 0)

    def connect(self) -> BrokerConnection:
        return BrokerConnection(self._port, ANSWER_S)

    def end_offset(self, connection: BrokerConnection, isolation: int = UNCOMMITTED) -> int:
        """The end that readers see; -1 where the broker does not answer as the leader of now."""
        topic, index = self.partition
        asked = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=self.epoch, timestamp=LATEST
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        answer = connection.ask(request, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        return -1 if answer.error_code else int(answer.offset)

    def values(
        self, connection: BrokerConnection, topic_id: UUID, start: int
    ) -> list[tuple[int, bytes]]:
        """Committed records of a topic id from an offset on; [] where it has none, or is not it."""
        asked = FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=self.epoch,
            fetch_offset=start,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
        )
        answer = connection.ask(request, FETCH_VERSION)
        if answer.error_code or answer.responses[0].partitions[0].error_code:
            return []
        return [
            (record.offset, record.value)
            for batch in batches(answer.responses[0].partitions[0].records)
            for record in batch.records()
            if record.offset >= start
        ]


def ask_leader(
    world: ChaosWorld,
    partition: TopicPartition,
    question: Callable[[Leader, BrokerConnection], Answer],
) -> Answer | None:
    """What the leader says to a question; None if it cannot be found, or does not answer."""
    with contextlib.suppress(*UNREACHABLE):
        leader = Leader(world, partition)
        with leader.connect() as connection:
            return question(leader, connection)
    return None


class Floor:
    """Numbers that must never fall, and which did."""

    def __init__(self) -> None:
        self.fallen: list[str] = []
        self.looks = 0
        self._least: dict[object, int] = {}

    def __getitem__(self, name: object) -> int:
        return self._least.get(name, 0)

    def note(self, name: object, least: int, found: int) -> None:
        """A number was found; it was at least this when somebody asked for it."""
        self.looks += 1
        if found < least:
            self.fallen.append(f"{name}: {found} after {least}")
        self._least[name] = max(self[name], found)


class OffsetWatcher(Worker):
    """Asks for the ends of a topic and the offsets of groups, all the time.

    Whoever asks after an acknowledgement, or after another answer, is told no less.
    """

    def __init__(
        self,
        world: ChaosWorld,
        topic: str,
        partitions: int,
        acked_end: Callable[[int], int],
        groups: list[str],
    ) -> None:
        super().__init__()
        self.ends = Floor()
        self.offsets = Floor()
        self._world = world
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._acked_end = acked_end
        self._groups = groups

    def __str__(self) -> str:
        return "the watcher of offsets"

    def step(self) -> None:
        for partition in self._partitions:
            self._look_at_end(partition)
        for group in self._groups:
            self._look_at_offsets(group)
        self.rest(0.05)

    def _look_at_end(self, partition: TopicPartition) -> None:
        # Before the leader is looked up: the records are then of its epoch or an earlier one.
        least = max(self.ends[partition], self._acked_end(partition.partition))
        found = ask_leader(self._world, partition, Leader.end_offset)
        if found is not None and found >= 0:
            self.ends.note(partition, least, found)

    def _look_at_offsets(self, group: str) -> None:
        index = java_partition(group, COORDINATOR_PARTITIONS)
        least = {each: self.offsets[group, each] for each in self._partitions}
        found = ask_leader(
            self._world,
            TopicPartition(OFFSETS, index),
            lambda leader, connection: committed_offsets(leader, connection, group),
        )
        for partition, offset in least.items() if found is not None else ():
            if partition in found or offset:
                self.offsets.note((group, partition), offset, found.get(partition, -1))


def committed_offsets(
    leader: Leader, connection: BrokerConnection, group: str
) -> dict[TopicPartition, int] | None:
    """The offsets of a group, from its coordinator; None if that is not the leader of now."""
    if leader.end_offset(connection) < 0:
        return None
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
    )
    (answer,) = connection.ask(request, OFFSET_FETCH_VERSION).groups
    if answer.error_code != ErrorCode.NONE:
        return None
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code
    }
