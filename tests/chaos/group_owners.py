"""Members of groups that come and go, and who was given what, in which generation."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterable

from worker import Worker

import ottla
from ottla.structs import TopicPartition

MEMBERS = 2
MOST_POLLS, PAUSE_S = 80, 0.1
SESSION_MS = 6_000


class GroupOwners:
    """What the members of one group were given: no partition of two, and no offset left out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.two_owners: list[str] = []
        self.gaps: list[str] = []
        self.given = 0
        self._owners: dict[tuple[TopicPartition, int], str] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()

    def note_owner(
        self, partitions: Iterable[TopicPartition], generation: int, member: str
    ) -> None:
        """A member has these partitions in a generation, as it says; 0 and -1 are none."""
        if generation <= 0:
            return
        with self._lock:
            for partition in partitions:
                owner = self._owners.setdefault((partition, generation), member)
                if owner != member:
                    self.two_owners.append(
                        f"{self.name}: {partition} is {owner}'s and {member}'s in {generation}"
                    )

    def note_given(self, partition: TopicPartition, offset: int) -> None:
        """A member was given a record."""
        with self._lock:
            self.given += 1
            end = self._ends.get(partition, 0)
            if offset > end:
                self.gaps.append(f"{self.name}: {partition} {offset}, and nobody had {end}")
            self._ends[partition] = max(end, offset + 1)


class GroupMember(Worker):
    """Reads, commits what it has read, leaves after a while, and joins as another one."""

    def __init__(
        self, servers: str, topic: str, owners: GroupOwners, protocol: str, seed: object
    ) -> None:
        super().__init__()
        self.owners = owners
        self._topic = topic
        self._chance = random.Random(f"{seed}")
        settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "group.id": owners.name,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        self._settings = settings

    def __str__(self) -> str:
        return f"a member of {self.owners.name}"

    def step(self) -> None:
        """A member's life."""
        with ottla.Consumer(settings=self._settings) as consumer:
            consumer.subscribe([self._topic])
            for _ in range(self._chance.randint(1, MOST_POLLS)):
                if not self.rest(PAUSE_S):
                    return
                with contextlib.suppress(ottla.KafkaError):
                    self._read(consumer)

    def _read(self, consumer: ottla.Consumer) -> None:
        records = consumer.poll(200)
        if not records:
            return
        membership = consumer.group_metadata().membership
        places = {TopicPartition(each.topic, each.partition) for each in records}
        self.owners.note_owner(places, membership.generation, membership.member_id)
        for record in records:
            self.owners.note_given(TopicPartition(record.topic, record.partition), record.offset)
        consumer.commit()
