"""The parts of a producer: its connections, its accumulator and its sender."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.clients.client_metrics import ProducerMetrics
from ottla.clients.metadata import Cluster, Metadata, PartitionInfo
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.record_accumulator import (
    AccumulatorLimits,
    NoRoomError,
    RecordAccumulator,
    TopicQueues,
)
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.transaction_manager import TransactionManager
from ottla.clients.producer.transactions import Outbox, Transactions
from ottla.clients.producer.unsent_records import UnsentRecords
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.runtime.app_loop import resolve
from ottla.runtime.scheduler import within
from ottla.runtime.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.client_config import ProducerConfig
    from ottla.runtime import Runtime

T = TypeVar("T")
logger = logging.getLogger(__name__)

GROWN_BATCH_SIZE: Final = 131_072
BYTES_IN_A_TURN: Final = 1024 * 1024
"""They are encoded and written in about a millisecond."""


class ProducerCore:
    """A producer without its synchronous API: created, used and closed on one loop.

    Only `accumulator` may be used from other threads; `post` brings a callback to the loop.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        post: Callable[[Callable[[], object]], object],
        *,
        shares_loop: bool = False,
    ) -> None:
        """With `shares_loop` the application is on the loop too: no call blocks it."""
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
            runtime.clock,
            limits,
            runtime.random.randrange,
            lambda: post(self.sender.wakeup),
            may_block=not shares_loop,
        )
        self._unsent = UnsentRecords(config.client_id, self.accumulator)
        self._config = config
        self._first = asyncio.Lock()  # of those that wait for room
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
        if shares_loop:
            self.sender.turn_bytes = BYTES_IN_A_TURN
            self.sender.compresses_ahead = True
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

    async def partitions_for(
        self, topic: str, partition: int | None, timeout_ms: int
    ) -> list[PartitionInfo]:
        deadline = Deadline(self.runtime.clock, timeout_ms)
        info = await self.metadata.topic(topic, deadline)
        if partition is not None and partition not in info.partitions:
            await self.refresh(topic, deadline.left_ms)
            info = await self.metadata.topic(topic, deadline)
        return list(info.partitions.values())

    async def refresh(self, topic: str, timeout_ms: int) -> None:
        """Fetch the metadata of a topic again: it may have more partitions now."""
        await self.metadata.update(Deadline(self.runtime.clock, timeout_ms))
        await self.queues_of(topic, timeout_ms)

    async def when_room(self, append: Callable[[], T]) -> T:
        """The result of `append` once buffer.memory has room for it; others may wait before it.

        BufferExhaustedError after max.block.ms.
        """
        deadline = Deadline(self.runtime.clock, self._config.max_block_ms)
        try:
            return append()
        except NoRoomError as full:
            reserve = full.reserve
        try:
            await within(self.runtime.scheduler, deadline.left_ms, self._first.acquire(), "no room")
        except KafkaTimeoutError:
            raise self.accumulator.exhausted(reserve) from None
        self.accumulator.begin_wait()
        try:
            return await self._append_when_room(append, deadline)
        finally:
            self.accumulator.end_wait()
            self._first.release()

    async def _append_when_room(self, append: Callable[[], T], deadline: Deadline) -> T:
        while True:
            try:
                return append()
            except NoRoomError as full:
                if deadline.has_passed:
                    raise self.accumulator.exhausted(full.reserve) from None
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.accumulator.on_room = partial(resolve, room)
            try:
                await within(self.runtime.scheduler, deadline.left_ms, room, "no room")
            except KafkaTimeoutError:
                pass  # it is tried once more

    @property
    def delivery_limit_ms(self) -> int:
        """The time within which each queued record is delivered, or has failed."""
        return self._config.delivery_timeout_ms + 1000

    async def flush(self, limit_ms: int) -> bool:
        """Send the queued records now; False if some are not done after `limit_ms`."""
        batches = self.accumulator.begin_flush()
        try:
            return await self.sender.settled(batches, Deadline(self.runtime.clock, limit_ms))
        finally:
            self.accumulator.end_flush()

    def longest_finish_ms(self, limit_ms: int | None) -> int:
        """How long `finish` takes at most."""
        return sum(self._finish_limits(limit_ms))

    def _finish_limits(self, limit_ms: int | None) -> tuple[int, int]:
        """How long an abort, and the delivery of the rest, may take."""
        if limit_ms is None:
            return self._config.request_timeout_ms, self.delivery_limit_ms
        return limit_ms, limit_ms

    async def finish(self, limit_ms: int | None = None) -> None:
        """Take no more records, abort an open transaction, deliver the others, and close.

        Records that are not delivered after `limit_ms` fail.
        """
        abort_ms, deliver_ms = self._finish_limits(limit_ms)
        self.accumulator.close(RuntimeError("the producer is closed"))
        if self.transactions is not None and self.transactions.is_open:
            # So that readers need not wait for the transaction's timeout.
            try:
                await self.transactions.abort(Deadline(self.runtime.clock, abort_ms))
            except KafkaError as error:
                logger.warning("the broker has to abort the open transaction: %s", error)
        await self.flush(deliver_ms)
        await self.close()

    def give_up(self) -> None:
        """Refuse records, and fail those that are undelivered: nobody would send them."""
        self.accumulator.close(RuntimeError("the producer is closed"))
        self._fail_undelivered()

    def _fail_undelivered(self) -> None:
        reason = "the producer was closed before the record was delivered"
        self.sender.abort(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, reason))

    async def close(self) -> None:
        """Fail undelivered records, and close the connections."""
        if self.transactions is not None:
            await self.transactions.close()
        self._fail_undelivered()
        self.sender.close()
        self.metadata.close()
        self._idle_check.cancel()
        self._common_metrics.close()
        self.client.close()
        self._unsent.forget()

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
