"""A task of a source: poll, transform, convert, send; and the offsets of what has arrived.

Records are acknowledged in any order, but an offset is stored only when all records before it, in
its partition of the source, have arrived. What has not arrived holds back that partition alone.
Offsets are stored from another thread (`commit_offsets`), so that a source which waits in `poll`
holds up nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import ProducerBatch, RecordMetadata
from ottla.config.connect_config import SourceConnectorConfig
from ottla.connect.connector import (
    Place,
    SourceBatch,
    SourceConnector,
    SourceTaskContext,
    TransactionContext,
)
from ottla.connect.conversion import Encoded
from ottla.connect.data import DataError, Schema, SourceRecord, shown
from ottla.connect.dead_letter_queue import log_report
from ottla.connect.offset_storage import SourceOffset, check_stored, partition_key
from ottla.connect.plugin_thread import State, TargetState
from ottla.connect.tolerance import (
    Operation,
    RecordFailure,
    SkippedRecordError,
    Stage,
    Tolerance,
    may_succeed_later,
)
from ottla.connect.topic_creation import TopicCreation
from ottla.connect.worker_task import BATCH_SIZE, TaskContext, TaskParts, WorkerTask
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.kernel import encode_values
from ottla.record.rows import EncodedRecords
from ottla.runtime.io_thread import Lock
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

READ_LIMIT_MS: Final = 30_000
SEND_RETRY_S: Final = 0.1
MOST_PENDING: Final = 50_000
"""So many records on their way; the source is asked for more when some have arrived."""
FULL_WAIT_S: Final = 0.01
MOST_BATCH_BYTES: Final = 1 << 18
"""A quarter of what a broker takes at once, unless it is set otherwise."""
STANDING_MS: Final = 30_000
POLLED: Final = "source-record-poll"
WRITTEN: Final = "source-record-write"
ACTIVE: Final = "source-record-active-count"
POLL_TIME: Final = "poll-batch"
OF_EACH_RECORD: Final = ("interceptor.classes", "partitioner.class", "max.request.size")
"""Settings of a producer by which it looks at each record."""


class SentRecord:
    """A record on its way to the topic."""

    __slots__ = ("batch", "error", "is_done", "metadata", "record")

    def __init__(self, record: SourceRecord | SourceBatch) -> None:
        self.record = record
        self.is_done = False
        self.metadata: RecordMetadata | None = None
        self.error: KafkaError | None = None
        self.batch: ProducerBatch | None = None

    @property
    def count(self) -> int:
        """How many records it is."""
        return self.record.content.record_count if isinstance(self.record, SourceBatch) else 1

    @property
    def is_written(self) -> bool:
        """Whether it is in the topic: what was left out has no place."""
        return self.metadata is not None

    def arrived(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """The producer's report, in its thread."""
        self.metadata = metadata
        self.error = error
        self.is_done = True

    def look(self) -> bool:
        """Whether its end is known; that of a whole batch is asked for."""
        if self.batch is not None and not self.is_done and self.batch.is_done:
            topic, partition = self.batch.topic_partition
            metadata = RecordMetadata(topic, partition, self.batch.base_offset, -1, -1, -1)
            self.arrived(metadata, self.batch.error)
        return self.is_done


class Ended(NamedTuple):
    """Records that nobody waits for any longer, and how many of them are in the topic."""

    records: int
    written: int


