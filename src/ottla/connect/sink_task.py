"""A task of a sink: consume, convert, transform, put; and commit what the sink says is kept.

Offsets are committed by the place that a record has in Kafka, not by the topic that a transform
has given it (KIP-793). They are committed at intervals, on request, and before a partition is given
away. After a TryAgainError the same records are put again, and nothing is read meanwhile. A topic
that was deleted and created again is closed and opened for the sink, and read from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, cast
from uuid import UUID

from ottla.clients.consumer.consumer import Consumer, WakeupError
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.producer.producer import Producer
from ottla.config.connect_config import SinkConnectorConfig
from ottla.config.java_regex import java_pattern
from ottla.connect.connector import SinkConnector, SinkTaskContext
from ottla.connect.conversion import ConsumedRecord
from ottla.connect.data import DataError, SinkRecord, shown
from ottla.connect.dead_letter_queue import DeadLetterQueue, log_report
from ottla.connect.plugin_thread import State, TargetState
from ottla.connect.plugins import name_of
from ottla.connect.tolerance import (
    Operation,
    RecordFailure,
    Report,
    SkippedRecordError,
    Stage,
    Tolerance,
    may_succeed_later,
)
from ottla.connect.worker_clients import DEAD_LETTERS
from ottla.connect.worker_task import BATCH_SIZE, COMMIT_SUCCESS, TaskContext, TaskParts, WorkerTask
from ottla.errors import KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

POLL_MS: Final = 1000
RETRY_MS: Final = 1000
Offsets = Mapping[TopicPartition, int]
READ: Final = "sink-record-read"
SENT: Final = "sink-record-send"
COMMITS: Final = "offset-commit-completion"
PUT_TIME: Final = "put-batch"
ACTIVE: Final = "sink-record-active-count"


class SinkContext(TaskContext, SinkTaskContext):
    """The context of a task of a sink; used in the task's thread."""

    def __init__(self, task: WorkerSinkTask) -> None:
        super().__init__(task)
        self._sink_task = task
        self.rewound: dict[TopicPartition, int] = {}
        self.wants_commit = False
        self.retry_ms = RETRY_MS
        self.paused: set[TopicPartition] = set()
        self.reported: list[Future[None]] = []

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._sink_task.assigned)

    def topic_id(self, topic: str) -> str:
        return self._sink_task.topic_id(topic)

    def log_range(self, partition: TopicPartition) -> range:
        return self._sink_task.log_range(partition)

    def rewind(self, offsets: Offsets) -> None:
        self.rewound |= {TopicPartition(*place): offset for place, offset in offsets.items()}

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused |= {TopicPartition(*place) for place in partitions}
        self._sink_task.pause_consumer()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused -= {TopicPartition(*place) for place in partitions}
        self._sink_task.pause_consumer()

    def request_commit(self) -> None:
        self.wants_commit = True

    def retry_after(self, timeout_ms: int) -> None:
        self.retry_ms = timeout_ms

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        original = record.original if isinstance(record, ConsumedRecord) else None
        operation = Operation(Stage.TASK_PUT, self._sink_task.class_name, original or record)
        future = self._sink_task.tolerance.report(RecordFailure(operation, error, 1))
        if future is None:
            future = Future()
            future.set_result(None)
        return future


def _origins(behind: Offsets, records: Sequence[SinkRecord]) -> str:
    """Where the records of a call are from, for an error that names none of them."""
    ends = ", ".join(f"{place} before offset {offset}" for place, offset in behind.items())
    return f"put was given {len(records)} records, of {ends}"


def _check_kept(kept: object) -> None:
    """DataError unless a sink has returned offsets: others would be committed, or end a commit."""
    offsets = kept.values() if isinstance(kept, Mapping) else [kept]
    for offset in offsets:
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise DataError(
                f"pre_commit returned {shown(kept)}: must be offsets, from 0 on, by partition"
            )


