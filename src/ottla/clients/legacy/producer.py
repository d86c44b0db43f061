"""`Producer` of the 0.7 design, which sends directly (sync) or through a queue (async)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.message import (
    DefaultEncoder,
    DefaultPartitioner,
    Encoder,
    Message,
    Partitioner,
)
from ottla.clients.legacy.producer_pool import PoolCore, ProducerPool
from ottla.clients.legacy.sync_producer import ProducerRequest
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Timer
from ottla.runtime.io_thread import Condition, IoThread
from ottla.structs import TopicPartition


class QueueItem(NamedTuple):
    """One piece of data in the queue of an async producer, with its partition."""

    data: Any
    topic: str
    partition: int


class EventHandler(Protocol):
    """Serialises a batch of events and sends it; an error that it raises fails the batch."""

    def handle(
        self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder
    ) -> None: ...

    def close(self) -> None: ...


class DefaultEventHandler:
    """Encodes the events, puts those of each partition together, and sends all at once."""

    def handle(self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder) -> None:
        messages: dict[TopicPartition, list[Message]] = {}
        for data, topic, partition in events:
            queue = messages.setdefault(TopicPartition(topic, partition), [])
            queue.append(encoder.to_message(data))
        if messages:
            producer.multi_send(
                [ProducerRequest(*partition, queue) for partition, queue in messages.items()]
            )

    def close(self) -> None:
        """There is nothing to close."""


class CallbackHandler:
    """Sees the data in the queue of an async producer, and may change it. This one does nothing.

    `before_enqueue` and `after_enqueue` run in the threads that call `send`, the others in the
    producer's thread.
    """

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the item to queue in place of `item`."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """The item is in the queue, or there was no room for it."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return the items for the batch in place of one that has left the queue.

        `item` is None when queue.time has passed: then items that were held back may be returned.
        """
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        """Return the items to send in place of a complete batch."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        """Return the items that must still be sent, as the producer is being closed."""
        return ()

    def close(self) -> None:
        """The last batch has been sent."""


logger = logging.getLogger(__name__)


class QueueFullError(KafkaError):
    """There is no room in the queue of an async producer: the event was not taken."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


class QueueClosedError(KafkaError):
    """The async producer is closed: the event was not taken."""

    def __init__(self, message: str = "the queue of the producer is closed") -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


Handle = Callable[[Sequence[QueueItem]], None]


class AsyncProducer:
    """Queues events; a batch is handled when batch.size is reached or queue.time has passed.

    Events are handled in the order of the queue, by one thread. Events that cannot be sent are
    logged and lost: `send` has already returned by then.
    """

    def __init__(
        self, config: LegacyProducerConfig, handle: Handle, callbacks: CallbackHandler
    ) -> None:
        self.failed_count = 0
        self._config = config
        self._handle = handle
        self._callbacks = callbacks
        self._queue: deque[QueueItem] = deque()
        self._batch: list[QueueItem] = []
        self._has_room = Condition()
        self._is_closed = False
        self._is_woken = False
        self._thread = IoThread("ProducerSendThread")
        self._timer: Timer | None = None
        self._thread.post(self._arm)

    def send(self, item: QueueItem) -> None:
        """Queue an event; QueueFullError without room within queue.enqueueTimeout.ms (-1: wait)."""
        item = self._callbacks.before_enqueue(item)
        added = False
        try:
            added = self._enqueue(item)
        finally:
            self._callbacks.after_enqueue(item, added)
        if not added:
            raise QueueFullError(
                f"the queue holds {self._config.queue_size} events (queue.size) and had no room "
                f"within queue.enqueueTimeout.ms={self._config.queue_enqueueTimeout_ms}"
            )

    def close(self) -> None:
        """Take no more events, and handle those that are queued."""
        with self._has_room:
            if self._is_closed:
                return
            self._is_closed = True
            self._has_room.notify_all()
        self._thread.run(self._finish())
        self._thread.close()

    def _enqueue(self, item: QueueItem) -> bool:
        timeout_ms = self._config.queue_enqueueTimeout_ms
        limit_s = None if timeout_ms < 0 else timeout_ms / 1000
        with self._has_room:
            if not self._has_room.wait_for(self._may_enqueue, limit_s):
                return False
            if self._is_closed:
                raise QueueClosedError
            self._queue.append(item)
            must_wake = not self._is_woken and len(self._queue) >= self._config.batch_size
            self._is_woken |= must_wake
        if must_wake:
            self._thread.post(self._drain)
        return True

    def _may_enqueue(self) -> bool:
        return self._is_closed or len(self._queue) < self._config.queue_size

    # In the I/O thread, which sends

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        scheduler = self._thread.runtime.scheduler
        self._timer = scheduler.call_later(self._config.queue_time, self._on_queue_time)

    def _on_queue_time(self) -> None:
        """queue.time has passed: send the events that are queued, however few."""
        self._collect()
        self._batch += self._callbacks.after_dequeuing_existing_data(None)
        self._flush()
        self._arm()

    def _drain(self) -> None:
        """Send all full batches; the rest waits for more events, or for queue.time."""
        with self._has_room:
            self._is_woken = False
        self._collect()
        if not self._batch:
            self._arm()

    async def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._collect()
        self._batch += self._callbacks.last_batch_before_close()
        self._flush()
        self._callbacks.close()

    def _collect(self) -> None:
        """Take events from the queue until it is empty, sending each batch that is full."""
        while (item := self._take()) is not None:
            self._batch += self._callbacks.after_dequeuing_existing_data(item)
            if len(self._batch) >= self._config.batch_size:
                self._flush()

    def _take(self) -> QueueItem | None:
        with self._has_room:
            if not self._queue:
                return None
            item = self._queue.popleft()
            self._has_room.notify()
            return item

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        try:
            events = self._callbacks.before_sending_data(batch)
            if events:
                self._handle(events)
        except Exception:  # the application's handler may raise anything
            self.failed_count += len(batch)
            logger.exception("%d events could not be sent and are lost", len(batch))


