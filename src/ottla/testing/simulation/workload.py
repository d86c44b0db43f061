"""The clients of a simulated world, with the real clients' cores, and a history of their calls.

Each record's value is unique, so that the history can follow its fate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.producer.producer_batch import RecordMetadata
from ottla.clients.producer.producer_core import ProducerCore
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata, OffsetSpec
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.committed_records import CommittedRecords
from ottla.testing.simulation.invariants import History, has_deposed_leader
from ottla.testing.simulation.world import SimulatedProcess

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster

CREATE_TIMEOUT_MS: Final = 5_000
METADATA_TIMEOUT_MS: Final = 60_000
POLL_MS: Final = 500
END_INTERVAL_MS: Final = 600
END_TIMEOUT_MS: Final = 10_000


class SimulatedClient:
    """A client program on a host of its own."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.name = name
        self.process = SimulatedProcess(cluster.world, name)
        self.is_done = False

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the program is to come to an end."""
        return self.process.is_told_to_stop

    @is_told_to_stop.setter
    def is_told_to_stop(self, is_told: bool) -> None:
        self.process.is_told_to_stop = is_told

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
        self.unanswered = 0

    async def run(self, topic: str, interval_ms: int, burst: int = 1) -> None:
        """Send `burst` records at a time, in one batch or a few, until the end."""
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
    """A consumer of all partitions, from the beginning, that remembers its records.

    With read_committed it sees no markers and no aborted records: offsets have gaps. Each poll is
    then compared with the records in the logs.
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
        self._outcomes: dict[TopicPartition, CommittedRecords] = {}

    async def run(self, partitions: list[TopicPartition]) -> None:
        if self.has_gaps:
            self._outcomes = {each: CommittedRecords(self.cluster, each) for each in partitions}
        self.core.assign(partitions)
        while not self.is_told_to_stop:
            try:
                records = await self.core.poll(Deadline(self.process.clock, POLL_MS))
            except KafkaError as error:
                if not (error.retriable or self.may_meet(error)):
                    self.history.violations.append(f"a reader failed: {error!r}")
                    return
                continue
            positions = self.core.positions()
            if isinstance(records, list):
                self._check_outcomes(records, positions)
                for record in records:
                    self._note(TopicPartition(record.topic, record.partition), record)
            for partition, position in positions.items():
                self.next_offsets[partition] = position.offset
            await asyncio.sleep(0)
        await self.core.close(Deadline(self.process.clock, 1_000))
        self.is_done = True

    def _check_outcomes(
        self, records: list[ConsumerRecord], positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        for partition, outcomes in self._outcomes.items():
            start = self.next_offsets.get(partition, 0)
            end = positions[partition].offset if partition in positions else start
            if end != start:
                shown = [
                    record.offset
                    for record in records
                    if (record.topic, record.partition) == partition
                ]
                self.history.violations += outcomes.check_poll(start, end, shown)

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


class EndReader(SimulatedClient):
    """Asks for the ends of partitions all the time, and compares them with earlier ones.

    A leader that does not know of its successor yet may tell an end from before it, but not to a
    client that has heard of the successor.
    """

    def __init__(
        self, cluster: SimulatedCluster, name: str, history: History, isolation_level: str
    ) -> None:
        super().__init__(cluster, name, history)
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "request.timeout.ms": 5_000,
                "isolation.level": isolation_level,
            }
        )
        self._core = ConsumerCore(self.process.runtime, config)
        self._is_committed = isolation_level == "read_committed"
        self._ends: dict[TopicPartition, int] = {}

    async def run(self, partitions: list[TopicPartition]) -> None:
        """Ask until the end."""
        latest = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        while not self.is_told_to_stop:
            before = {each: self._acknowledged_end(each) for each in partitions}
            try:
                deadline = Deadline(self.process.clock, END_TIMEOUT_MS)
                ends = await self._core.list_offsets(latest, deadline)
            except KafkaError:
                ends = {}
            for partition, end in ends.items():
                if isinstance(end, ListOffsetsResult):
                    least = self._ends.get(partition, 0)
                    if not has_deposed_leader(self.cluster, partition):
                        least = max(least, before[partition])
                    self._compare(partition, end.offset, least)
            await self.pause(self.process.runtime.random.randint(1, 2 * END_INTERVAL_MS))
        await self._core.close(Deadline(self.process.clock, END_TIMEOUT_MS))
        self.is_done = True

    def _acknowledged_end(self, partition: TopicPartition) -> int:
        """Behind all that was acknowledged; for committed records a transaction may be open there.

        The same where a broker leads that should not: nothing is known then.
        """
        if self._is_committed or has_deposed_leader(self.cluster, partition):
            return 0
        return max(self.history.acknowledged.get(partition, ()), default=-1) + 1

    def _compare(self, partition: TopicPartition, end: int, least: int) -> None:
        if end < least:
            self.history.violations.append(
                f"{partition}: {self.process.host} was told that it ends at {end}; {least} were "
                "there when it asked"
            )
        self._ends[partition] = max(end, self._ends.get(partition, 0))