class WorkerSinkTask(WorkerTask, RebalanceListener):
    """Brings records to a sink. At least once, or exactly once where the sink keeps offsets.

    Invariant: `_consumed` has the offsets behind what the sink was given, `_committed` those that
    are committed; both only of assigned partitions.
    """

    MEASURED = (READ, SENT, COMMITS)

    def __init__(self, parts: TaskParts, target: TargetState) -> None:
        super().__init__(parts, target)
        self.config = cast(SinkConnectorConfig, parts.config)
        self.class_name = name_of(parts.connector_class)
        self.assigned: set[TopicPartition] = set()
        self.consumer: Consumer | None = None
        self.tolerance = Tolerance(self.config, parts.runtime, self.wait)
        self._queue: DeadLetterQueue | None = None
        self._queue_producer: Producer | None = None
        self._lacks_letters = False
        self._consumed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._context = SinkContext(self)
        self._topic_ids: dict[TopicPartition, UUID] = {}
        """The id of the topic that a partition's offsets belong to, where it is known."""
        self._sink: SinkConnector | None = None
        self._again: list[SinkRecord] = []
        self._behind: dict[TopicPartition, int] = {}
        self.commit_count = 0
        """How often offsets were to be committed."""
        self.active_count = 0
        """Offsets between what is committed and what the sink was given."""

    # From the worker

    def wake(self) -> None:
        if self.consumer is not None:
            self.consumer.wakeup()

    def close_clients(self) -> None:
        """A consumer belongs to its thread: it is woken, and its commits are refused later."""
        self.wake()
        if self._queue_producer is not None:
            self._queue_producer.close(0)

    @property
    def queue(self) -> DeadLetterQueue | None:
        """Where records go that fail, if the settings name a topic."""
        return self._queue

    # In its thread

    def work(self) -> None:
        self._prepare_reports()
        self.consumer = self.parts.clients.consumer(self.id, self.id.connector)
        made = self.parts.connector_class(self.parts.settings, self._context)
        self._sink = cast(SinkConnector, made)
        if not self.call_until_up("start", self._sink.start):
            return
        if self.config.topics_regex:
            self.consumer.subscribe(pattern=java_pattern(self.config.topics_regex), listener=self)
        else:
            self.consumer.subscribe(self.config.topics, listener=self)
        due = self._next_commit()
        while not self.is_stopping:
            self._follow_target()
            if due.has_passed or self._context.wants_commit:
                self._context.wants_commit = False
                self._commit(self.assigned)
                due = self._next_commit()
            self._step(int(min(POLL_MS, max(0, due.left_ms))))

    def _step(self, timeout_ms: int) -> None:
        """Deliver what the sink wanted again, or what has come since."""
        assert self.consumer is not None, "started"
        self._rewind()
        if self._again and self.is_paused:
            self._context.rewind(self._drop_again())  # it is read again after the pause
            return
        try:
            if self._again:
                timeout_ms = min(self._context.retry_ms, POLL_MS)
            records = self.consumer.poll(timeout_ms)
            remade = self._remade_topics()
            if remade:
                self._begin_again(remade)
        except WakeupError:
            return
        if remade:
            records = [record for record in records if record.topic not in remade]
        if self._again:
            self._deliver(self._again, self._behind)
        elif records:
            self._deliver(*self._converted(records))

    def _next_commit(self) -> Deadline:
        limit_ms = self.parts.worker_config.offset_flush_interval_ms
        return Deadline(self.parts.runtime.clock, limit_ms)

    def _prepare_reports(self) -> None:
        reports: list[Report] = []
        if self.config.errors_log_enable:
            reports.append(log_report(self.config, str(self.id)))
        if self.config.errors_deadletterqueue_topic_name:
            self._queue_producer = self.parts.clients.producer(self.id, DEAD_LETTERS)
            self._queue = DeadLetterQueue(
                self._queue_producer,
                self.config,
                self.id,
                lambda: self.parts.clients.admin(self.id),
                self.parts.hide,
            )
            self._queue.prepare()
            reports.append(self._queue)
        self.tolerance = Tolerance(self.config, self.parts.runtime, self.wait, reports)

    def _follow_target(self) -> None:
        if self.is_paused and self._shown is not State.PAUSED:
            self.pause_consumer()
            self.show(State.PAUSED)
        elif not self.is_paused and self._shown is not State.RUNNING:
            self.pause_consumer()
            self.show(State.RUNNING)

    def pause_consumer(self) -> None:
        """Have the consumer bring only what is wanted now."""
        assert self.consumer is not None, "started"
        is_all = self.is_paused or bool(self._again)
        wanted = self.assigned if is_all else self._context.paused & self.assigned
        self.consumer.resume(self.assigned - wanted)
        self.consumer.pause(wanted)

    def _converted(
        self, records: Sequence[ConsumerRecord]
    ) -> tuple[list[SinkRecord], dict[TopicPartition, int]]:
        """What the sink gets, and the offsets behind all that was read for it."""
        found, behind = [], {}
        decode, tolerance = self.parts.conversion.decode, self.tolerance
        self.measures.add(READ, len(records))
        self.measures.record(BATCH_SIZE, len(records))
        for record in records:
            try:
                made = decode(record, tolerance)
            except SkippedRecordError:
                made = None
            if made is not None:
                found.append(made)
            behind[record.topic, record.partition] = record.offset + 1
        for topic in {topic for topic, _ in behind}:
            self.note_topic(topic)
        return found, {TopicPartition(*place): offset for place, offset in behind.items()}

    def _deliver(self, records: list[SinkRecord], behind: dict[TopicPartition, int]) -> None:
        assert self._sink is not None, "started"
        now_ms = self.parts.runtime.clock.monotonic_ms
        began_ms = now_ms()
        # Of records that were left out before these: a sink may keep its offsets as it puts.
        self._flush_letters()
        try:
            with self.calls.during("put"):
                self._sink.put(records)
        except Exception as error:
            if not may_succeed_later(error):
                logger.error("%s: %s", self.id, _origins(behind, records))
                raise
            logger.warning("%s: put is tried again: %s", self.id, error)
            is_first = not self._again
            self._again, self._behind = records, behind
            if is_first:
                self.pause_consumer()
            return
        self.measures.add(SENT, len(records))
        self.measures.record(PUT_TIME, now_ms() - began_ms)
        was_again, self._again = self._again, []
        self._consumed |= {p: offset for p, offset in behind.items() if p in self.assigned}
        self._note_active()
        self._context.retry_ms = RETRY_MS
        if was_again:
            self.pause_consumer()

    def _flush_letters(self) -> None:
        """Wait until all dead letters are written; raises the error of one that is not.

        Its record is nowhere then, and the task that ends for it commits nothing any longer.
        """
        if self._queue is not None:
            self._lacks_letters = True
            self._queue.flush()
            self._lacks_letters = False

    def _drop_again(self) -> dict[TopicPartition, int]:
        """Forget the records that wait for the next put; the offsets to read them from again."""
        if not self._again:
            return {}
        self._again, self._behind = [], {}
        self.pause_consumer()
        return dict(self._consumed)

    def _note_active(self) -> None:
        committed = self._committed
        found = (offset - committed.get(place, 0) for place, offset in self._consumed.items())
        self.active_count = sum(found)
        self.measures.record(ACTIVE, self.active_count)

    def _rewind(self) -> None:
        assert self.consumer is not None, "started"
        rewound, self._context.rewound = self._context.rewound, {}
        for place, offset in rewound.items():
            if place in self.assigned:
                self.consumer.seek(place, offset)
                self._consumed[place] = offset

    def _commit(self, partitions: Collection[TopicPartition]) -> None:
        """Ask the sink what it has kept of these partitions, and commit that."""
        assert self._sink is not None, "started"
        assert self.consumer is not None, "started"
        current = {p: self._consumed[p] for p in partitions if p in self._consumed}
        if not current or self._is_abandoned or self._lacks_letters:
            return
        self.commit_count += 1
        self._flush_letters()
        try:
            with self.calls.during("pre_commit"):
                kept = self._sink.pre_commit(dict(current))
        except Exception as error:
            logger.error("%s: offsets cannot be committed, going back: %s", self.id, error)
            self.measures.record(COMMIT_SUCCESS, 0.0)
            again = {p: self._committed[p] for p in current if p in self._committed}
            self._context.rewind(self._drop_again() | again)
            if not may_succeed_later(error) and len(again) < len(current):
                raise
            return
        _check_kept(kept)
        wanted = {
            TopicPartition(*place): offset
            for place, offset in kept.items()
            if place in current and offset <= current[TopicPartition(*place)]
        }
        changed = {
            place: offset
            for place, offset in wanted.items()
            if self._committed.get(place) != offset and self._may_commit(place)
        }
        if not changed:
            return
        try:
            with self.measures.commit():
                self.consumer.commit(changed, self.parts.worker_config.offset_flush_timeout_ms)
            self._committed |= changed
            self.measures.add(COMMITS, 1)
            self._note_active()
        except KafkaError as error:
            logger.warning("%s: offsets were not committed: %s", self.id, error)

    # Topics that are deleted and created again

    def topic_id(self, topic: str) -> str:
        """The id of a topic for the sink; "" where it is not known."""
        assert self.consumer is not None, "started"
        found = self.consumer.topic_id(topic)
        return "" if found is None or found == NO_UUID else str(found)

    def log_range(self, partition: TopicPartition) -> range:
        """The offsets that there are in a partition now."""
        assert self.consumer is not None, "started"
        start = self.consumer.beginning_offsets([partition])[partition]
        return range(start, self.consumer.end_offsets([partition])[partition])

    def _remade_topics(self) -> set[str]:
        """The topics that have another id than when their partitions were assigned."""
        assert self.consumer is not None, "started"
        found = set()
        for place, known in self._topic_ids.items():
            if self.consumer.topic_id(place.topic) not in (None, NO_UUID, known):
                found.add(place.topic)
        return found

    def _begin_again(self, topics: Collection[str]) -> None:
        """Have the sink close these partitions, and read them from their beginning.

        What was fetched meanwhile may be of either topic, and is read again.
        """
        assert self.consumer is not None, "started"
        there = {
            TopicPartition(topic, each.partition)
            for topic in topics
            for each in self.consumer.partitions_for(topic)
        }
        former = [place for place in self.assigned if place.topic in topics]
        logger.warning(
            "%s: %s deleted and created again: read from the beginning",
            self.id,
            ", ".join(f"topic {topic} was" for topic in sorted(topics)),
        )
        self._commit(former)
        self._close_partitions(former)
        places = sorted(there.intersection(former))
        for place, offset in self.consumer.beginning_offsets(places).items():
            self.consumer.seek(place, offset)
        self.on_partitions_assigned(places)

    def _may_commit(self, place: TopicPartition) -> bool:
        """Whether its offsets are of the topic that is there now, as far as is known.

        Those of a deleted topic would be taken for offsets of the next one of its name.
        """
        assert self.consumer is not None, "started"
        known = self._topic_ids.get(place)
        return known is None or self.consumer.topic_id(place.topic) in (known, NO_UUID)

    # Partitions come and go, inside poll

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._sink is not None, "started"
        assert self.consumer is not None, "started"
        self.assigned |= set(partitions)
        for place in partitions:
            self._consumed[place] = self._committed[place] = self.consumer.position(place)
            topic_id = self.consumer.topic_id(place.topic)
            if topic_id not in (None, NO_UUID):
                self._topic_ids[place] = topic_id
        self.pause_consumer()
        if partitions:
            self._open(self._sink, partitions)
            self._rewind()

    def _open(self, sink: SinkConnector, partitions: Sequence[TopicPartition]) -> None:
        """Have the sink open partitions; one whose system is down is asked again."""
        if not self.call_until_up("open", lambda: sink.open(list(partitions))):
            raise WakeupError

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._commit(partitions)
        self._close_partitions(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._close_partitions(partitions)

    def _close_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._sink is not None, "started"
        if partitions:
            with self.calls.during("close"):
                self._sink.close(list(partitions))
        self._forget(set(partitions))

    def _forget(self, gone: Collection[TopicPartition]) -> None:
        """Keep nothing of partitions that are closed: they may come back as another topic's."""
        self.assigned -= set(gone)
        self._context.paused -= set(gone)
        notes = (self._consumed, self._committed, self._topic_ids, self._behind)
        for of_partitions in (*notes, self._context.rewound):
            for place in gone:
                of_partitions.pop(place, None)
        self._note_active()
        kept = [
            each
            for each in self._again
            if TopicPartition(each.original_topic, each.original_partition) not in gone
        ]
        if self._again and not kept:
            self._drop_again()
        self._again = kept

    def close(self) -> None:
        try:
            if self.consumer is not None:
                self.consumer.close()  # commits and closes what is assigned, by the listener
        finally:
            try:
                if self._sink is not None:
                    with self.calls.during("stop"):
                        self._sink.stop()
            finally:
                if self._queue_producer is not None:
                    self._queue_producer.close(0)
