"""Copiers in a group: each record and its offset go into another topic in one transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.producer.producer_core import ProducerCore
from ottla.config.client_config import ConsumerConfig, ProducerConfig
from ottla.errors import KafkaError
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.group_ledger import (
    CLOSE_TIMEOUT_MS,
    RESTART_MS,
    GroupLedger,
    group_settings,
)
from ottla.testing.simulation.workload import METADATA_TIMEOUT_MS, POLL_MS, SimulatedClient

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import RecordMetadata
    from ottla.clients.producer.transactions import Transactions
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.testing.simulation.cluster import SimulatedCluster


GROUP: Final = "copiers"
CALL_TIMEOUT_MS: Final = 15_000
TRANSACTION_TIMEOUT_MS: Final = 10_000


class Copier(SimulatedClient):
    """One process of a copier: after any error it restarts from the group's committed offsets."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        ledger: GroupLedger,
        source: str,
        target: str,
        protocol: str = "classic",
    ) -> None:
        super().__init__(cluster, name, ledger.history)
        self._ledger = ledger
        self._protocol = protocol
        self.source = source
        self.target = target
        self.committed_count = 0

    async def run(self) -> None:
        while not self.is_told_to_stop:
            producer, consumer = transactional_producer(self, self.name), self._consumer()
            try:
                await self._copy(producer, consumer)
            except KafkaError:
                await self.pause(RESTART_MS)
            finally:
                await producer.close()
                await self._leave(consumer)
        self.is_done = True

    async def _copy(self, producer: ProducerCore, consumer: ConsumerCore) -> None:
        transactions = producer.transactions
        assert transactions is not None
        await transactions.init(self._deadline())
        await producer.queues_of(self.target, METADATA_TIMEOUT_MS)
        consumer.subscribe([self.source], None)
        while not self.is_told_to_stop:
            outcome = await consumer.poll(Deadline(self.process.clock, POLL_MS))
            if not isinstance(outcome, list):
                consumer.acknowledge()
            elif outcome:
                await self._copy_records(producer, transactions, consumer, outcome)

    async def _copy_records(
        self,
        producer: ProducerCore,
        transactions: Transactions,
        consumer: ConsumerCore,
        records: list[ConsumerRecord],
    ) -> None:
        offsets, group = consumer.positions(), consumer.group_metadata()
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._ledger.note_given(partition, record.offset, group.membership)
        await transactions.begin()
        errors: list[Exception] = []
        unanswered = len(records)
        all_answered = asyncio.get_running_loop().create_future()

        def delivered(metadata: RecordMetadata | None, error: Exception | None) -> None:
            nonlocal unanswered
            unanswered -= 1
            if error is not None:
                errors.append(error)
            if not unanswered and not all_answered.done():
                all_answered.set_result(None)

        queues = producer.accumulator.topics[self.target]
        for record in records:
            copy = (self.process.clock.now_ms(), None, record.value, ())
            queue = queues.queues[record.partition]
            producer.accumulator.append(queues, queue, copy, len(record.value) + 20, delivered)
        producer.accumulator.begin_flush()
        await all_answered
        producer.accumulator.end_flush()
        if errors:
            await transactions.abort(self._deadline())
            raise errors[0]
        await transactions.send_offsets(offsets, group, self._deadline())
        await transactions.commit(self._deadline())
        self.committed_count += len(records)

    async def _leave(self, consumer: ConsumerCore) -> None:
        try:
            await consumer.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        except KafkaError:
            pass  # the group notices when the session ends

    def _deadline(self) -> Deadline:
        return Deadline(self.process.clock, CALL_TIMEOUT_MS)

    def _consumer(self) -> ConsumerCore:
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **group_settings(self._protocol),
                "max.poll.interval.ms": 20_000,
                "request.timeout.ms": 5_000,
            }
        )
        return ConsumerCore(self.process.runtime, config)


def transactional_producer(client: SimulatedClient, transactional_id: str) -> ProducerCore:
    """A producer in the process of a client."""
    config = ProducerConfig.parse(
        {
            "bootstrap.servers": client.cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "delivery.timeout.ms": 30_000,
            "request.timeout.ms": 5_000,
            "linger.ms": 0,
        }
    )
    return ProducerCore(client.process.runtime, config, client.process.loop.call_soon)
