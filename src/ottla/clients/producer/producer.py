"""`ottla.Producer`: the synchronous API of a producer, for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.clients.client_metrics import Metrics
from ottla.clients.client_settings import ClosedOnExit, Servers, limit_in_ms, merge_settings
from ottla.clients.metadata import PartitionInfo
from ottla.clients.producer.bulk import BulkFuture, pairs_of, rows_of_values
from ottla.clients.producer.producer_batch import OnDelivery, ProducerBatch, RecordFuture
from ottla.clients.producer.producer_core import ProducerCore
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.clients.producer.record_accumulator import PartitionQueue, TopicQueues
from ottla.clients.producer.record_sending import (
    HeadersLike,
    RecordSending,
    check_place,
    no_partition,
)
from ottla.clients.producer.transactional_calls import CLOSE_MARGIN_MS, TransactionalCalls
from ottla.clients.producer.transactions import Transactions
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.record.rows import EncodedRecords
from ottla.runtime.io_thread import ForkHearer, IoThread

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.record.rows import Rows


class Producer(TransactionalCalls, RecordSending, ClosedOnExit):
    """Sends records to topics, in batches, in the background.

        with Producer("localhost:9092", linger_ms=5, acks="all") as producer:
            future = producer.send("pages", b"/index.html", key=b"user-7")
            print(future.result().offset)

    Settings are Kafka's, as keywords with underscores or as a mapping with dots. One producer
    serves any number of threads. Leaving the block, or `close`, sends the queued records.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(merge_settings(bootstrap_servers, settings, keywords))
        self._io = IoThread(f"{self._config.client_id}-producer")
        self._use(self._io.begin_with(self._build()))
        # Each send in a forked child asks the thread for its topic, which does not run there.
        self._fork_hearer = ForkHearer(self._topics.clear)

    def take_id(self, transactional_id: str) -> None:
        """Become the producer of another transactional id, with the same connections.

        A prepared transaction of the id stays prepared. `init_transactions` comes next.
        """
        self._transactions_of_this().check_may_leave()
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        self._transactions = self._io.run(self._take_id(transactional_id), CLOSE_MARGIN_MS)

    def send(
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
        """Queue a record and return the future of its RecordMetadata.

        Blocks, for up to max.block.ms, only for the metadata of a topic that was not used before
        and while buffer.memory is full. Raises at once if the record is invalid, and an open
        transaction must be aborted; the future and `on_delivery` report later failures.
        """
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            record, on_delivery = self._interceptors.on_send(record, on_delivery)
            topic, value, key, headers, partition, timestamp_ms = record
        return self._put(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    def send_values(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkFuture:
        """Queue a record for each value, in order, and return one future for all of them.

        Several times as quick as `send` for each: they are encoded together and do not linger, and
        `future.result()` has where they were written, in ranges. `keys` has as many items as
        `values`. Blocks and raises as `send` does; of records that were too many for buffer.memory
        within max.block.ms the first ones may be queued.
        """
        values, keys = pairs_of(values, keys)
        if self._wants_each():
            each_key = [None] * len(values) if keys is None else keys
            return self._bulk(
                [
                    self.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms)
                    for value, key in zip(values, each_key, strict=True)
                ]
            )
        with self._refusals_noted():
            check_place(topic, partition)
            plain, plain_keys = self._plain(topic, values, keys)
            if partition is not None:
                self._queue(self._topics.get(topic) or self._learn(topic), partition, None)
            return self._send_rows(
                topic, rows_of_values(plain, plain_keys, partition), timestamp_ms
            )

    def send_arrow(
        self,
        topic: str,
        data: pa.Table | pa.RecordBatch | pa.RecordBatchReader | Any,
        *,
        timestamp_ms: int | None = None,
    ) -> BulkFuture:
        """Queue a record for each row of Arrow data, and return one future for all of them.

        The column `value` is needed, `key`, `partition` (null: the key decides) and `headers` are
        used, and others are passed over, as by Spark's Kafka sink: a table of `ottla.read_arrow`
        can be sent as it is. Serializers, interceptors and partitioners see nothing of it. Needs
        pyarrow (`pip install ottla[arrow]`).

        `data` may also be of another library that hands over Arrow data, such as a data frame of
        Polars. If a row of a later batch is refused, rows before it may be queued.
        """
        from ottla.clients.arrow_tables import highest_partition, require_pyarrow, rows_of_arrow

        require_pyarrow()
        with self._refusals_noted():
            check_place(topic, None)
            count, _ = self._partitions(topic)
            if highest_partition(data) >= count:
                self._refresh(topic)  # some may have been added
                count, _ = self._partitions(topic)
            rows = rows_of_arrow(data, partial(self._check_size, topic), count)
            return self._send_rows(topic, rows, timestamp_ms)

    def send_encoded(self, topic: str, content: EncodedRecords) -> ProducerBatch:
        """Queue a batch of one partition whose records are encoded already.

        It is sent as it is, behind the queued records, without lingering; blocks as `send` does.
        After `flush`, `failure()` of the returned batch is its error, None if it was delivered.
        """
        try:
            self._check_encoded(topic, content)
            queues = self._topics.get(topic) or self._learn(topic)
            queue = queues.queues.get(content.partition)
            if queue is None:
                queue = self._new_partition(queues, content.partition)
            return self._accumulator.append_encoded(queue, content)
        except KafkaError as error:
            self._note_refusal(error)
            raise

    def _send_rows(
        self, topic: str, some_rows: Iterable[Rows], timestamp_ms: int | None
    ) -> BulkFuture:
        stamp = self._stamp(timestamp_ms)
        sender = self._row_sender(self.send_encoded)
        batches: list[ProducerBatch] = []
        for rows in some_rows:
            batches += sender.send(topic, rows, stamp)
        return self._bulk(batches + sender.finish())

    def flush(self, timeout: float | None = None) -> None:
        """Send the queued records now and wait until all of them are delivered or have failed.

        Raises KafkaTimeoutError after `timeout` seconds; by default it is delivery.timeout.ms that
        bounds the wait.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        self._io.check_may_wait()
        limit_ms = self._core.delivery_limit_ms if timeout is None else limit_in_ms(timeout * 1000)
        if not self._flush(limit_ms):
            raise KafkaTimeoutError(f"not everything was delivered within {limit_ms / 1000} s")

    def partitions_for(self, topic: str, partition: int | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas.

        If `partition` is not a known one, brokers are asked again: it may have been added.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        limit_ms = self._config.max_block_ms
        call = self._core.partitions_for(topic, partition, limit_ms)
        return self._io.run(call, limit_ms + CLOSE_MARGIN_MS)

    def metrics(self) -> Metrics:
        """The metrics of the producer, by group and name, as Kafka's clients have them.

        Such as `producer.metrics()["producer-metrics"]["record-send-rate"]`; the groups of topics
        are `producer-topic-metrics.<topic>`. A metric without a value yet is NaN.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        return self._io.run(self._read_metrics(), CLOSE_MARGIN_MS)

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, deliver those that are queued, and end the I/O thread.

        Records that are not delivered after `timeout` seconds fail, and so do all of them where an
        exception, such as KeyboardInterrupt, ends the wait. Closing twice does nothing.
        """
        if self._is_closed:
            return
        if self._io.is_alive:
            self._io.check_may_wait()
        self._is_closed = True
        try:
            if self._io.is_alive:
                limit_ms = None if timeout is None else limit_in_ms(timeout * 1000)
                longest_ms = self._core.longest_finish_ms(limit_ms) + CLOSE_MARGIN_MS
                self._io.run(self._core.finish(limit_ms), longest_ms)
        finally:
            self._io.close(self._core.give_up)
            if self._partitioner is not None:
                self._partitioner.close()

    async def _build(self) -> ProducerCore:
        return ProducerCore(self._io.runtime, self._config, self._io.post)

    async def _read_metrics(self) -> Metrics:
        return self._core.metrics.read()

    async def _take_id(self, transactional_id: str) -> Transactions:
        return self._core.take_id(transactional_id)

    def _flush(self, limit_ms: int) -> bool:
        clock = self._io.runtime.clock
        end_ms = clock.monotonic_ms() + limit_ms
        batches: Sequence[ProducerBatch] = self._accumulator.begin_flush()
        try:
            return all(
                batch.wait(max(0, end_ms - clock.monotonic_ms()) / 1000) for batch in batches
            )
        finally:
            self._accumulator.end_flush()

    def _learn(self, topic: str) -> TopicQueues:
        """Wait for the metadata of a topic that is used for the first time."""
        limit_ms = self._config.max_block_ms
        return self._io.run(self._core.queues_of(topic, limit_ms), limit_ms + CLOSE_MARGIN_MS)

    def _post(self, callback: Callable[[], object]) -> None:
        self._io.post(callback)

    def _new_partition(self, queues: TopicQueues, partition: int) -> PartitionQueue:
        """The queue of an unknown partition, which may have been added: refresh the metadata."""
        self._refresh(queues.topic)
        if partition not in queues.queues:
            raise no_partition(queues, partition)
        return queues.queues[partition]

    def _refresh(self, topic: str) -> None:
        limit_ms = self._config.max_block_ms
        self._io.run(self._core.refresh(topic, limit_ms), limit_ms + CLOSE_MARGIN_MS)
