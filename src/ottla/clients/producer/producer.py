"""`ottla.Producer`: the synchronous API of a producer, for any number of threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.client_metrics import Metrics
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings
from ottla.clients.metadata import PartitionInfo
from ottla.clients.producer.bulk import (
    DEFAULT_BATCH_BYTES,
    BulkFuture,
    RowSender,
    items_of,
    largest_size,
    rows_of_values,
    serialized,
)
from ottla.clients.producer.partitioner import CustomPartitioner, partition_for_key
from ottla.clients.producer.producer_batch import (
    RECORD_OVERHEAD,
    Headers,
    OnDelivery,
    ProducerBatch,
    RecordFuture,
    headers_size,
)
from ottla.clients.producer.producer_core import ProducerCore
from ottla.clients.producer.producer_interceptors import ProducerInterceptors, ProducerRecord
from ottla.clients.producer.record_accumulator import PartitionQueue, TopicQueues
from ottla.clients.producer.transactional_calls import CLOSE_MARGIN_MS, TransactionalCalls
from ottla.clients.producer.transactions import Transactions
from ottla.clients.serialization import serializer_of, to_bytes
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.record.rows import EncodedRecords
from ottla.runtime.io_thread import IoThread

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.record.rows import Rows

logger = logging.getLogger(__name__)


HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP_MS = 2**63 - 1
MAX_FIRST_PARTITION: Final = 2**16
"""Calls of `send_values` begin with one partition or another, so that topics fill evenly."""


class Producer(TransactionalCalls, ClosedOnExit):
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
        given = merge_settings(bootstrap_servers, settings, keywords)
        self._config = config = ProducerConfig.parse(given)
        self._serialize_key = serializer_of("key.serializer", config.key_serializer)
        self._serialize_value = serializer_of("value.serializer", config.value_serializer)
        self._partitioner = (
            None
            if config.partitioner_class is None
            else CustomPartitioner(config.partitioner_class, given)
        )
        self._interceptors = ProducerInterceptors.of(config.interceptor_classes)
        # With the batch around it, or a broker with the same limit would refuse the record.
        self._max_record_size = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD
        self._is_closed = False
        self._io = IoThread(f"{config.client_id}-producer")
        self._now_ms = self._io.runtime.clock.now_ms
        self._core = self._io.begin_with(self._build())
        self._accumulator = self._core.accumulator
        self._topics = self._accumulator.topics
        self._transactions = self._core.transactions

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
            whole = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            whole, on_delivery = self._interceptors.on_send(whole, on_delivery)
            topic, value, key, headers, partition, timestamp_ms = whole
        try:
            given_key, given_value = key, value
            if self._serialize_key is not None:
                key = self._serialize_key(topic, key)
            elif key is not None and type(key) is not bytes:
                key = to_bytes("key", key)
            if self._serialize_value is not None:
                value = self._serialize_value(topic, value)
            elif value is not None and type(value) is not bytes:
                value = to_bytes("value", value)
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            if self._transactions is not None:
                self._transactions.check_may_send()
            size = RECORD_OVERHEAD
            if key is not None:
                size += len(key)
            if value is not None:
                size += len(value)
            pairs: Headers = ()
            if headers:
                pairs = checked_headers(headers)
                size += headers_size(pairs)
            if size > self._max_record_size:
                raise too_large(topic, size, self._config)
            queues = self._topics.get(topic) or self._learn(topic)
            if partition is None and self._partitioner is not None:
                record = (topic, given_key, key, given_value, value)
                partition = self._partitioner.choose(record, self._core.metadata.cluster)
            is_sticky = partition is None and key is None
            queue = None if is_sticky else self._queue(queues, partition, key)
            stamp = self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
            return self._accumulator.append(
                queues, queue, (stamp, key, value, pairs), size, on_delivery
            )
        except KafkaError as error:
            self._note_refusal(error)
            raise

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
        values = items_of("values", values)
        keys = None if keys is None else items_of("keys", keys)
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        if self._wants_each():
            each_key = [None] * len(values) if keys is None else keys
            return self._bulk(
                [
                    self.send(topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms)
                    for value, key in zip(values, each_key, strict=True)
                ]
            )
        with self._refusals_noted():
            plain = serialized(topic, "value", values, self._serialize_value)
            plain_keys = None
            if keys is not None:
                plain_keys = serialized(topic, "key", keys, self._serialize_key)
            self._check_size(topic, largest_size(plain, plain_keys))
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
        from ottla.clients.arrow_tables import require_pyarrow, rows_of_arrow

        require_pyarrow()
        with self._refusals_noted():
            count, _ = self._partitions(topic)
            rows = rows_of_arrow(data, partial(self._check_size, topic), count)
            return self._send_rows(topic, rows, timestamp_ms)

    def send_encoded(self, topic: str, content: EncodedRecords) -> ProducerBatch:
        """Queue a batch of one partition whose records are encoded already.

        It is sent as it is, behind the queued records, without lingering; blocks as `send` does.
        After `flush`, `failure()` of the returned batch is its error, None if it was delivered.
        """
        try:
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            if self._transactions is not None:
                self._transactions.check_may_send()
            size = len(memoryview(content.payload))
            if size > self._max_record_size:
                raise too_large(topic, size, self._config)
            queues = self._topics.get(topic) or self._learn(topic)
            queue = queues.queues.get(content.partition)
            if queue is None:
                queue = self._new_partition(queues, content.partition)
            return self._accumulator.append_encoded(queue, content)
        except KafkaError as error:
            self._note_refusal(error)
            raise

    def _wants_each(self) -> bool:
        """Whether somebody has a say in each record, which then goes its way alone."""
        return (
            self._interceptors is not None
            or self._partitioner is not None
            or self._config.partitioner_ignore_keys
        )

    def _check_size(self, topic: str, size: int) -> None:
        if size > self._max_record_size:
            raise too_large(topic, size, self._config)

    def _partitions(self, topic: str) -> tuple[int, Sequence[int]]:
        """How many partitions a topic has, and those with a leader; known ones are not asked for.

        A callback in the I/O thread may send to known topics.
        """
        queues = self._topics.get(topic) or self._learn(topic)
        return len(queues.partitions), queues.available

    def _send_rows(
        self, topic: str, some_rows: Iterable[Rows], timestamp_ms: int | None
    ) -> BulkFuture:
        stamp = self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        config, first = self._config, self._io.runtime.random.randrange(MAX_FIRST_PARTITION)
        size = config.batch_size if config.is_given("batch.size") else DEFAULT_BATCH_BYTES
        sender = RowSender(self._partitions, self.send_encoded, size, self._max_record_size, first)
        batches: list[ProducerBatch] = []
        for rows in some_rows:
            batches += sender.send(topic, rows, stamp)
        return self._bulk(batches + sender.finish())

    def _bulk(self, parts: Sequence[ProducerBatch | RecordFuture]) -> BulkFuture:
        return BulkFuture(self._io.runtime.clock, parts)

    @contextmanager
    def _refusals_noted(self) -> Iterator[None]:
        """An open transaction can only be aborted after some of the records were refused."""
        try:
            yield
        except KafkaError as error:
            self._note_refusal(error)
            raise
        except (TypeError, ValueError) as error:
            self._note_refusal(KafkaError(ErrorCode.INVALID_RECORD, str(error)))
            raise

    def _note_refusal(self, error: KafkaError) -> None:
        """A record was not taken: if a transaction is open, it can only be aborted.

        Nothing is waited for: this may be the I/O thread, and the transaction ends later.
        """
        if self._transactions is not None:
            self._io.post(partial(self._transactions.note_refusal, error))

    def flush(self, timeout: float | None = None) -> None:
        """Send the queued records now and wait until all of them are delivered or have failed.

        Raises KafkaTimeoutError after `timeout` seconds; by default it is delivery.timeout.ms that
        bounds the wait.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        limit = self._config.delivery_timeout_ms / 1000 + 1 if timeout is None else timeout
        if not self._flush(limit):
            raise KafkaTimeoutError(f"not everything was delivered within {limit} s")

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas."""
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        limit_ms = self._config.max_block_ms
        return self._io.run(self._core.partitions_for(topic, limit_ms), limit_ms + CLOSE_MARGIN_MS)

    def metrics(self) -> Metrics:
        """The metrics of the producer, by group and name, as Kafka's clients have them.

        Such as `producer.metrics()["producer-metrics"]["record-send-rate"]`; the groups of topics
        are `producer-topic-metrics.<topic>`. A metric without a value yet is NaN.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        return self._io.run(self._core.read_metrics(), CLOSE_MARGIN_MS)

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, deliver those that are queued, and end the I/O thread.

        Records that are not delivered after `timeout` seconds fail. Closing twice does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._accumulator.close(RuntimeError("the producer is closed"))
        try:
            if self._io.is_alive:
                self._abort_open_transaction(timeout)
                limit = self._config.delivery_timeout_ms / 1000 + 1 if timeout is None else timeout
                self._flush(limit)
                self._io.run(self._core.close(), CLOSE_MARGIN_MS)
        finally:
            self._io.close()
            if self._partitioner is not None:
                self._partitioner.close()

    async def _build(self) -> ProducerCore:
        return ProducerCore(self._io.runtime, self._config, self._io.post)

    async def _take_id(self, transactional_id: str) -> Transactions:
        return self._core.take_id(transactional_id)

    def _flush(self, timeout: float) -> bool:
        clock = self._io.runtime.clock
        end_ms = clock.monotonic_ms() + int(timeout * 1000)
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

    def _queue(
        self, queues: TopicQueues, partition: int | None, key: bytes | None
    ) -> PartitionQueue | None:
        """The queue for a record that has a partition or a key; None for the sticky one."""
        if partition is None:
            if key is None or self._config.partitioner_ignore_keys:
                return None
            else:
                partition = partition_for_key(key, len(queues.partitions))
        queue = queues.queues.get(partition)
        return self._new_partition(queues, partition) if queue is None else queue

    def _new_partition(self, queues: TopicQueues, partition: int) -> PartitionQueue:
        """The queue of an unknown partition, which may have been added: refresh the metadata."""
        limit_ms = self._config.max_block_ms
        self._io.run(self._core.refresh(queues.topic, limit_ms), limit_ms + CLOSE_MARGIN_MS)
        if partition not in queues.queues:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition={partition}: topic {queues.topic} has {len(queues.partitions)}",
            )
        return queues.queues[partition]


def checked_headers(headers: HeadersLike) -> Headers:
    """Headers as pairs of str and bytes or None; values may be given as text."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise KafkaError(ErrorCode.INVALID_RECORD, f"header key {name!r}: must be a str")
        if value is not None and type(value) is not bytes:
            value = to_bytes(f"header {name}", value)
        checked.append((name, value))
    return tuple(checked)


def checked_timestamp(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp_ms={timestamp_ms!r}: must be a whole number of milliseconds since 1970",
        )
    return timestamp_ms


def too_large(topic: str, size: int, config: ProducerConfig) -> KafkaError:
    size += BATCH_OVERHEAD
    name = "max.request.size" if size > config.max_request_size else "buffer.memory"
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record of {size} bytes for topic {topic} is larger than {name}={config.text_of(name)}",
    )
