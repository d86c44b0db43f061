"""`ottla.aio.Producer`: the API of a producer for the coroutines of one event loop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.clients.aio.loop_client import LoopClient, documented_by
from ottla.clients.client_settings import Servers, limit_in_ms, merge_settings
from ottla.clients.producer.bulk import pairs_of, rows_of_values
from ottla.clients.producer.producer import Producer as BlockingProducer
from ottla.clients.producer.producer_core import BYTES_IN_A_TURN, ProducerCore
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.clients.producer.record_accumulator import NoRoomError
from ottla.clients.producer.record_sending import (
    HeadersLike,
    RecordSending,
    check_place,
    no_partition,
)
from ottla.clients.producer.transactional_calls import Work
from ottla.clients.producer.transactions import PreparedTransaction, Transactions, group_metadata_of
from ottla.clients.topic_offsets import with_metadata
from ottla.errors import ConfigError, KafkaError, KafkaTimeoutError
from ottla.runtime.io_thread import get_ident
from ottla.runtime.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping

    from ottla.clients.client_metrics import Metrics
    from ottla.clients.committed_offsets import ConsumerGroupMetadata
    from ottla.clients.metadata import PartitionInfo
    from ottla.clients.producer.bulk import BulkFuture
    from ottla.clients.producer.producer_batch import (
        OnDelivery,
        ProducerBatch,
        RecordFuture,
        RecordMetadata,
    )
    from ottla.clients.producer.record_accumulator import PartitionQueue, TopicQueues
    from ottla.clients.topic_offsets import OffsetAndMetadata
    from ottla.record.rows import EncodedRecords, Rows
    from ottla.runtime import Runtime
    from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

SENDS_IN_A_TURN: Final = 512
"""After so many records in a row, a millisecond, the loop serves others and the sender.

