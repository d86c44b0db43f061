"""Where records wait to be sent: per partition a queue of batches, within `buffer.memory`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clients.producer.partitioner import StickyPartition
from ottla.clients.producer.producer_batch import (
    BatchFormat,
    NewRecord,
    OnDelivery,
    ProducerBatch,
    RecordFuture,
    SenderThread,
)
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.record import kernel
from ottla.record.batch_builder import build_batch_of_payload, build_batch_of_section
from ottla.record.compression import CompressionType
from ottla.record.record_batch import RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.runtime.clock import Clock
from ottla.runtime.io_thread import LONGEST_WAIT_MS, Condition, Lock, get_ident
from ottla.structs import TopicPartition, Value

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

MEMORY_STEP: Final = 16_384
"""An open batch takes its share of buffer.memory in steps of so many bytes."""


class RecordAccumulator:
    """Takes records from any thread; gives batches that are ready to the sender's one thread.

    Invariants, under the one lock: `_used` is the sum of the bytes that unfinished batches have
    reserved, and `_active` holds exactly the queues that have batches. `wake` is called from the
    sending thread when a batch has become ready, or has begun to linger, since the sender last
    looked. `on_room` is called when memory was given back, or batches are refused, while a caller
    waits for it.
    """

    def __init__(
        self,
        clock: Clock,
        limits: AccumulatorLimits,
        randrange: Callable[[int], int],
        wake: Callable[[], object],
        *,
        may_block: bool = True,
    ) -> None:
        """Unless the thread of a caller `may_block`, NoRoomError says that memory is used up."""
        self.on_room: Callable[[], object] = lambda: None
        self._may_block = may_block
        self._sender = SenderThread()
        self.topics: dict[str, TopicQueues] = {}
        self.limits = limits
        self._clock = clock
        self._randrange = randrange
        self._wake = wake
        self._is_awake = False
        self._lock = Lock()
        self._room = Condition(self._lock)
        self._waiting = 0
        self._flushing = 0
        self._used = 0
        self._drained = 0
        self._active: dict[PartitionQueue, None] = {}
        self._unfinished: dict[ProducerBatch, None] = {}
        self._closed_with: Exception | None = None
        self._refusal: KafkaError | None = None

    @property
    def available_bytes(self) -> int:
        """How much of buffer.memory is free."""
        return self.limits.buffer_memory - self._used

    def topic(self, name: str) -> TopicQueues:
        """The queues of a topic, made when first asked for."""
        with self._lock:
            if name not in self.topics:
                self.topics[name] = TopicQueues(name, self._randrange)
            return self.topics[name]

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        record: NewRecord,
        size: int,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Queue a record of `size` bytes; without `queue`, in the topic's sticky partition.

        Blocks for up to max.block.ms while buffer.memory is used up, then raises KafkaTimeoutError.
        """
        timestamp_ms, key, value, _ = record
        with self._lock:
            if queue is None:
                queue = topic.sticky_queue(size, self.limits.batch_size)
            batch = queue.open
            if batch is None or batch.size + size > batch.reserved:
                try:
                    batch = self._room_for(queue, size)
                except NoRoomError as error:
                    error.again = partial(self.append, topic, queue, record, size, on_delivery)
                    raise
            records = batch.records
            future = RecordFuture(
                batch,
                len(records),
                timestamp_ms,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            )
            records.append(record)
            batch.size += size
            if on_delivery is not None:
                batch.callbacks.append((future, on_delivery))  # an open batch is not done
        return future

    def append_encoded(self, queue: PartitionQueue, content: EncodedRecords) -> EncodedBatch:
        """Queue a batch that is already complete, behind those in the queue.

        Blocks as `append` does.
        """
        with self._lock:
            reserve = len(memoryview(content.payload))
            if self._lacks_room(reserve):
                self._wait_for_room(reserve, self._deadline_ms())
            batch = EncodedBatch(queue.topic_partition, self._clock.monotonic_ms(), content)
            self._enqueue(queue, batch)
            queue.open = None
        return batch

    def _room_for(self, queue: PartitionQueue, size: int) -> ProducerBatch:
        """The open batch with room for so many bytes more, or a new one that becomes the open one.

        Memory is taken step by step, and up to batch.size first: with the next step the batch may
        be sent. The lock is released to wait for memory.
        """
        full, most = self.limits.batch_size, self.limits.grown_batch_size
        deadline_ms = self._deadline_ms()  # of all waits: another thread may take the room again
        while True:
            batch = queue.open
            if batch is None or batch.size + size > most:
                reserve = max(size, min(full, MEMORY_STEP))
                batch = None
            elif batch.size + size <= batch.reserved:
                return batch  # another thread was faster
            else:
                lacking = batch.size + size - batch.reserved
                end = full if batch.reserved < full else most
                reserve = max(lacking, min(end - batch.reserved, MEMORY_STEP))
            if not self._lacks_room(reserve):
                break
            self._wait_for_room(reserve, deadline_ms)
        if batch is None:
            batch = ProducerBatch(queue.topic_partition, self._clock.monotonic_ms(), reserve)
            self._enqueue(queue, batch)
            queue.open = batch
        else:
            self._used += reserve
            batch.reserved += reserve
            if batch.size + size >= full:
                self._wake_sender()
        return batch

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        refusal = self._closed_with or self._refusal
        if refusal is not None:
            raise refusal
        batch.sender = self._sender
        self._used += batch.reserved
        queue.batches.append(batch)
        self._active[queue] = None
        self._unfinished[batch] = None
        self._wake_sender()

    def _lacks_room(self, reserve: int) -> bool:
        """Whether buffer.memory is used up; a batch larger than all of it is taken alone."""
        return self._used > 0 and self._used + reserve > self.limits.buffer_memory

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self.limits.max_block_ms

    def _wait_for_room(self, reserve: int, deadline_ms: int) -> None:
        if not self._may_block:
            raise self._closed_with or self._refusal or NoRoomError(reserve)
        self._waiting += 1
        self._wake_sender()
        try:
            while self._lacks_room(reserve):
                left_ms = deadline_ms - self._clock.monotonic_ms()
                refusal = self._closed_with or self._refusal
                if left_ms <= 0 or refusal is not None:
                    raise refusal or self.exhausted(reserve)
                if self._sender.is_current:
                    raise BufferExhaustedError(
                        f"no room for {reserve} bytes in buffer.memory="
                        f"{self.limits.buffer_memory}, and a callback of the producer cannot wait"
                    )
                self._room.wait(min(left_ms, LONGEST_WAIT_MS) / 1000)
        finally:
            self._waiting -= 1

    def exhausted(self, reserve: int) -> BufferExhaustedError:
        """The error when there was no room in time."""
        return BufferExhaustedError(
            f"no room for {reserve} bytes in buffer.memory={self.limits.buffer_memory} within "
            f"max.block.ms={self.limits.max_block_ms}"
        )

    def begin_wait(self) -> None:
        """Have all batches sent at once, and `on_room` called, until `end_wait`."""
        with self._lock:
            self._waiting += 1
            self._wake_sender()

    def end_wait(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _tell_waiting(self) -> None:
        self._room.notify_all()
        self.on_room()

    def _wake_sender(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._wake()

    # The sender calls the following methods, in the I/O thread.

    def ready(self, now_ms: int) -> tuple[list[PartitionQueue], int | None]:
        """The queues whose first batch may be sent now, and when the next one may (None: never).

        A batch is ready when it is full, has lingered, or when a thread waits for room or a flush.
        """
        queues = []
        next_ms = None
        self._sender.id = get_ident()
        with self._lock:
            self._is_awake = False
            hurry = bool(self._waiting or self._flushing or self._closed_with)
            for queue in self._active:
                ready_ms = self._ready_ms(queue, hurry)
                if ready_ms <= now_ms:
                    queues.append(queue)
                elif next_ms is None or ready_ms < next_ms:
                    next_ms = ready_ms
        return queues, next_ms

    def _ready_ms(self, queue: PartitionQueue, hurry: bool) -> int:
        first = queue.batches[0]
        if first.retry_at_ms:
            return first.retry_at_ms
        if hurry or first is not queue.open or first.size >= self.limits.batch_size:
            return 0
        return first.created_ms + self.limits.linger_ms

    def shut(self, queue: PartitionQueue) -> ProducerBatch:
        """Have the first batch of a queue that has one take no more records; it stays there."""
        with self._lock:
            if queue.open is queue.batches[0]:
                queue.open = None
            return queue.batches[0]

    def drain(self, queue: PartitionQueue) -> ProducerBatch:
        """Take the first batch of a queue that has one, closing it."""
        with self._lock:
            batch = queue.batches.popleft()
            if not batch.order:
                self._drained += 1
                batch.order = (self._drained,)
            if queue.open is batch:
                queue.open = None
            if not queue.batches:
                del self._active[queue]
        return batch

    def reenqueue(self, queue: PartitionQueue, batches: Iterable[ProducerBatch]) -> None:
        """Return batches that were sent to the front of the queue, in the order of sending.

        The parts of a split batch are new: they count as unfinished from here on.
        """
        with self._lock:
            for batch in batches:
                self._unfinished[batch] = None
            queued = [*batches, *queue.batches]
            retried = sorted((b for b in queued if b.order), key=lambda batch: batch.order)
            queue.batches = deque(retried + [batch for batch in queued if not batch.order])
            self._active[queue] = None

    def take_expired(self, created_before_ms: int) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Remove and return the queued batches that were created before `created_before_ms`."""
        expired = []
        with self._lock:
            for queue in list(self._active):
                while queue.batches and queue.batches[0].created_ms < created_before_ms:
                    batch = queue.batches.popleft()
                    if queue.open is batch:
                        queue.open = None
                    expired.append((queue, batch))
                if not queue.batches:
                    del self._active[queue]
        return expired

    def take_all(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Remove and return the batches of a queue."""
        with self._lock:
            taken = list(queue.batches)
            queue.batches.clear()
            queue.open = None
            self._active.pop(queue, None)
        return taken

    def oldest_ms(self) -> int | None:
        """When the oldest queued batch was created; None if nothing is queued."""
        with self._lock:
            return min((queue.batches[0].created_ms for queue in self._active), default=None)

    def finished(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch that is done or was split."""
        with self._lock:
            self._unfinished.pop(batch, None)
            self._used -= batch.reserved
            batch.reserved = 0
            if self._waiting:
                self._tell_waiting()

    # Flushing and closing, from any thread.

    def begin_flush(self) -> list[ProducerBatch]:
        """Make everything ready; returns the batches to wait for before `end_flush`."""
        with self._lock:
            self._flushing += 1
            self._wake_sender()
            return list(self._unfinished)

    def end_flush(self) -> None:
        with self._lock:
            self._flushing -= 1

    @property
    def unfinished_count(self) -> int:
        """How many records are neither delivered nor have failed."""
        with self._lock:
            return sum(batch.record_count for batch in self._unfinished)

    @property
    def has_unfinished(self) -> bool:
        """Whether a batch is queued or in flight."""
        return bool(self._unfinished)

    def refuse(self, error: KafkaError | None) -> None:
        """Refuse new batches with `error`, or take them again; open batches may still grow.

        Threads that wait for room are refused as well.
        """
        with self._lock:
            self._refusal = error
            self._tell_waiting()

    def close(self, error: Exception) -> None:
        """Refuse further records with `error`, those that wait for room included."""
        with self._lock:
            self._closed_with = error
            self._tell_waiting()
            self._wake_sender()

    def abort_all(self) -> list[ProducerBatch]:
        """Empty the queues; returns all unfinished batches, queued or in flight, to be failed."""
        with self._lock:
            for queue in self._active:
                queue.batches.clear()
                queue.open = None
            self._active.clear()
            return list(self._unfinished)


class BufferExhaustedError(KafkaTimeoutError):
    """There was no room in buffer.memory within max.block.ms: the same call may have it later."""


class NoRoomError(Exception):
    """There is no room for so many bytes now; `again` appends the same record."""

    def __init__(self, reserve: int) -> None:
        super().__init__(reserve)
        self.reserve = reserve
        self.again: Callable[[], RecordFuture]


class EncodedBatch(ProducerBatch):
    """A batch closed from the start: no record is added to it, only a header.

    Its records were encoded before they were queued (see `kernel.RowEncoder`), and are decoded into
    tuples only if a broker finds the batch too large and it must be split.
    """

    __slots__ = ("_content", "_record_count")

    def __init__(
        self, topic_partition: TopicPartition, created_ms: int, content: EncodedRecords
    ) -> None:
        self._content: EncodedRecords | None = content
        size = len(memoryview(content.payload))
        super().__init__(topic_partition, created_ms, size)
        self.size = size
        self._record_count = content.record_count

    @property
    def record_count(self) -> int:
        return self._record_count

    def _build(self, form: BatchFormat) -> bytes:
        assert self._content is not None, f"{self} is done"
        _, count, payload, base_ms, max_ms, codec = self._content
        header = self.header(form)
        if codec is None and self._has_section(form):
            return self._build_of_section(form)
        if codec is not None:
            return build_batch_of_section(payload, (base_ms, max_ms), count, codec, **header)
        return build_batch_of_payload(
            payload, (base_ms, max_ms), count, form.codec, level=form.level, **header
        )

    def _payload(self) -> tuple[Buffer, tuple[int, int]]:
        assert self._content is not None, f"{self} is done"
        content = self._content
        return content.payload, (content.base_timestamp_ms, content.max_timestamp_ms)

    def takes_long(self, form: BatchFormat) -> bool:
        is_plain = self._content is not None and self._content.codec is None
        return is_plain and super().takes_long(form)

    def split(self, max_size: int, now_ms: int) -> list[ProducerBatch]:
        assert self._content is not None, f"{self} is done"
        batch = RecordBatch(
            build_batch_of_section(
                self._content.payload,
                (self._content.base_timestamp_ms, self._content.max_timestamp_ms),
                self._content.record_count,
                self._content.codec or CompressionType.NONE,
            )
        )
        decoded = kernel.decode_records(batch, batch.payload())
        self.records = [(r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]
        return super().split(max_size, now_ms)

    def _finish(self) -> None:
        super()._finish()
        self._content = None


class PartitionQueue:
    """The batches of one partition, oldest first; the last one may be open for more records."""

    __slots__ = ("batches", "open", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None


class TopicQueues:
    """A topic as `send` needs it: its partitions, their queues, and the sticky one.

    Invariant: `queues` has an entry for each of `partitions`.
    """

    __slots__ = (
        "available",
        "partitions",
        "queues",
        "sticky",
        "sticky_bytes",
        "sticky_is_over",
        "topic",
    )

    def __init__(self, topic: str, randrange: Callable[[int], int]) -> None:
        self.topic = topic
        self.partitions: Sequence[int] = ()
        self.available: Sequence[int] = ()
        self.queues: dict[int, PartitionQueue] = {}
        self.sticky = StickyPartition(randrange)
        self.sticky_bytes = 0
        self.sticky_is_over = True

    def update(self, partitions: Sequence[int], available: Sequence[int]) -> None:
        """Take over the partitions of the current metadata."""
        for partition in partitions:
            if partition not in self.queues:
                self.queues[partition] = PartitionQueue(TopicPartition(self.topic, partition))
        self.partitions = partitions
        self.available = available
        # A topic that is made again may have fewer; a few small records never fill a batch.
        if self.sticky.current not in (available or partitions):
            self.sticky_is_over = True

    def sticky_queue(self, size: int, batch_size: int) -> PartitionQueue:
        """The queue for a record of `size` bytes without a key; it moves after a full batch."""
        if self.sticky_is_over or self.sticky_bytes + size > batch_size:
            self.sticky_is_over = False  # before it moves: the metadata change in another thread
            self.sticky.move(self.partitions, self.available)
            self.sticky_bytes = 0
        self.sticky_bytes += size
        return self.queues[self.sticky.current]


class AccumulatorLimits(Value, frozen=True):
    """The settings of the same names, with dots."""

    batch_size: int
    grown_batch_size: int
    """A batch of `batch_size` may be sent; until that is possible it takes records up to this."""
    buffer_memory: int
    linger_ms: int
    max_block_ms: int
