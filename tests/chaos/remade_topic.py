"""A topic that is deleted and made again under its name, again and again, while it is written to.

Each life has a topic id of its own. What was acknowledged in a life is read by that id before the
life ends: all of it, once, in order, and nothing that was acknowledged in an earlier one.
"""

from __future__ import annotations

import contextlib
import itertools
from uuid import UUID

from chaos_load import PARTITIONS
from chaos_world import BROKERS, ChaosWorld
from direct_reads import UNREACHABLE, ask_leader
from worker import Worker

import ottla
from ottla import Admin, NewTopic
from ottla.structs import TopicPartition

RECORDS = 40
WAIT_S = 0.1
REQUEST_MS, DELIVERY_MS = 15_000, 60_000
"""A request is not sent again while a fault holds it: it names its topic by name, and would be
written to the next life when it is let go."""


class RemadeTopic(Worker):
    """Its lives, one after the other, with one producer for all of them."""

    def __init__(self, world: ChaosWorld, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.lives = 0
        self.stale: list[str] = []
        """Records of an earlier life that were read by the id of a later one."""
        self.lost: list[str] = []
        self.duplicated: list[str] = []
        self.reordered: list[str] = []
        self._world = world
        self._numbers = itertools.count()
        self._acked_before: set[int] = set()
        self._is_last = False
        self._last_id: UUID | None = None
        servers = world.bootstrap_servers
        self._admin = Admin(servers, request_timeout_ms=5_000)
        self._producer = ottla.Producer(
            servers,
            linger_ms=2,
            max_block_ms=5_000,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=DELIVERY_MS,
            metadata_max_age_ms=1_000,
        )

    def __str__(self) -> str:
        return "the maker of topics"

    def step(self) -> None:
        """One life: made, written to, read, deleted."""
        topic_id = self._make()
        if topic_id is None:
            return
        acked = self._write()
        if acked is None:
            return
        for partition, numbers in acked.items():
            self._check(topic_id, partition, numbers)
            self._acked_before |= set(numbers)
        self.lives += 1
        self._delete(topic_id)

    def close(self) -> None:
        self._producer.close(5)
        self._admin.close()

    def _id(self) -> UUID | None:
        """The id of the life that ZooKeeper knows of; None where that cannot be said."""
        with contextlib.suppress(*UNREACHABLE):
            if found := self._world.topic_id(self.topic):
                return found
        return None

    def _make(self) -> UUID | None:
        """The id of a new life, once ZooKeeper has it; None if it is told to stop before."""
        configs = {"min.insync.replicas": "2"}
        new = NewTopic(self.topic, PARTITIONS, len(BROKERS), configs=configs)
        while self.rest(WAIT_S):
            with contextlib.suppress(ottla.KafkaError):
                self._admin.create_topics([new])
            topic_id = self._id()
            if topic_id is not None and topic_id != self._last_id:
                return topic_id
        return None

    def _write(self) -> dict[int, list[int]] | None:
        """The numbers that were acknowledged, by partition; None if some may still be on its way.

        All have an outcome when it returns: nothing of this life's producer comes later.
        """
        sent = []
        while len(sent) < RECORDS and self.rest(0):
            number = next(self._numbers)
            partition = number % PARTITIONS
            try:
                future = self._producer.send(self.topic, b"%d" % number, partition=partition)
            except ottla.KafkaError:
                self.rest(WAIT_S)
                continue
            sent.append((partition, number, future))
        acked: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        for partition, number, future in sent:
            if future.exception(2 * DELIVERY_MS / 1000) is None:
                acked[partition].append(number)
        return acked

    def _check(self, topic_id: UUID, partition: int, acked: list[int]) -> None:
        """Read a partition by the id, from its start to its end."""
        read = self._read(topic_id, TopicPartition(self.topic, partition))
        if read is None:
            return
        what = f"{self.topic}-{partition} of {topic_id}"
        if stale := self._acked_before.intersection(read):
            self.stale.append(f"{what} has {sorted(stale)[:5]} of an earlier life")
        if lost := set(acked).difference(read):
            self.lost.append(f"{what} has no {sorted(lost)[:5]}")
        if len(set(read)) < len(read):
            self.duplicated.append(f"{what} has some of {read[:9]} twice")
        if sorted(set(read)) != list(dict.fromkeys(read)):
            self.reordered.append(f"{what} has {read[:9]}")

    def _read(self, topic_id: UUID, place: TopicPartition) -> list[int] | None:
        """The numbers in a partition; None if it is told to stop before all are read."""
        read: list[int] = []
        offset = 0
        while self.rest(WAIT_S):
            answer = ask_leader(
                self._world,
                place,
                lambda leader, connection, start=offset: (
                    leader.end_offset(connection),
                    leader.values(connection, topic_id, start),
                ),
            )
            if answer is None:
                continue
            end, found = answer
            read += [int(value) for _, value in found]
            offset = found[-1][0] + 1 if found else offset
            if 0 <= end <= offset:
                return read
        return None

    def _delete(self, topic_id: UUID) -> None:
        """Have the life end; it has ended when ZooKeeper has it no more."""
        self._last_id = topic_id
        while self.rest(WAIT_S):
            with contextlib.suppress(ottla.KafkaError):
                self._admin.delete_topics([self.topic])
            with contextlib.suppress(*UNREACHABLE):
                if self._world.topic_id(self.topic) is None:
                    return
