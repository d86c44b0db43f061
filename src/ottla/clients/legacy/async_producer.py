"""`AsyncProducer`: a queue of events, and the thread that sends them in batches."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from ottla.clients.legacy.event_handler import CallbackHandler, QueueItem
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Timer
from ottla.runtime.io_thread import Condition, IoThread

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
