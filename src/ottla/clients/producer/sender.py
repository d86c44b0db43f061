"""Sends ready batches to the leaders of their partitions and handles the responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from ottla.clients.answers import left_out
from ottla.clients.client_metrics import ProducerMetrics
from ottla.clients.client_settings import retry_backoff
from ottla.clients.metadata import Cluster, Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.producer.producer_batch import BatchFormat, ProducerBatch
from ottla.clients.producer.record_accumulator import PartitionQueue, RecordAccumulator
from ottla.clients.producer.transaction_manager import TransactionManager
from ottla.clients.producer.transactions import Transactions
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.node_connection import NodeConnection
from ottla.protocol.produce import (
    FIRST_VERSION_THAT_ADDS,
    FIRST_VERSION_WITH_BATCHES,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_ZSTD,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.record.compression import CompressionType
from ottla.runtime import Clock, Timer
from ottla.runtime.scheduler import is_under_way, pause, within
from ottla.runtime.timing import NEVER_MS, Deadline
from ottla.structs import NO_UUID, TopicPartition, Value

logger = logging.getLogger(__name__)


NEVER_FULL: Final = 1 << 62
GONE_MS: Final = 60_000
"""Brokers that have not heard of new partitions yet have done so by then."""

UNCERTAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""After these errors a leader may have appended the batch although it did not acknowledge it."""


class SentBatch(Value, eq=False):
    """One batch in a request, and the queue to which it returns if it must be sent again."""

    queue: PartitionQueue
    batch: ProducerBatch