Of twice as many, a task that sleeps was held up for 6 to 10 ms at most and not for 4, as batches
are sent then; of half as many, sends were a fifth slower.
"""
SERIALIZED_IN_A_TURN: Final = 128
"""A serializer of the application may take some ten microseconds for each."""


@documented_by(BlockingProducer)
class Producer(RecordSending, LoopClient):
    """Sends records to topics, in batches, in the background of the program's event loop.

        async with ottla.aio.Producer("localhost:9092", acks="all") as producer:
            future = await producer.send("pages", b"/index.html", key=b"user-7")
            print((await future).offset)

    Settings are those of `ottla.Producer`. Any number of tasks of one loop may use it; leaving the
    block sends the queued records. A call that is cancelled leaves it usable: a record whose `send`
    was cancelled is not sent, and a transactional call can be made again, as after
    KafkaTimeoutError.
    """

    title: ClassVar[str] = "producer"

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        RecordSending.__init__(self, merge_settings(bootstrap_servers, settings, keywords))
        LoopClient.__init__(self)
        self._sends_left = SENDS_IN_A_TURN
        self._ending: asyncio.Task[None] | None = None

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Queue a record and return the future of its RecordMetadata, which can be awaited.

        Waits, for up to max.block.ms, only for the metadata of a topic that was not used before
        and while buffer.memory is full. Raises at once if the record is invalid, and an open
        transaction must be aborted; the future and `on_delivery` report later failures.
        """
        if self._is_closed or get_ident() != self._thread or not self._is_running():
            self._here()
        self._sends_left -= 1
        if not self._sends_left:
            await self._give_way()
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            record, on_delivery = self._interceptors.on_send(record, on_delivery)
            topic, value, key, headers, partition, timestamp_ms = record
        try:
            is_known = topic in self._topics
        except TypeError:
            is_known = False  # it is refused below
        if not is_known or partition is not None:
            await self._know(topic, partition)
        try:
            return self._put(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        except NoRoomError as full:
            append = full.again
        with self._refusals_noted():
            return await self._core.when_room(append)

    async def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> RecordMetadata:
        """`send` a record, and wait until it is delivered."""
        return await (await self.send(topic, value, **options))

    async def send_values(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkFuture:
        """Queue a record for each value, in order; the future of all of them can be awaited.

        As `ottla.Producer.send_values`. Where it is cancelled, the first ones may be queued.
        """
        self._here()
        values, keys = pairs_of(values, keys)
        if self._wants_each():
            return self._bulk(
                [
                    await self.send(
                        topic,
                        value,
                        key=None if keys is None else keys[number],
                        partition=partition,
                        timestamp_ms=timestamp_ms,
                    )
                    for number, value in enumerate(values)
                ]
            )
        with self._refusals_noted():
            await self._know(topic, partition)
            parts = []
            is_plain = self._serialize_value is None and self._serialize_key is None
            step = SENDS_IN_A_TURN if is_plain else SERIALIZED_IN_A_TURN
            for start in range(0, len(values), step):
                end = start + step
                some_keys = None if keys is None else keys[start:end]
                parts.append(self._plain(topic, values[start:end], some_keys))
                await asyncio.sleep(0)
            some_rows = (
                rows for part in parts for rows in rows_of_values(*part, partition, BYTES_IN_A_TURN)
            )
            return await self._send_rows(topic, some_rows, timestamp_ms)

    async def send_arrow(
        self, topic: str, data: Any, *, timestamp_ms: int | None = None
    ) -> BulkFuture:
        """Queue a record for each row of Arrow data; the future of all of them can be awaited.

        As `ottla.Producer.send_arrow`. Where it is cancelled, the first rows may be queued.
        """
        from ottla.clients.arrow_tables import highest_partition, require_pyarrow, rows_of_arrow

        require_pyarrow()
        self._here()
        with self._refusals_noted():
            await self._know(topic, None)
            count, _ = self._partitions(topic)
            if highest_partition(data) >= count:
                await self._core.refresh(topic, self._config.max_block_ms)  # some may be new
                count, _ = self._partitions(topic)
            check_size = partial(self._check_size, topic)
            rows = rows_of_arrow(data, check_size, count, BYTES_IN_A_TURN)
            return await self._send_rows(topic, rows, timestamp_ms)

    async def send_encoded(self, topic: str, content: EncodedRecords) -> ProducerBatch:
        self._here()
        with self._refusals_noted():
            await self._know(topic, content.partition)
            return await self._queue_encoded(topic, content)

    async def flush(self, timeout: float | None = None) -> None:
        self._here()
        limit_ms = self._core.delivery_limit_ms if timeout is None else limit_in_ms(timeout * 1000)
        if not await self._core.flush(limit_ms):
            raise KafkaTimeoutError(f"not everything was delivered within {limit_ms / 1000} s")

    async def partitions_for(self, topic: str, partition: int | None = None) -> list[PartitionInfo]:
        self._here()
        return await self._core.partitions_for(topic, partition, self._config.max_block_ms)

    def metrics(self) -> Metrics:
        self._here()
        return self._core.metrics.read()

    async def close(self, timeout: float | None = None) -> None:
        """Take no more records, and deliver those that are queued.

        Records that are not delivered after `timeout` seconds fail. Closing twice does nothing; a
        call that is cancelled leaves the rest to the background.
        """
        await self._close(None if timeout is None else limit_in_ms(timeout * 1000))

    # Transactions

    def take_id(self, transactional_id: str) -> None:
        self._transactions_of_this().check_may_leave()
        self._transactions = self._core.take_id(transactional_id)

    async def init_transactions(self, timeout: float | None = None) -> None:
        await self._in_transaction(lambda transactions, limit: transactions.init(limit), timeout)

    async def begin_transaction(self) -> None:
        self._here()
        if self._ending is not None:
            await asyncio.wait([self._ending])
        await self._in_transaction(lambda transactions, limit: transactions.begin(), None)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        wanted, member = with_metadata(offsets), group_metadata_of(group)
        await self._in_transaction(
            lambda transactions, limit: transactions.send_offsets(wanted, member, limit), timeout
        )

    async def commit_transaction(self, timeout: float | None = None) -> None:
        self._transactions_of_this()
        await self.flush(timeout)
        await self._in_transaction(lambda transactions, limit: transactions.commit(limit), timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        transactions = self._transactions_of_this()
        await self.flush(timeout)
        deadline = Deadline(self._runtime.clock, self._config.request_timeout_ms)
        identity = await transactions.prepare(deadline)
        return PreparedTransaction(transactions.requests.transactional_id, *identity)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        await self._in_transaction(lambda transactions, limit: transactions.abort(limit), timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            if self._transactions_of_this().is_open and not self._is_closed:
                await self._end_with(self._abort_after_error())
            raise
        await self._end_with(self._commit_or_abort())

    # Internals

    def _open(self, runtime: Runtime) -> None:
        self._use(ProducerCore(runtime, self._config, _call, shares_loop=True))

    async def _finish(self, timeout_ms: int | None) -> None:
        if self._ending is not None:
            limit_ms = self._core.longest_finish_ms(timeout_ms)
            await asyncio.wait([self._ending], timeout=limit_ms / 1000)
        try:
            await self._core.finish(timeout_ms)
        finally:
            if self._partitioner is not None:
                self._partitioner.close()

    def _post(self, callback: Callable[[], object]) -> None:
        callback()

    def _learn(self, topic: str) -> TopicQueues:
        raise AssertionError(f"the metadata of topic {topic} were waited for before")

    def _new_partition(self, queues: TopicQueues, partition: int) -> PartitionQueue:
        raise no_partition(queues, partition)

    async def _know(self, topic: str, partition: int | None) -> None:
        """Wait for the metadata of a topic, and of a partition of it, that were not used before."""
        limit_ms = self._config.max_block_ms
        try:
            check_place(topic, partition)
            queues = self._topics.get(topic) or await self._core.queues_of(topic, limit_ms)
            if partition is not None and partition not in queues.queues:
                await self._core.refresh(topic, limit_ms)
                if partition not in queues.queues:
                    raise no_partition(queues, partition)
        except KafkaError as error:
            self._note_refusal(error)
            raise

    async def _give_way(self) -> None:
        self._sends_left = SENDS_IN_A_TURN
        await asyncio.sleep(0)

    async def _queue_encoded(self, topic: str, content: EncodedRecords) -> ProducerBatch:
        self._check_encoded(topic, content)
        queues = self._topics[topic]
        queue = queues.queues.get(content.partition)
        if queue is None:
            raise no_partition(queues, content.partition)
        return await self._core.when_room(partial(self._accumulator.append_encoded, queue, content))

    async def _send_rows(
        self, topic: str, some_rows: Iterable[Rows], timestamp_ms: int | None
    ) -> BulkFuture:
        stamp = self._stamp(timestamp_ms)
        sender = self._row_sender(_not_called)
        batches: list[ProducerBatch] = []
        for rows in some_rows:
            for content in sender.encode(topic, rows, stamp):
                batches.append(await self._queue_encoded(topic, content))
            await asyncio.sleep(0)
        for _, content in sender.rest():
            batches.append(await self._queue_encoded(topic, content))
        return self._bulk(batches)

    def _transactions_of_this(self) -> Transactions:
        self._here()
        if self._transactions is None:
            raise ConfigError("transactional.id: must be set for a producer with transactions")
        return self._transactions

    async def _in_transaction(self, work: Work, timeout: float | None) -> None:
        transactions = self._transactions_of_this()
        limit_ms = self._config.max_block_ms
        if timeout is not None:
            limit_ms = limit_in_ms(timeout * 1000)
        await work(transactions, Deadline(self._runtime.clock, limit_ms))

    async def _end_with(self, call: Coroutine[Any, Any, None]) -> None:
        """End a transaction; where this wait is cancelled, in the background of what follows."""
        self._ending = asyncio.ensure_future(call)
        self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._ending)

    async def _commit_or_abort(self) -> None:
        try:
            await self.commit_transaction()
        except BaseException:
            if self._transactions_of_this().is_open:
                await self._abort_after_error()
            raise

    async def _abort_after_error(self) -> None:
        try:
            await self.abort_transaction()
        except KafkaError as error:
            logger.warning("the transaction could not be aborted: %s", error)


def _call(callback: Callable[[], object]) -> None:
    callback()


def _not_called(topic: str, content: EncodedRecords) -> ProducerBatch:
    raise AssertionError(f"batches for {topic} are queued by a coroutine")
