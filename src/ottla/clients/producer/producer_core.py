"""The parts of a producer: its connections, its accumulator and its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.client_metrics import Metrics, ProducerMetrics
from ottla.clients.metadata import Cluster, Metadata, PartitionInfo
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.record_accumulator import (
    AccumulatorLimits,
    RecordAccumulator,
    TopicQueues,
)
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.transaction_manager import TransactionManager
from ottla.clients.producer.transactions import Outbox, Transactions
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.client_config import ProducerConfig
    from ottla.runtime import Runtime


GROWN_BATCH_SIZE: Final = 131_072


class ProducerCore:
    """A producer without its synchronous API: created, used and closed on one loop.

    Only `accumulator` may be used from other threads; `post` brings a callback to the loop.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        post: Callable[[Callable[[], object]], object],
    ) -> None:
        self.runtime = runtime
        self.client = NetworkClient(runtime, config)
        self.metadata = Metadata(self.client, on_update=self._on_update)
        limits = AccumulatorLimits(
            batch_size=config.batch_size,
            grown_batch_size=grown_batch_size(config),
            buffer_memory=config.buffer_memory,
            linger_ms=config.linger_ms,
            max_block_ms=config.max_block_ms,
        )
        self.accumulator = RecordAccumulator(
            runtime.clock, limits, runtime.random.randrange, lambda: post(self.sender.wakeup)
        )
        self._config = config
        self.transactions: Transactions | None = None
        is_transactional = config.transactional_id is not None
        manager = None
        if config.enable_idempotence and not is_transactional:
            manager = TransactionManager()
        self._common_metrics = self.client.metrics("producer-metrics")
        self.metrics = ProducerMetrics(
            self._common_metrics, config.buffer_memory, lambda: self.accumulator.available_bytes
        )
        self.sender = Sender(
            self.client,
            self.metadata,
            self.accumulator,
            config,
            manager,
            is_transactional=is_transactional,
        )
        self.sender.metrics = self.metrics
        if config.transactional_id is not None:
            self.take_id(config.transactional_id)
        self._idle_check = runtime.scheduler.call_every(
            max(1000, config.connections_max_idle_ms // 2), self.client.close_idle
        )

    def take_id(self, transactional_id: str) -> Transactions:
        """Become the producer of a transactional id, while no batch is queued or on the wire."""
        manager = TransactionManager(is_transactional=True)
        transactions = Transactions(
            self.client, self.metadata, self._config, manager, transactional_id
        )
        sender, refuse = self.sender, self.accumulator.refuse
        transactions.outbox = Outbox(
            sender.wakeup, sender.drop_queued, sender.idle, sender.delivered, refuse
        )
        self.sender.use(manager, transactions)
        self.transactions = transactions
        return transactions

    async def queues_of(self, topic: str, timeout_ms: int) -> TopicQueues:
        """The queues of a topic, once its metadata are known."""
        await self.metadata.topic(topic, Deadline(self.runtime.clock, timeout_ms))
        self._update_queues(self.accumulator.topic(topic), self.metadata.cluster)
        return self.accumulator.topics[topic]

    async def partitions_for(self, topic: str, timeout_ms: int) -> list[PartitionInfo]:
        info = await self.metadata.topic(topic, Deadline(self.runtime.clock, timeout_ms))
        return list(info.partitions.values())

    async def refresh(self, topic: str, timeout_ms: int) -> None:
        """Fetch the metadata of a topic again: it may have more partitions now."""
        await self.metadata.update(Deadline(self.runtime.clock, timeout_ms))
        await self.queues_of(topic, timeout_ms)

    async def read_metrics(self) -> Metrics:
        return self.metrics.read()

    async def close(self) -> None:
        """Fail undelivered records, and close the connections."""
        if self.transactions is not None:
            await self.transactions.close()
        reason = "the producer was closed before the record was delivered"
        self.sender.abort(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, reason))
        self.sender.close()
        self.metadata.close()
        self._idle_check.cancel()
        self._common_metrics.close()
        self.client.close()

    def _on_update(self, cluster: Cluster) -> None:
        for queues in list(self.accumulator.topics.values()):
            self._update_queues(queues, cluster)
        self.sender.wakeup()

    def _update_queues(self, queues: TopicQueues, cluster: Cluster) -> None:
        info = cluster.topics.get(queues.topic)
        if info is not None and info.partitions:
            queues.update(list(info.partitions), info.available)


def grown_batch_size(config: ProducerConfig) -> int:
    """Up to how many bytes a batch grows while the sender is busy: batch.size where that is set.

    A batch costs the sender some 200 us, however many records it has; with 128 KiB in place of
    16 a producer sends twice as many records a second, and the broker needs half the CPU time.
    """
    if config.is_given("batch.size"):
        return config.batch_size
    return max(config.batch_size, min(GROWN_BATCH_SIZE, config.max_request_size))
