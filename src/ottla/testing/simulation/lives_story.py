"""A topic that is deleted and made again under the same name, and grows, while all is in use.

Transactions write to it and to a topic that stays; a group, consumers of both protocols, and a
reader without a group read it. Each life of the topic has an id of its own:

- no client is given a record that the life that it knows of does not have;
- of the last life every committed record is read, also behind offsets of an earlier one;
- a transaction counts in the topic that stays as a whole, also where the other part is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final
from uuid import UUID

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import ConsumerConfig
from ottla.errors import KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing.simulation.administrator import Administrator
from ottla.testing.simulation.append_story import AppendStory
from ottla.testing.simulation.group_ledger import (
    CLOSE_TIMEOUT_MS,
    COMMIT_TIMEOUT_MS,
    RESTART_MS,
    group_settings,
)
from ottla.testing.simulation.group_story import PROTOCOLS
from ottla.testing.simulation.invariants import (
    History,
    batches_of,
    partition_at,
    records_of,
    replicas_of,
)
from ottla.testing.simulation.story import PARTITIONS, REPLICAS
from ottla.testing.simulation.workload import POLL_MS, SimulatedClient

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster

LIVES: Final = "lives"
GROUP: Final = "of-lives"
READERS: Final = ("reader", "member0", "member1")
LAST_LIFE_LIMIT_MS: Final = 60_000
WORK_MS: Final = 700
NEW_LIFE_WEIGHT: Final = 4
"""How much likelier a new life is than another fault."""


class LivesStory(AppendStory):
    """Appenders write to both topics; an administrator deletes one of them, and makes it again."""

    settings: ClassVar[Mapping[str, str | int]] = {"auto.create.topics.enable": "false"}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.watcher.made_again.add(LIVES)
        self._is_between_lives = False
        self._administrator = Administrator(self.cluster, "administrator", self.history)
        self._readers: list[LifeReader] = []

    def _begin(self) -> None:
        self._make_topic(LIVES)
        super()._begin()
        protocols = self.world.random.choice(PROTOCOLS)
        for name in READERS:
            protocol = None if name == "reader" else self.world.random.choice(protocols)
            reader = LifeReader(self.cluster, name, self.history, protocol)
            reader.process.spawn(reader.run(), "read the lives")
            self._readers.append(reader)

    @property
    def _written(self) -> list[TopicPartition]:
        return self.partitions + [TopicPartition(LIVES, index) for index in range(PARTITIONS)]

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [*super()._more_faults(), *[self._begin_new_life] * NEW_LIFE_WEIGHT, self._grow]

    def _begin_new_life(self, chance: random.Random) -> str:
        if self._is_between_lives:
            return "a life is being ended still"
        self._is_between_lives = True
        self._administrator.process.spawn(self._make_again(), "make again")
        return f"delete topic {LIVES}, and make it again"

    async def _make_again(self) -> None:
        await self._administrator.make_again(LIVES, PARTITIONS, REPLICAS)
        self._is_between_lives = False

    def _grow(self, chance: random.Random) -> str:
        count = PARTITIONS + chance.randint(1, 2)
        self._administrator.grow(LIVES, count)
        return f"let topic {LIVES} have {count} partitions"

    def _is_whole(self) -> bool:
        return not self._is_between_lives and super()._is_whole()

    def _end(self) -> None:
        super()._end()
        if self.history.violations:
            return
        self._await_records("reader", self._readers[:1])
        self._await_records("group", self._readers[1:])

    def _await_records(self, name: str, readers: list[LifeReader]) -> None:
        if not self.world.run_until(lambda: not self._missing(readers), LAST_LIFE_LIMIT_MS):
            missing = sorted(self._missing(readers))[:5]
            self.history.violations.append(f"{LIVES}: the {name} has not read {missing}")

    def _missing(self, readers: list[LifeReader]) -> set[bytes]:
        """The committed records of the last life that no reader was given."""
        missing: set[bytes] = set()
        for index in range(PARTITIONS):
            topic_partition = TopicPartition(LIVES, index)
            replica = replicas_of(self.cluster, topic_partition)[0]
            values = set(records_of(replica, 0, replica.high_watermark).values())
            # Those that came while a broker did not know the topic yet are of some life, too.
            lives = (replica.topic_id, NO_UUID)
            read = (reader.read.get(life, set()) for reader in readers for life in lives)
            missing |= (values & self._appends.committed).difference(*read)
        return missing


class LifeReader(SimulatedClient):
    """Reads the topic, in a group or alone, and checks the life of each record."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, history: History, protocol: str | None
    ) -> None:
        super().__init__(cluster, name, history)
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "request.timeout.ms": 5_000,
            "metadata.max.age.ms": 5_000,
            "isolation.level": "read_committed",
        }
        if protocol is not None:
            config |= {"group.id": GROUP, "max.poll.interval.ms": 20_000}
            config |= group_settings(protocol)
        self._has_group = protocol is not None
        self._names_offsets = name == READERS[-1]
        self.core = ConsumerCore(self.process.runtime, ConsumerConfig.parse(config))
        self.read: dict[UUID, set[bytes]] = {}
        """The values of each life, by its topic id."""

    async def run(self) -> None:
        """Read until the end."""
        if self._has_group:
            self.core.subscribe([LIVES], RebalanceListener())
        else:
            self.core.assign([TopicPartition(LIVES, index) for index in range(PARTITIONS)])
        while not self.is_told_to_stop:
            try:
                outcome = await self.core.poll(Deadline(self.process.clock, POLL_MS))
                if not isinstance(outcome, list):
                    self.core.acknowledge()
                elif outcome:
                    await self._take(outcome)
            except KafkaError:
                await self.pause(RESTART_MS)
        await self.core.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        self.is_done = True

    async def _take(self, records: list[ConsumerRecord]) -> None:
        topic = self.core.metadata.cluster.topics.get(LIVES)
        topic_id = NO_UUID if topic is None else topic.topic_id
        for record in records:
            self.read.setdefault(topic_id, set()).add(record.value)
            self._check(TopicPartition(record.topic, record.partition), topic_id, record)
        if self._has_group:
            await self._commit(records)

    async def _commit(self, records: list[ConsumerRecord]) -> None:
        """Commit the positions at once, or by name, after a while, what was given.

        Then the topic may have been made again, and the consumer know of that.
        """
        offsets: dict[TopicPartition, OffsetAndMetadata] | None = None
        if self._names_offsets:
            await self.pause(WORK_MS)
            offsets = {
                TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset + 1)
                for each in records
            }
        await self.core.commit(offsets, Deadline(self.process.clock, COMMIT_TIMEOUT_MS))

    def _check(
        self, topic_partition: TopicPartition, topic_id: UUID, record: ConsumerRecord
    ) -> None:
        """Compare a record with the logs of the life that the client knows of."""
        for host in self.cluster.hosts:
            known = partition_at(host, topic_partition) if host.is_alive else None
            if known is None or known.topic_id != topic_id or known.log.log_dir.is_offline:
                continue
            for batch in batches_of(known, record.offset, known.high_watermark):
                there = {each.offset: each.value for each in batch.records()}
                if there.get(record.offset) != record.value:
                    self.history.violations.append(
                        f"{topic_partition}: {self.name}, which knows of topic id {topic_id}, "
                        f"was given {record.value!r} at offset {record.offset}; {host.name} has "
                        f"{there.get(record.offset)!r} there"
                    )
                return