def by_partition(
    response: ProduceResponse,
) -> dict[tuple[str | UUID, int], PartitionProduceResponse]:
    """The results by the name or the id of the topic, whichever the version has, and the number."""
    return {
        (topic.name or topic.topic_id, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }


def too_late(
    batch: ProducerBatch, limit_ms: int, metadata: Metadata, client: NetworkClient
) -> KafkaTimeoutError:
    """The error of a batch that was not delivered in time, with what kept it."""
    leader = metadata.cluster.leader(batch.topic_partition)
    state = f"after {batch.attempts} attempts" if batch.attempts else f"leader {leader}"
    last = batch.last_error
    if last is not None:
        reason = last.message.removeprefix(f"{batch} was refused: ")
        state += f"; the last error was {last.error.name}: {reason}"
    elif leader in metadata.cluster.nodes:
        state += client.why_not_ready(leader)
    error = KafkaTimeoutError(
        f"{batch} was not delivered within delivery.timeout.ms={limit_ms} ({state})"
    )
    error.__cause__ = last
    return error


class GonePartitions:
    """Partitions that their topics have no longer, as these were made again with fewer.

    A delivery.timeout.ms without end would wait for them without end.
    """

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._since_ms: dict[TopicPartition, int] = {}

    def forget(self, partition: TopicPartition) -> None:
        """It is there."""
        if self._since_ms:
            self._since_ms.pop(partition, None)

    def error_of(self, partition: TopicPartition) -> KafkaError | None:
        """The error for records of a partition that metadata have lacked for a while."""
        topic = self._metadata.cluster.topics.get(partition.topic)
        if topic is None or not topic.partitions or partition.partition in topic.partitions:
            self.forget(partition)
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms.setdefault(partition, now_ms) < GONE_MS:
            return None
        self.forget(partition)
        count = len(topic.partitions)
        text = f"there is no partition {partition}: the topic has {count} partitions"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


class Sender:
    """Sends batches: each `turn` handles everything that is ready, on the event loop.

    Turns are caused by events: a record was queued; a response, a connection or metadata arrived;
    a timer expired.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        config: ProducerConfig,
        manager: TransactionManager | None,
        *,
        is_transactional: bool,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._config = config
        self._runtime = client.runtime
        codec = CompressionType.of(config.compression_type)
        level = compression_level(config, codec)
        self._format = BatchFormat(codec, level, is_transactional, config.max_request_size)
        self._low = (
            FIRST_VERSION_WITH_ZSTD if codec is CompressionType.ZSTD else FIRST_VERSION_WITH_BATCHES
        )
        self._manager = manager
        self._transactions: Transactions | None = None
        self._initialising: asyncio.Task[None] | None = None
        self._in_flight: dict[int, int] = {}
        self._unanswered: set[int] = set()  # brokers that got some without answers
        self._gone = GonePartitions(metadata, self._runtime.clock)
        self._outdated: Cluster | None = None  # the metadata by which one of them has hung up
        self._waiting: list[asyncio.Future[None]] = []
        self._backoff = retry_backoff(config, self._runtime)
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._compressing: set[ProducerBatch] = set()
        self.metrics: ProducerMetrics | None = None
        self.turn_bytes = NEVER_FULL
        """So much is sent in one turn, where the loop has others to serve in between."""
        self.compresses_ahead = False
        """Whether large batches are compressed in the background, for the same reason."""

    def use(self, manager: TransactionManager, transactions: Transactions) -> None:
        """Send all batches from now on in these transactions."""
        self._manager, self._transactions = manager, transactions

    def wakeup(self) -> None:
        """Schedule a turn, unless one is scheduled; must be called on the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._runtime.scheduler.call_soon(self.turn)

    def turn(self) -> None:
        """Send the batches that may be sent, fail those that are too old, and set the timer."""
        self._is_scheduled = False
        now_ms = self._runtime.clock.monotonic_ms()
        self._expire(now_ms)
        if self._manager is not None:
            self._manager.settle()
        if self._transactions is not None:
            self._transactions.drop_what_cannot_be_sent()
        queues, next_ms = self._accumulator.ready(now_ms)
        if self._transactions is not None:
            may_send = self._transactions.may_send
            queues = [queue for queue in queues if may_send(queue.topic_partition)]
        if self._manager is not None and not self._manager.has_producer_id:
            if queues:
                self._initialise()
        else:
            for node_id, ready in self._by_leader(queues).items():
                self._send_ready(node_id, ready)
        self._arm(now_ms, next_ms)
        self._wake_waiters()

    def abort(self, error: KafkaError) -> None:
        """Fail every batch that is not done."""
        for batch in self._accumulator.abort_all():
            if not batch.is_done:
                batch.fail(error)
            self._accumulator.finished(batch)

    def drop_queued(self, error: KafkaError) -> None:
        """Fail every batch that is not in flight."""
        for _, batch in self._accumulator.take_expired(NEVER_MS):
            self._fail(batch, error)

    async def idle(self) -> None:
        """Wait until no batch is in flight; request.timeout.ms bounds the wait."""
        while any(self._in_flight.values()):
            await self._change()

    async def delivered(self, deadline: Deadline) -> None:
        """Send the queued batches now and wait until none is left, delivered or failed."""
        self._accumulator.begin_flush()
        try:
            while self._accumulator.has_unfinished:
                left_ms = deadline.left_ms
                what = "not everything was delivered"
                await within(self._runtime.scheduler, left_ms, self._change(), what)
        finally:
            self._accumulator.end_flush()

    async def settled(self, batches: Sequence[ProducerBatch], deadline: Deadline) -> bool:
        """Wait until these batches are delivered or have failed; False after the deadline."""
        for batch in batches:
            while not batch.is_settled:
                if deadline.has_passed:
                    return False
                try:
                    await within(self._runtime.scheduler, deadline.left_ms, self._change(), "")
                except KafkaTimeoutError:
                    pass  # it was the deadline's
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _change(self) -> None:
        """Wait until batches were answered, or failed."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        await change

    def _wake_waiters(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)

    def _arm(self, now_ms: int, next_ms: int | None) -> None:
        """Set the one timer, for the next batch that will have lingered or be too old."""
        if self._timer is not None:
            self._timer.cancel()
        oldest_ms = self._accumulator.oldest_ms()
        if oldest_ms is not None:
            expiry_ms = oldest_ms + self._config.delivery_timeout_ms + 1
            due_ms = expiry_ms if next_ms is None else min(next_ms, expiry_ms)
            self._timer = self._runtime.scheduler.call_later(max(1, due_ms - now_ms), self.turn)

    def _expire(self, now_ms: int) -> None:
        limit_ms = self._config.delivery_timeout_ms
        for _, batch in self._accumulator.take_expired(now_ms - limit_ms):
            self._fail(batch, self._too_late(batch))

    def _too_late(self, batch: ProducerBatch) -> KafkaTimeoutError:
        return too_late(batch, self._config.delivery_timeout_ms, self._metadata, self._client)

    def _by_leader(self, queues: Sequence[PartitionQueue]) -> dict[int, list[PartitionQueue]]:
        cluster = self._metadata.cluster
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in queues:
            leader = cluster.leader(queue.topic_partition)
            if leader in cluster.nodes:
                by_leader.setdefault(leader, []).append(queue)
                self._gone.forget(queue.topic_partition)
            else:
                self._metadata.request_update()
                self._give_up_if_gone(queue)
        return by_leader

    def _give_up_if_gone(self, queue: PartitionQueue) -> None:
        error = self._gone.error_of(queue.topic_partition)
        if error is not None:
            for batch in self._accumulator.take_all(queue):
                self._fail(batch, error)

    def _send_ready(self, node_id: int, queues: list[PartitionQueue]) -> None:
        if self._outdated is self._metadata.cluster:
            return
        connection = self._client.ready_now(node_id, self.wakeup)
        if connection is None:
            has_hung_up = node_id in self._unanswered
            if has_hung_up:  # as it does not lead the partition, or the topic has another id now
                self._unanswered.discard(node_id)
                self._outdated = self._metadata.cluster
            if has_hung_up or self._client.connection(node_id).is_backing_off:
                self._metadata.request_update()
            return
        most = self._config.max_in_flight_requests_per_connection
        left = self.turn_bytes
        while queues and self._in_flight.get(node_id, 0) < most:
            if left <= 0:
                self.wakeup()
                return
            sent_batches = self._pack(queues)
            if not sent_batches:
                return
            left -= sum(sent.batch.size for sent in sent_batches)
            self._send(node_id, connection, sent_batches)
            queues = [queue for queue in queues if self._is_full(queue)]

    def _is_full(self, queue: PartitionQueue) -> bool:
        """Whether the next batch of the queue is full and may be sent at once."""
        if not queue.batches or queue.batches[0].retry_at_ms:
            return False
        return len(queue.batches) > 1 or queue.batches[0].size >= self._config.batch_size

    def _pack(self, queues: Sequence[PartitionQueue]) -> list[SentBatch]:
        """Take at most one batch of each partition, together at most max.request.size."""
        sent_batches: list[SentBatch] = []
        room = self._config.max_request_size
        for queue in queues:
            batch = queue.batches[0]
            topic_id = self._topic_id(batch)
            if self._manager is not None and not self._manager.may_send(batch, topic_id):
                continue
            if batch.size > room and sent_batches:
                break
            if self.compresses_ahead and batch.takes_long(self._format):
                self._compress_ahead(queue)
                continue
            room -= batch.size
            self._accumulator.drain(queue)
            if self._manager is not None and not batch.has_sequence:
                self._manager.assign(batch)
            if self._encode(batch):
                sent_batches.append(SentBatch(queue, batch))
        return sent_batches

    def _compress_ahead(self, queue: PartitionQueue) -> None:
        """Begin to compress the first batch of a queue, which waits there for it."""
        batch = self._accumulator.shut(queue)
        if batch in self._compressing:
            return
        self._compressing.add(batch)

        def end(_: object) -> None:
            self._compressing.discard(batch)
            self.wakeup()  # after an error it is encoded there, and fails

        job = partial(batch.compress, self._format)
        self._runtime.background.submit(job, end, end)

    def _send(
        self, node_id: int, connection: NodeConnection, sent_batches: list[SentBatch]
    ) -> None:
        config = self._config
        request = ProduceRequest(acks=config.acks, timeout_ms=config.request_timeout_ms)
        if self._transactions is not None:
            request.transactional_id = self._transactions.requests.transactional_id
        topics: dict[str, TopicProduceData] = {}
        for sent in sent_batches:
            batch = sent.batch
            batch.attempts += 1
            batch.is_in_flight = True
            if self.metrics is not None:
                self.metrics.on_sent(batch)
            name, partition = batch.topic_partition
            if name not in topics:
                topics[name] = TopicProduceData(name=name, topic_id=self._topic_id(batch))
                request.topic_data.append(topics[name])
            batch.topic_id = topics[name].topic_id
            topics[name].partition_data.append(
                PartitionProduceData(index=partition, records=batch.encoded)
            )
        try:
            version = connection.version_of(ProduceRequest, *self._versions(request))
            send = self._client.send_on if config.acks else self._client.send_unanswered
            if not config.acks:
                self._unanswered.add(node_id)
            future = send(connection, request, version)
        except KafkaError as error:
            self._on_error(sent_batches, error)
            return
        if future is None:
            self._on_no_response(sent_batches)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        future.add_done_callback(partial(self._on_response, node_id, sent_batches))

    def _topic_id(self, batch: ProducerBatch) -> UUID:
        """The topic to which the batch is sent now, where its id is known."""
        return self._metadata.cluster.topic_id(batch.topic_partition.topic) or NO_UUID

    def _versions(self, request: ProduceRequest) -> tuple[int, int]:
        """The lowest and the highest version of Produce that topics and transaction can use."""
        if self._transactions is not None and not self._transactions.bumps:
            return self._low, FIRST_VERSION_THAT_ADDS - 1
        has_ids = all(topic.topic_id.int for topic in request.topic_data)
        last = ProduceRequest.max_version if has_ids else FIRST_VERSION_WITH_IDS - 1
        return FIRST_VERSION_THAT_ADDS if self._transactions is not None else self._low, last

    def _encode(self, batch: ProducerBatch) -> bool:
        """Encode a batch; on failure only that batch fails, and the result is False."""
        if batch.encoded is not None:
            return True
        try:
            batch.encode(self._format)
        except Exception as cause:
            text = f"{batch} cannot be encoded: {cause}"
            logger.exception(text)
            self._fail(batch, KafkaError(ErrorCode.INVALID_RECORD, text))
            return False
        return True

    def _on_no_response(self, sent_batches: list[SentBatch]) -> None:
        for sent in sent_batches:
            self._succeed(sent.batch, -1, -1)

    def _on_response(
        self, node_id: int, sent_batches: list[SentBatch], future: asyncio.Future[Any]
    ) -> None:
        self._in_flight[node_id] -= 1
        if future.cancelled():
            return  # the client is being closed; `abort` fails its batches
        cause = future.exception()
        if cause is None and self._config.acks == 0:
            self._on_no_response(sent_batches)  # the request has left this process
        elif cause is None:
            self._on_produced(sent_batches, cast(ProduceResponse, future.result()))
        elif isinstance(cause, KafkaError):
            self._on_error(sent_batches, cause)
        else:
            logger.error("an answer to Produce could not be read", exc_info=cause)
            text = f"the answer could not be read: {cause}"
            self._on_error(sent_batches, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
        self.wakeup()

    def _on_error(self, sent_batches: list[SentBatch], error: KafkaError) -> None:
        """The whole request failed."""
        for sent in sent_batches:
            sent.batch.is_in_flight = False
            self._handle_failure(sent, error)

    def _on_produced(self, sent_batches: list[SentBatch], response: ProduceResponse) -> None:
        results = by_partition(response)
        for sent in sent_batches:
            batch = sent.batch
            batch.is_in_flight = False
            name, index = batch.topic_partition
            result = results.get((name, index)) or results.get((batch.topic_id, index))
            if result is None:
                text = "the answer to Produce leaves the partition out"
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
                self._handle_failure(sent, error)
            else:
                self._handle_result(sent, result)

    def _handle_result(self, sent: SentBatch, result: PartitionProduceResponse) -> None:
        batch = sent.batch
        error = ErrorCode.of(result.error_code)
        if error is ErrorCode.NONE:
            self._succeed(batch, result.base_offset, result.log_append_time_ms)
        elif error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._succeed(batch, -1, -1)  # it was appended, but its offset is no longer known
        elif error is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(sent)
        else:
            text = f"{batch} was refused: {result.error_message or error.sentence}"
            errors = {
                entry.batch_index: entry.batch_index_error_message or error.sentence
                for entry in result.record_errors
            }
            self._handle_failure(sent, KafkaError.of(result.error_code, text), errors)

    def _handle_failure(
        self, sent: SentBatch, error: KafkaError, record_errors: dict[int, str] | None = None
    ) -> None:
        """Send the batch again if that may help, else fail it."""
        batch, code = sent.batch, error.error
        is_new = batch.last_error is None or batch.last_error.error is not code
        batch.last_error = error
        batch.maybe_appended |= code in UNCERTAIN
        if code.refresh_metadata:
            self._metadata.request_update()
        now_ms = self._runtime.clock.monotonic_ms()
        if batch.is_done:
            return
        if batch.attempts > self._config.retries or not self._may_retry(batch, code):
            self._fail(batch, error, record_errors)
        elif now_ms - batch.created_ms >= self._config.delivery_timeout_ms:
            self._fail(batch, self._too_late(batch))
        else:
            # Each reason once: the user sees the fault long before delivery.timeout.ms is over.
            level = logging.WARNING if is_new else logging.DEBUG
            logger.log(level, "retrying: %s (%s)", error.message, code.name)
            batch.retry_at_ms = now_ms + self._backoff.delay_ms(batch.attempts)
            self._accumulator.reenqueue(sent.queue, [batch])

    def _may_retry(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        if code.retriable:
            return True
        return self._manager is not None and self._manager.may_retry(batch, code)

    def _split(self, sent: SentBatch) -> None:
        batch = sent.batch
        parts = batch.split(self._config.batch_size, self._runtime.clock.monotonic_ms())
        logger.info("%s is too large and sent as %d smaller ones", batch, len(parts))
        if self._manager is not None:
            self._manager.on_split(batch, parts)
        self._accumulator.reenqueue(sent.queue, parts)
        self._accumulator.finished(batch)

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if batch.is_done:
            return
        if self._manager is not None:
            self._manager.on_success(batch)
        batch.complete(base_offset, log_append_time_ms)
        self._accumulator.finished(batch)

    def _fail(
        self, batch: ProducerBatch, error: KafkaError, record_errors: dict[int, str] | None = None
    ) -> None:
        if self._manager is not None:
            self._manager.on_failure(batch)
        if self._transactions is not None:
            self._transactions.on_batch_failed(error)
        if self.metrics is not None:
            self.metrics.on_failed(batch)
        batch.fail(error, record_errors)
        self._accumulator.finished(batch)

    def _initialise(self) -> None:
        if not is_under_way(self._initialising):
            getting = self._get_producer_id()
            self._initialising = self._runtime.scheduler.spawn(getting, "get a producer id")

    async def _get_producer_id(self) -> None:
        """Ask any broker until one answers; an error that is not retriable fails all batches."""
        failures = 0
        try:
            while self._manager is not None and not self._manager.has_producer_id:
                try:
                    response = await new_identity(self._client, self._config)
                    self._manager.set_producer_id(response.producer_id, response.producer_epoch)
                except KafkaError as error:
                    if not error.retriable:
                        self._refused(error)
                        return
                    failures += 1
                    logger.debug("no producer id yet: %s", error)
                    await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
        finally:
            self._initialising = None
            self.wakeup()

    def _refused(self, error: KafkaError) -> None:
        logger.error("idempotence is not possible here: %s", error)
        self.abort(error)


async def new_identity(client: NetworkClient, config: ProducerConfig) -> InitProducerIdResponse:
    """A producer id from any broker."""
    deadline = Deadline(client.runtime.clock, config.request_timeout_ms)
    request = InitProducerIdRequest(transaction_timeout_ms=config.request_timeout_ms)

    def ask(connection: NodeConnection) -> asyncio.Future[InitProducerIdResponse]:
        return client.send_on(connection, request, connection.version_of(InitProducerIdRequest))

    response = await client.ask_any(ask, deadline)
    if response.error_code:
        text = "no producer id (enable.idempotence=false does without one)"
        raise KafkaError.of(response.error_code, text)
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise left_out("the producer id")
    return response


def compression_level(config: ProducerConfig, codec: CompressionType) -> int | None:
    """The level that is set for the codec; None is the codec's own default."""
    levels = {
        CompressionType.GZIP: ("compression.gzip.level", config.compression_gzip_level),
        CompressionType.LZ4: ("compression.lz4.level", config.compression_lz4_level),
        CompressionType.ZSTD: ("compression.zstd.level", config.compression_zstd_level),
    }
    name, level = levels.get(codec, ("", None))
    return level if name and config.is_given(name) and level != -1 else None
