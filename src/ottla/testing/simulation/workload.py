"""What clients do in a simulated world, with the real clients' cores, and what they saw.

Each record's value is unique, so that the history can tell what became of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.producer.producer import ProducerCore
from ottla.clients.producer.producer_batch import RecordMetadata
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest
from ottla.runtime.scheduler import pause
from ottla.structs import TopicPartition
from ottla.testing.simulation.world import SimulatedProcess

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster

CREATE_TIMEOUT_MS: Final = 5_000
METADATA_TIMEOUT_MS: Final = 60_000
POLL_MS: Final = 500


@dataclass(slots=True)
class History:
    """What brokers acknowledged to clients, and what readers saw."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    seen: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    unpromised: set[bytes] = field(default_factory=set)
    deleted: dict[TopicPartition, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def note_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if value in self.unpromised:
            return
        known = self.acknowledged.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            self.violations.append(
                f"{partition}: offset {offset} was given to {known[offset]!r} and to {value!r}"
            )

    def note_seen(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        known = self.seen.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            self.violations.append(
                f"{partition}: at offset {offset} a reader saw {known[offset]!r}, then {value!r}"
            )

    def note_deleted(self, partition: TopicPartition, offset: int) -> None:
        """Note that a client asks for the deletion of the records before an offset."""
        self.deleted[partition] = max(offset, self.deleted.get(partition, 0))

    def admit_loss(self, partition: TopicPartition, offset: int) -> None:
        """Drop all promises from this offset on: other records may take its place.

        An answer in flight may still acknowledge what is lost, so such answers do not count.
        """
        answered = self.refused.union(self.acknowledged.get(partition, {}).values())
        self.unpromised.update(set(self.sent.get(partition, ())) - answered)
        for known in (self.acknowledged, self.seen):
            kept = {at: value for at, value in known.get(partition, {}).items() if at < offset}
            known[partition] = kept


class SimulatedClient:
    """A client program on a host of its own."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.process = SimulatedProcess(cluster.world, name)
        self.is_told_to_stop = False
        self.is_done = False

    async def pause(self, ms: int) -> None:
        await pause(self.process.scheduler, ms)


class TopicMaker(SimulatedClient):
    """Creates a topic, and retries until it exists."""

    async def create(self, topic: str, partitions: int, replication_factor: int) -> None:
        config = AdminConfig.parse({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin = AdminClient(self.process.runtime, config)
        wanted = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=replication_factor
        )
        while True:
            try:
                request = CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS)
                response = await admin.controller(
                    request, Deadline(self.process.runtime.clock, CREATE_TIMEOUT_MS)
                )
                code = response.topics[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    break
            except KafkaError:
                pass  # asked again, until there is a controller and there are brokers enough
            admin.metadata.request_update(is_urgent=True)
            await self.pause(200)
        admin.close()
        self.is_done = True


class Writer(SimulatedClient):
    """An idempotent producer with acks=all: numbered records to every partition in turn."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        super().__init__(cluster, name, history)
        config = ProducerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": 5_000,
                "linger.ms": 0,
            }
        )
        self.core = ProducerCore(self.process.runtime, config, self.process.loop.call_soon)
        self.name = name
        self.unanswered = 0

    async def run(self, topic: str, interval_ms: int, burst: int = 1) -> None:
        """Send `burst` records at a time, in one batch or a few, until told to stop."""
        queues = await self.core.queues_of(topic, METADATA_TIMEOUT_MS)
        number = 0
        while not self.is_told_to_stop:
            for _ in range(burst):
                for index in queues.partitions:
                    value = b"%s-%d-%d" % (self.name.encode(), index, number)
                    self.send(topic, index, value)
                number += 1
            await self.pause(self.process.runtime.random.randint(1, 2 * interval_ms))
        while self.unanswered:
            await self.pause(50)
        await self.core.close()
        self.is_done = True

    def send(self, topic: str, index: int, value: bytes) -> None:
        partition = TopicPartition(topic, index)
        queues = self.core.accumulator.topics[topic]
        now_ms = self.process.clock.now_ms()

        def delivered(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.unanswered -= 1
            if metadata is not None and error is None:
                self.history.note_acknowledged(partition, metadata.offset, value)
            else:
                self.history.refused.add(value)

        self.unanswered += 1
        self.history.sent.setdefault(partition, []).append(value)
        record = (now_ms, None, value, ())
        self.core.accumulator.append(
            queues, queues.queues[index], record, len(value) + 20, delivered
        )


class Reader(SimulatedClient):
    """A consumer of all partitions, from the beginning, that remembers what it saw.

    With read_committed it sees no markers and no aborted records: offsets have gaps.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        history: History,
        isolation_level: str = "read_uncommitted",
        rack: str = "",
    ) -> None:
        super().__init__(cluster, name, history)
        self.has_gaps = isolation_level == "read_committed"
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "auto.offset.reset": "earliest",
                "request.timeout.ms": 5_000,
                "isolation.level": isolation_level,
                "client.rack": rack,
            }
        )
        self.core = ConsumerCore(self.process.runtime, config)
        self.next_offsets: dict[TopicPartition, int] = {}

    async def run(self, partitions: list[TopicPartition]) -> None:
        self.core.assign(partitions)
        while not self.is_told_to_stop:
            try:
                records = await self.core.poll(Deadline(self.process.clock, POLL_MS))
            except KafkaError as error:
                if not (error.retriable or self.may_meet(error)):
                    self.history.violations.append(f"a reader failed: {error!r}")
                    return
                continue
            if isinstance(records, list):
                for record in records:
                    self._note(TopicPartition(record.topic, record.partition), record)
            for partition, position in self.core.positions().items():
                self.next_offsets[partition] = position.offset
            await asyncio.sleep(0)
        await self.core.close(Deadline(self.process.clock, 1_000))
        self.is_done = True

    def may_meet(self, error: KafkaError) -> bool:
        """Whether the story has an error in store that is not over by itself."""
        return False

    def _note(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        offset, value = record.offset, record.value
        expected = self.next_offsets.get(partition, 0)
        latest = max(expected, self.history.deleted.get(partition, 0))
        if offset < expected or (offset > latest and not self.has_gaps):
            self.history.violations.append(
                f"{partition}: a reader that expected offset {expected} was shown {offset}"
            )
        self.next_offsets[partition] = offset + 1
        self.history.note_seen(partition, offset, value)