CLOSE_LIMIT_MS: Final = 30_000


class ProducerData(NamedTuple):
    """Data for one partition of a topic; the key chooses the partition for all of them.

    The key is not sent. Without a key the partition is chosen at random.
    """

    topic: str
    key: Any
    data: Sequence[Any]


class Producer(ClosedOnExit):
    """Sends data to partitions, directly (producer.type=sync) or through a queue (async).

        with Producer({"zk.connect": "localhost:2181", "serializer.class": StringEncoder}) as p:
            p.send(ProducerData("pages", "user-7", ["/index.html", "/about.html"]))

    Any thread may use it. Leaving the block, or `close`, sends what is queued.
    """

    def __init__(self, config: LegacyProducerConfig | Mapping[str, Any]) -> None:
        if not isinstance(config, LegacyProducerConfig):
            config = LegacyProducerConfig.parse(config)
        self._config = config
        self._encoder = cast(Encoder, made(config.serializer_class, DefaultEncoder))
        self._partitioner = cast(Partitioner, made(config.partitioner_class, DefaultPartitioner))
        self._handler = cast(EventHandler, made(config.event_handler, DefaultEventHandler))
        callbacks = cast(CallbackHandler, made(config.callback_handler, CallbackHandler))
        self._is_closed = False
        self._io = IoThread(f"{config.client_id}-producer")
        self._core = self._io.begin_with(self._build())
        self._pool = ProducerPool(self._io, self._core)
        self._queue: AsyncProducer | None = None
        if config.producer_type == "async":
            self._queue = AsyncProducer(config, self._handle, callbacks)

    def send(self, *producer_data: ProducerData | Sequence[ProducerData]) -> None:
        """Send data of one or several topics, as separate arguments or as a list.

        A sync producer returns when the brokers have all of it, and raises their errors; an async
        one returns when it is queued, and raises QueueFullError if there is no room.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        items = [
            QueueItem(data, entry.topic, partition)
            for entry in _each(producer_data)
            for partition in (self._partition(entry.topic, entry.key),)
            for data in entry.data
        ]
        if self._queue is None:
            self._handle(items)
            return
        for item in items:
            self._queue.send(item)

    @property
    def failed_count(self) -> int:
        """The number of queued events that an async producer could not send."""
        return 0 if self._queue is None else self._queue.failed_count

    def close(self) -> None:
        """Send what is queued and close the connections. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._queue is not None:
                self._queue.close()
            self._handler.close()
            if self._io.is_alive:
                self._io.run(self._core.close(), CLOSE_LIMIT_MS)
        finally:
            self._io.close()

    async def _build(self) -> PoolCore:
        core = PoolCore(self._io.runtime, self._config)
        await core.info.start()
        return core

    def _handle(self, items: Sequence[QueueItem]) -> None:
        self._handler.handle(items, self._pool, self._encoder)

    def _partition(self, topic: str, key: Any) -> int:
        """The partition for a key: the partitioner's result is an index into the sorted list."""
        if key is None or self._config.zk_connect is None:
            return self._pool.any_partition(topic)
        partitions = self._pool.partitions(topic)
        place = self._partitioner.partition(key, len(partitions))
        if not 0 <= place < len(partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the partitioner gave {place} for key {key!r}; topic {topic} has "
                f"{len(partitions)} partitions",
            )
        return partitions[place][1]


def _each(
    producer_data: Iterable[ProducerData | Sequence[ProducerData]],
) -> Iterator[ProducerData]:
    for entry in producer_data:
        if isinstance(entry, ProducerData):
            yield entry
        elif isinstance(entry, list | tuple):
            yield from _each(entry)
        else:
            raise TypeError(f"{entry!r} is a {type(entry).__name__}: it must be ProducerData")


def made(setting: Any, default: type) -> Any:
    """The object of a setting: an instance if it is a class, of `default` if it is not set."""
    chosen = default if setting is None else setting
    return chosen() if isinstance(chosen, type) else chosen
