"""`ottla.Producer`: the synchronous API of a producer, for any number of threads."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

from ottla.clients.client_metrics import Metrics, ProducerMetrics
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings
from ottla.clients.committed_offsets import ConsumerGroupMetadata
from ottla.clients.metadata import Cluster, Metadata, PartitionInfo
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.producer_batch import (
    RECORD_OVERHEAD,
    Headers,
    OnDelivery,
    ProducerBatch,
    RecordFuture,
    RecordMetadata,
    headers_size,
)
from ottla.clients.producer.record_accumulator import (
    AccumulatorLimits,
    CustomPartitioner,
    PartitionQueue,
    RecordAccumulator,
    TopicQueues,
    partition_for_key,
)
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.transaction_manager import TransactionManager
from ottla.clients.producer.transactions import (
    Outbox,
    PreparedTransaction,
    Transactions,
    group_metadata_of,
)
from ottla.clients.serialization import serializer_of, to_bytes
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import ProducerConfig
from ottla.config.config_type import ConfigType
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.timing import Deadline
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.record.rows import EncodedRecords
from ottla.runtime import Runtime
from ottla.runtime.io_thread import IoThread
from ottla.structs import TopicPartition


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
        """Fail what is not delivered yet, and close the connections."""
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


logger = logging.getLogger(__name__)


# The part of `ottla.Producer` that is about transactions.


CLOSE_MARGIN_MS = 5000
Work = Callable[[Transactions, Deadline], Coroutine[Any, Any, None]]


class TransactionalCalls:
    """Transactions of a producer that has a `transactional_id`.

        producer.init_transactions()
        with producer.transaction():
            producer.send("pages", b"/index.html")

    Each call takes at most `timeout` seconds, by default max.block.ms. After KafkaTimeoutError the
    same call may be made again, and continues. After any other KafkaError the transaction can only
    be aborted; if another producer has the id by now (PRODUCER_FENCED), this one only closed.
    """

    _config: ProducerConfig
    _io: IoThread
    _is_closed: bool
    _transactions: Transactions | None

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id, once, before the first transaction.

        What another producer of this id has open is aborted, and that producer is fenced.
        """
        self._run_in_transaction(lambda transactions, limit: transactions.init(limit), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: all records belong to it until it ends."""
        self._run_in_transaction(lambda transactions, limit: transactions.begin(), None)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction, or not at all.

        `offsets` are those of the next records to read; `group` is `consumer.group_metadata()`,
        so that a consumer which has lost its partitions is refused, or the name of the group.
        """
        wanted = {
            TopicPartition(*partition): OffsetAndMetadata(offset)
            if isinstance(offset, int)
            else offset
            for partition, offset in offsets.items()
        }
        member = group_metadata_of(group)
        self._run_in_transaction(
            lambda transactions, limit: transactions.send_offsets(wanted, member, limit), timeout
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver what was sent, and commit the transaction.

        Raises the error of a record that was not delivered. After KafkaTimeoutError only the same
        call can tell whether the transaction was committed.
        """
        self._transactions_of_this()
        self.flush(timeout)
        self._run_in_transaction(lambda transactions, limit: transactions.commit(limit), timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Deliver what was sent and leave the transaction open, for a TransactionCompleter to end.

        After that this producer can only take another id, or be closed, and neither ends the
        transaction. Raises the error of a record that was not delivered.
        """
        transactions = self._transactions_of_this()
        self.flush(timeout)
        limit_ms = self._config.request_timeout_ms
        deadline = Deadline(self._io.runtime.clock, limit_ms)
        identity = self._io.run(transactions.prepare(deadline), limit_ms + CLOSE_MARGIN_MS)
        return PreparedTransaction(transactions.requests.transactional_id, *identity)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; records that are still queued fail."""
        self._run_in_transaction(lambda transactions, limit: transactions.abort(limit), timeout)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around the block: committed at its end, aborted if it raises."""
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            if self._transactions_of_this().is_open and not self._is_closed:
                self._abort_after_error()
            raise

    @abstractmethod
    def flush(self, timeout: float | None = None) -> None:
        """Send what is queued now and wait until all of it is delivered or has failed."""

    def _abort_after_error(self) -> None:
        try:
            self.abort_transaction()
        except KafkaError as error:
            logger.warning("the transaction could not be aborted: %s", error)

    def _abort_open_transaction(self, timeout: float | None) -> None:
        """Abort on close, so that readers need not wait for the transaction's timeout."""
        transactions = self._transactions
        if transactions is not None and transactions.is_open:
            limit_ms = self._config.request_timeout_ms if timeout is None else int(timeout * 1000)
            deadline = Deadline(self._io.runtime.clock, limit_ms)
            try:
                self._io.run(transactions.abort(deadline), limit_ms + CLOSE_MARGIN_MS)
            except KafkaError as error:
                logger.warning("the broker has to abort the open transaction: %s", error)

    def _transactions_of_this(self) -> Transactions:
        if self._transactions is None:
            raise ConfigError("transactional.id: must be set for a producer with transactions")
        return self._transactions

    def _run_in_transaction(self, work: Work, timeout: float | None) -> None:
        transactions = self._transactions_of_this()
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        limit_ms = self._config.max_block_ms if timeout is None else int(timeout * 1000)
        deadline = Deadline(self._io.runtime.clock, limit_ms)
        # The call keeps its own deadline, except while it waits for batches on the wire.
        margin_ms = self._config.request_timeout_ms + CLOSE_MARGIN_MS
        self._io.run(work(transactions, deadline), limit_ms + margin_ms)


# Interceptors: the application's objects that see each record before it is sent, and its outcome.


class ProducerRecord(NamedTuple):
    """A record as `send` was given it, before serialization."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptors:
    """A chain: `on_send(record)` returns the record for the next one, in the order of the settings.

    `on_acknowledgement(metadata, error)` is called in the I/O thread. Either method may be absent.
    An interceptor's exceptions are logged: they must not stop the records.
    """

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = interceptors

    @classmethod
    def of(cls, setting: Sequence[Any]) -> Self | None:
        """The chain that `interceptor.classes` names, None if it names nothing."""
        if not setting:
            return None
        found = [ConfigType.CLASS.parse("interceptor.classes", item) for item in setting]
        return cls([item() if isinstance(item, type) else item for item in found])

    def on_send(
        self, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> tuple[ProducerRecord, OnDelivery | None]:
        """The record after the chain, and a callback that reports its delivery to the chain."""
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_send"):
                try:
                    record = interceptor.on_send(record) or record
                except Exception:
                    logger.exception("on_send of %r raised", interceptor)

        def acknowledge(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            for interceptor in self._interceptors:
                if hasattr(interceptor, "on_acknowledgement"):
                    interceptor.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return record, acknowledge


HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP_MS = 2**63 - 1


class Producer(TransactionalCalls, ClosedOnExit):
    """Sends records to topics, in batches, in the background.

        with Producer("localhost:9092", linger_ms=5, acks="all") as producer:
            future = producer.send("pages", b"/index.html", key=b"user-7")
            print(future.result().offset)

    Settings are Kafka's, as keywords with underscores or as a mapping with dots. One producer
    serves any number of threads. Leaving the block, or `close`, sends what is queued.
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

        What was prepared under the id before stays prepared. `init_transactions` comes next.
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
        transaction must be aborted; the future and `on_delivery` report what happens later.
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

    def send_encoded(self, topic: str, content: EncodedRecords) -> ProducerBatch:
        """Queue a batch of one partition whose records are encoded already.

        It is sent as it is, behind what is queued, without lingering; blocks as `send` does.
        After `flush`, `failure()` of the returned batch tells whether it was delivered.
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

    def _note_refusal(self, error: KafkaError) -> None:
        """A record was not taken: if a transaction is open, it can only be aborted.

        Nothing is waited for: this may be the I/O thread, and what ends a transaction comes later.
        """
        if self._transactions is not None:
            self._io.post(partial(self._transactions.note_refusal, error))

    def flush(self, timeout: float | None = None) -> None:
        """Send what is queued now and wait until all of it is delivered or has failed.

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
        """What the producer measures of itself, by group and name, as Kafka's clients have it.

        Such as `producer.metrics()["producer-metrics"]["record-send-rate"]`; the groups of topics
        are `producer-topic-metrics.<topic>`. What has no value yet is NaN.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        return self._io.run(self._core.read_metrics(), CLOSE_MARGIN_MS)

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, deliver those that are queued, and end the I/O thread.

        What is not delivered after `timeout` seconds fails. Closing twice does nothing.
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