class PendingRecords:
    """Records on their way, in order, for each partition of the source."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queues: dict[tuple[Any, ...], deque[SentRecord]] = {}
        self._committable: dict[tuple[Any, ...], tuple[Place, Place]] = {}
        self._arrived: list[SentRecord] = []
        self.known = Ended(0, 0)
        """What had ended when somebody looked last."""
        self.count = 0
        self.are_alike = True
        """Whether each is one record, and will be in the topic."""

    def add(self, record: SourceRecord | SourceBatch) -> SentRecord:
        sent = SentRecord(record)
        key = partition_key(record.source_partition)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
            queue.append(sent)
            self.count += 1
        return sent

    def remove_last(self, sent: SentRecord) -> None:
        """Take back a record that was not sent after all."""
        with self._lock:
            self._queues[partition_key(sent.record.source_partition)].pop()
            self.count -= 1

    def take_arrived(self) -> list[SentRecord]:
        """Records that have arrived, in order: what is behind one that has not waits for it."""
        with self._lock:
            self._advance()
            found, self._arrived = self._arrived, []
        return found

    def committable(self) -> dict[tuple[Any, ...], tuple[Place, Place]]:
        """Partitions and offsets that can be stored; they are handed out once."""
        with self._lock:
            self._advance()
            found, self._committable = self._committable, {}
        return found

    def put_back(self, offsets: dict[tuple[Any, ...], tuple[Place, Place]]) -> None:
        """They were not stored: they are handed out again, unless there are newer ones."""
        with self._lock:
            self._committable = offsets | self._committable

    def ended(self) -> Ended:
        """What has ended since the start: known at once, whenever somebody asks."""
        with self._lock:
            self._advance()
            return self.known

    def _advance(self) -> None:
        known = len(self._arrived)
        for key, queue in self._queues.items():
            last = None
            while queue and queue[0].look() and queue[0].error is None:
                last = queue.popleft()
                self._arrived.append(last)
                self.count -= 1
            if last is not None:
                place = (last.record.source_partition, last.record.source_offset)
                self._committable[key] = place
        if len(self._arrived) > known:
            new = self.counts_of(self._arrived[known:])
            self.known = Ended(self.known.records + new.records, self.known.written + new.written)

    def counts_of(self, sent: Sequence[SentRecord]) -> Ended:
        """How many records these are; each is looked at only where they are not alike."""
        if self.are_alike:
            return Ended(len(sent), len(sent))
        return Ended(
            sum(each.count for each in sent), sum(each.count for each in sent if each.is_written)
        )

    def first_error(self) -> SentRecord | None:
        """A record that will never arrive."""
        with self._lock:
            for queue in self._queues.values():
                for sent in queue:
                    if sent.look() and sent.error is not None:
                        return sent
                    if not sent.is_done:
                        break
        return None


class SourceContext(TaskContext, SourceTaskContext):
    """The context of a task of a source."""

    def __init__(self, task: WorkerSourceTask, transaction: TransactionContext | None) -> None:
        super().__init__(task)
        self.transaction = transaction
        self._source_task = task

    def batch(
        self, topic: str, values: Sequence[Any], schema: Schema | None
    ) -> EncodedRecords | None:
        return self._source_task.encoded_batch(topic, values, schema)


def _check_partition(partition: object) -> None:
    """DataError for what no topic ever has: a record with it would be tried without end."""
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise DataError(f"partition={shown(partition)}: must be a number from 0 on")


class WorkerSourceTask(WorkerTask):
    """Sends what a source brings. At least once: a crash repeats what was sent since the last
    offsets were stored."""

    MEASURED = (POLLED, WRITTEN)

    def __init__(self, parts: TaskParts, target: TargetState) -> None:
        super().__init__(parts, target)
        config = cast(SourceConnectorConfig, parts.config)
        self.config = config
        self.tolerance = Tolerance(
            config,
            parts.runtime,
            self.wait,
            [log_report(config, str(self.id))] if config.errors_log_enable else [],
        )
        self.pending = PendingRecords()
        self.producer: Producer | None = None
        self._source: SourceConnector | None = None
        self._topics_made = TopicCreation(parts.properties, config, parts)
        self._committing = Lock()
        self._is_standing: Deadline | None = None
        """When nothing will have arrived for long, although there are records on their way."""
        self._turn = -1
        self._missing: dict[TopicPartition, Deadline] = {}
        """Partitions that are not there, and until when a record waits for them."""
        self._checked: Place | None = None
        """The partition that was checked last; a source has the same for many records."""
        settings = parts.clients.producer_settings()
        self._looks_at_records = any(settings.get(key) for key in OF_EACH_RECORD)
        self._has_committed = False
        self._has_unread = False
        self._batch_size = 0
        self._poll_ms = 0
        self._failed_polls = 0
        """How many polls in a row have found their system down."""
        self.active_count = 0
        """Records that the source has returned and whose end is not known."""

    # In its thread

    def work(self) -> None:
        self.producer = self.open_producer()
        if not self._read_offsets():
            return
        self._source = self._make_source()
        if not self.call_until_up("start", self._source.start):
            return
        while not self.is_stopping:
            if self.is_paused:
                self.on_pause()
                self.show(State.PAUSED)
                self.wait_while_paused()
                continue
            self.show(State.RUNNING)
            self.check_arrivals()
            if self.pending.count >= MOST_PENDING:
                self.wait(FULL_WAIT_S)
                continue
            records = self._poll()
            if records:
                self._take(records)

    def open_producer(self) -> Producer:
        """The producer of this task."""
        return self.parts.clients.producer(self.id)

    def _read_offsets(self) -> bool:
        """Read the offsets that a task of before has stored on any worker; False if this one stops.

        Those that this worker has read so far may be older: the task would repeat records, or pass
        over those that a person has set it back to.
        """
        while not self.is_stopping:
            try:
                self.parts.offsets.refresh(READ_LIMIT_MS)
            except (KafkaError, TimeoutError) as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    raise
                logger.warning("%s: its offsets are not read yet: %s", self.id, error)
                self.wait(SEND_RETRY_S)
            else:
                return True
        return False

    def transaction_context(self) -> TransactionContext | None:
        """What a source sets its own boundaries with; only exactly-once tasks have one."""
        return None

    def on_pause(self) -> None:
        """Nothing is read for a while."""

    def _make_source(self) -> SourceConnector:
        context = SourceContext(self, self.transaction_context())
        made = self.parts.connector_class(self.parts.settings, context)
        return cast(SourceConnector, made)

    def _take(self, records: Sequence[SourceRecord | SourceBatch]) -> None:
        """Send what the source has returned, and count it."""
        self._batch_size = 0
        self._note_more(len(records))
        active_count = self.active_count
        self.send_all(records)
        self.measures.record_all(
            {BATCH_SIZE: self._batch_size, POLL_TIME: self._poll_ms, ACTIVE: active_count}
        )

    def _note_more(self, count: int) -> None:
        self._batch_size += count
        self.active_count += count
        self.measures.add(POLLED, count)

    def note_arrivals(self) -> None:
        """Count the records that have arrived by now; from any thread."""
        ended = self.pending.ended()
        self.measures.reach(WRITTEN, ended.written)
        self.active_count = self.measures.totals[POLLED] - ended.records

    def _poll(self) -> Sequence[SourceRecord | SourceBatch]:
        source = self._source
        assert source is not None, "started"
        began_ms = self.parts.runtime.clock.monotonic_ms()
        try:
            return self._polled(source)
        finally:
            self._poll_ms = self.parts.runtime.clock.monotonic_ms() - began_ms

    def _polled(self, source: SourceConnector) -> Sequence[SourceRecord | SourceBatch]:
        """The records of one poll; none, after a pause, from a system that is down."""
        try:
            with self.calls.during("poll"):
                found = source.poll() or ()
        except Exception as error:
            if not may_succeed_later(error):
                raise
            self._failed_polls += 1
            self.wait(self.tolerance.pause_s(self._failed_polls))
            logger.warning("%s: poll is tried again: %s", self.id, error)
            return ()
        self._failed_polls = 0
        return found

    def send_all(self, records: Sequence[SourceRecord | SourceBatch]) -> None:
        """Convert and send, in order."""
        for record in records:
            self._send(record)
            if self.is_stopping:
                return  # what is left comes again from the stored offset

    def _check_place(self, record: SourceRecord | SourceBatch) -> None:
        """DataError if the place that the source says cannot be stored."""
        try:
            if not isinstance(record, SourceRecord | SourceBatch):
                raise DataError(f"poll returned {shown(record)}: must be records")
            if not isinstance(record.topic, str):
                raise DataError(f"topic={shown(record.topic)}: must be a text")
            if record.source_partition is not self._checked:
                check_stored(record.source_partition, "source_partition", is_key=True)
                self._checked = record.source_partition
            if record.source_offset is not None:
                check_stored(record.source_offset, "source_offset")
        except KafkaError as error:
            where = f"connector {self.id.connector}, task {self.id.task}"
            raise DataError(f"{where}: {error.message}") from error

    def _send(self, record: SourceRecord | SourceBatch) -> bool:
        """Whether it is on its way, or dropped; not if the task is to stop before."""
        self._check_place(record)
        sent = self.pending.add(record)
        if isinstance(record, SourceBatch):
            self.pending.are_alike = False
            self._note_more(record.content.record_count - 1)
            return self._send_until_taken(sent, record)
        encoded = None
        if record.error is not None:
            self._report_unread(record, record.error)
        else:
            try:
                encoded = self.parts.conversion.encode(record, self.tolerance)
            except SkippedRecordError:
                pass  # it is reported
        if encoded is None:
            self.pending.are_alike = False
            sent.arrived(None, None)
            return True
        return self._send_until_taken(sent, encoded)

    def _send_until_taken(self, sent: SentRecord, content: Encoded | SourceBatch) -> bool:
        """Have the producer take it, however long it has no room; False if the task is to stop."""
        said = ""
        while True:
            try:
                self._topics_made.ensure(content.topic)
                self._hand_over(sent, content)
            except KafkaError as error:
                if not error.retriable or self._lacks_partition(content, error):
                    sent.arrived(None, error)
                    return True
                if said != error.message:  # it is tried ten times a second
                    said = error.message
                    logger.warning("%s: sending to %s: %s", self.id, content.topic, error)
                if self.wait(SEND_RETRY_S):
                    self.pending.remove_last(sent)
                    return False
            else:
                self.note_topic(content.topic)
                return True

    def _hand_over(self, sent: SentRecord, content: Encoded | SourceBatch) -> None:
        assert self.producer is not None, "started"
        if isinstance(content, SourceBatch):
            sent.batch = self.producer.send_encoded(content.topic, content.content)
            return
        _check_partition(content.partition)
        self.producer.send(
            content.topic,
            content.value,
            key=content.key,
            headers=content.headers,
            partition=content.partition,
            timestamp_ms=content.timestamp_ms,
            on_delivery=sent.arrived,
        )

    def _lacks_partition(self, record: Encoded | SourceBatch, error: KafkaError) -> bool:
        """Whether the record's partition is not there, also after a while: it might be added."""
        partition = (record.content if isinstance(record, SourceBatch) else record).partition
        if partition is None or error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        assert self.producer is not None, "started"
        try:
            if partition < len(self.producer.partitions_for(record.topic)):
                return False
        except KafkaError:
            return False  # the topic is missing: it is waited for without end
        place = TopicPartition(record.topic, partition)
        return self._missing.setdefault(
            place, Deadline(self.parts.runtime.clock, STANDING_MS)
        ).has_passed

    def _report_unread(self, record: SourceRecord, error: BaseException) -> None:
        """Report a record that the source could not read; raises unless that is tolerated.

        There is no dead letter queue for a source: the first of these is always in the log.
        """
        operation = Operation(Stage.TASK_POLL, type(self._source).__name__, record)
        self.tolerance.report(RecordFailure(operation, error, 1))
        if not self._has_unread and not self.config.errors_log_enable:
            logger.warning(
                "%s: left out, as others will be (errors.log.enable=true logs each): %s",
                *(self.id, error),
            )
        self._has_unread = True

    def encoded_batch(
        self, topic: str, values: Sequence[Any], schema: Schema | None
    ) -> EncodedRecords | None:
        """For the source: a batch for the next partition, if nobody has to see its records."""
        if self._looks_at_records:
            return None
        converted = self.parts.conversion.encode_values(topic, values, schema)
        if not converted:
            return None
        payload = encode_values(converted)
        if len(memoryview(payload)) > MOST_BATCH_BYTES:
            return None
        assert self.producer is not None, "started"
        try:
            self._topics_made.ensure(topic)
            partitions = [each.partition for each in self.producer.partitions_for(topic)]
        except KafkaError:
            return None  # each record waits for its topic
        now_ms = self.parts.runtime.clock.now_ms()
        self._turn += 1
        partition = partitions[self._turn % len(partitions)]
        return EncodedRecords(partition, len(converted), payload, now_ms, now_ms)

    def check_arrivals(self) -> None:
        """Tell the source which records have arrived; raise, or skip, what never will."""
        source = self._source
        assert source is not None, "started"
        arrived = self.pending.take_arrived()
        self.commit_records(source, arrived)
        self._look_after_topics(is_moving=bool(arrived) or not self.pending.count)
        self.active_count = self.measures.totals[POLLED] - self.pending.known.records
        failed = self.pending.first_error()
        if failed is not None:
            assert failed.error is not None, "it has failed"
            operation = Operation(Stage.KAFKA_PRODUCE, "Producer", failed.record)
            self.tolerance.report(RecordFailure(operation, failed.error, 1))
            failed.error = failed.metadata = None  # tolerated: it counts as dropped
            self.pending.are_alike = False
        if self._has_committed:
            self._has_committed = False
            with self.calls.during("commit"):
                source.commit()

    def _look_after_topics(self, is_moving: bool) -> None:
        """Create topics again, if nothing arrives for a while: they may have been deleted."""
        if is_moving or self._is_standing is None:
            self._is_standing = Deadline(self.parts.runtime.clock, STANDING_MS)
        elif self._is_standing.has_passed:
            self._is_standing = None
            self._make_topics_again()

    def _make_topics_again(self) -> None:
        logger.warning("%s: nothing has arrived for %d s", self.id, STANDING_MS / 1000)
        try:
            self._topics_made.make_again()
        except KafkaError as error:
            logger.warning("%s: its topics cannot be looked at: %s", self.id, error)

    def flush(self) -> None:
        """Wait until what was sent has arrived or failed, and for topics that were deleted."""
        assert self.producer is not None, "started"
        while True:
            try:
                return self.producer.flush(STANDING_MS / 1000)
            except KafkaTimeoutError:
                if self.is_stopping:
                    raise
                self._make_topics_again()

    def commit_records(self, source: SourceConnector, arrived: Sequence[SentRecord]) -> None:
        """Tell the source what has arrived."""
        if arrived:
            with self.calls.during("commit_record"):
                for sent in arrived:
                    source.commit_record(sent.record, sent.metadata)

    def close(self) -> None:
        if self.producer is not None and not self._is_abandoned:
            self._finish_sending()
        try:
            if self._source is not None:
                with self.calls.during("stop"):
                    self._source.stop()
        finally:
            self._topics_made.close()
            self.close_clients()

    def _finish_sending(self) -> None:
        """Wait for what is on its way, and store the offsets once more."""
        limit_ms = self.parts.worker_config.task_shutdown_graceful_timeout_ms
        assert self.producer is not None, "started"
        try:
            self.producer.flush(limit_ms / 1000)
        except KafkaError as error:
            logger.warning("%s: not all records were delivered at its stop: %s", self.id, error)
        self.commit_offsets()
        try:
            self.check_arrivals()
        except KafkaError as error:
            logger.warning("%s: at its stop: %s", self.id, error)

    def close_clients(self) -> None:
        if self.producer is not None:
            self.producer.close(0)

    # From the worker's thread for commits

    def commit_offsets(self) -> bool:
        """Store the offsets of what has arrived; False if that failed, and is tried again."""
        with self._committing:
            offsets = self.pending.committable()
            if not offsets or self._is_abandoned:
                self.pending.put_back(offsets)
                return True
            name = self.id.connector
            entries = [SourceOffset(name, place, offset) for place, offset in offsets.values()]
            limit_ms = self.parts.worker_config.offset_flush_timeout_ms
            try:
                with self.measures.commit():
                    self.parts.offsets.write(entries, limit_ms)
            except Exception as error:
                self.pending.put_back(offsets)
                logger.error("%s: offsets were not stored: %s", self.id, error)
                return False
            self._has_committed = True
            return True
