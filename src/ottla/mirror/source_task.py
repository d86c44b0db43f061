"""The task that copies: partitions of a source, as whole batches, to a producer at the target.

`poll` moves records that have come and notes acknowledgements; `commit` writes how far it is. Both
are called by one thread, of `ottla mirror` or of a worker. A batch is neither decoded nor
decompressed where its records may stay as they are; only its header is made again, so that the
producer's own sequence numbers protect it.

A record that the target refuses stops its partition alone. Those that were handed over with it are
decoded and sent again in groups that become smaller until the record is found; what is at the
target already is not sent again. With exactly-once such a group has a transaction of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.consumer.completed_fetch import FetchedBatches
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.position_validator import LogTruncationError, TopicRecreatedError
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import ProducerBatch, RecordFuture
from ottla.clients.producer.record_accumulator import BufferExhaustedError
from ottla.config.config_type import INT_MAX
from ottla.config.mirror_config import FAIL
from ottla.connect.dead_letter_queue import DeadLetterQueue
from ottla.connect.tolerance import OF_PRODUCER, Operation, RecordFailure, Stage
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.metrics.metrics_registry import BeanKind, Beans, BeanValues, FamilyName, Tags
from ottla.mirror.copied_offsets import CopiedTo, records_of
from ottla.mirror.flow import LARGEST_REQUEST, MBEANS, Flow
from ottla.mirror.offset_sync import CONNECTOR, LACKING_MS, OffsetSyncQueue, OffsetSyncWriter
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.record.record import Record
from ottla.record.record_batch import BATCH_OVERHEAD, MAGIC, RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.runtime.clock import Clock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

RECORDS: Final = "record"
BYTES: Final = "byte"
AGE: Final = "record-age-ms"
LATENCY: Final = "replication-latency-ms"
BEAN: Final = BeanKind(
    FamilyName(MBEANS, CONNECTOR),
    "A partition that a mirror copies.",
    (RECORDS, BYTES),
    (AGE, LATENCY),
)
FIRST_RETRY_MS: Final = 1000
LONGEST_RETRY_MS: Final = 300_000
MOST_AT_ONCE: Final = 256
HOLD_MS: Final = 2000
"""How long a partition waits whose topic the target does not know."""
STANDING_S: Final = 120.0
"""After which what is written of the flow itself will not arrive: its topic was made again with
fewer partitions. No transaction is open for so long, unless a setting says so."""
BLOCK_MS: Final = 1000
"""How long a poll waits for room in the producer; the rest is sent by the next one."""
FETCH_BYTES: Final = 4 << 20
CONSUMER_SETTINGS: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    "max.partition.fetch.bytes": str(FETCH_BYTES),
}
PRODUCER_SETTINGS: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "delivery.timeout.ms": str(INT_MAX),
    "max.block.ms": str(BLOCK_MS),
    "max.request.size": str(LARGEST_REQUEST),
    "buffer.memory": str(4 * LARGEST_REQUEST),
    "linger.ms": "5",
}


class CommittedCount:
    """How many records are at the target; those of a transaction count once it is committed."""

    def __init__(self, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self._pending = 0
        self.total = 0

    def add(self, count: int) -> None:
        self._pending += count
        if not self._is_transactional:
            self.commit()

    def commit(self) -> None:
        self.total += self._pending
        self._pending = 0

    def abort(self) -> None:
        self._pending = 0


class SourceTask:
    """Copies some partitions of a flow.

    Errors that only time can mend are waited out; others are raised, and then the task must be
    closed: a new one continues where `commit` has written that this one was.
    """

    def __init__(self, flow: Flow, number: int, beans: Beans) -> None:
        """`beans` gets the MBeans of the partitions, until they are another task's."""
        self.flow = flow
        self._beans = beans
        self._measures: dict[TopicPartition, BeanValues] = {}
        self.copied_records = CommittedCount(flow.is_exactly_once)
        self.copied_bytes = 0
        self.gaps: list[Gap] = []
        self.lost_records = 0
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._places: dict[TopicPartition, Assigned] = {}
        self.runs: dict[TopicPartition, deque[Run]] = {}
        self._backlog: deque[tuple[TopicPartition, int, RecordBatch]] = deque()
        self.copied: dict[TopicPartition, int] = {}
        self.dirty: set[TopicPartition] = set()
        self._committed: dict[TopicPartition, int] = {}
        """How far the last committed transaction is, with exactly-once."""
        self._held: dict[TopicPartition, int] = {}
        self.syncs = OffsetSyncQueue(flow.config.offset_lag_max)
        self._writes: deque[RecordFuture] = deque()
        self._standing_ms = 0
        self._offsets_wait = False
        self._in_transaction = False
        consumer = {**flow.source.settings("consumer"), **CONSUMER_SETTINGS}
        consumer.pop("group.id", None)
        self.consumer = Consumer(consumer)
        try:
            self._producer, syncs = _open_producers(flow, number)
            self._sync_writer = OffsetSyncWriter(flow, syncs, beans.clock)
        except BaseException:
            self.consumer.close()
            raise
        if flow.is_exactly_once:
            self._producer.init_transactions()
        letters = DeadLetterQueue(
            self._producer,
            flow.config,
            (flow.name, number),
            lambda: Admin(flow.target.settings("admin")),
        )
        self.refused = RefusedPartitions(self, letters, beans.clock)

    @property
    def assigned(self) -> Mapping[TopicPartition, Assigned]:
        return self._assigned

    def assign(self, partitions: Mapping[TopicPartition, Assigned]) -> None:
        """Copy these partitions; those that are copied already continue where they are.

        A partition whose topic was made again, at either end, begins as a new one.
        """
        kept = {
            p
            for p, each in self._assigned.items()
            if p in partitions and each.is_same(partitions[p])
        }
        positions = {partition: self.consumer.position(partition) for partition in kept}
        new = {p: each for p, each in partitions.items() if p not in kept}
        for partition in self._assigned.keys() - kept:
            self._measure_no_longer(partition)
        self._assigned = dict(partitions)
        self._places |= partitions
        self._backlog = deque(each for each in self._backlog if each[0] in kept)
        self.refused.keep(kept)
        self._held = {p: until_ms for p, until_ms in self._held.items() if p in kept}
        self.consumer.assign(partitions)
        for partition, position in positions.items():
            self.consumer.seek(partition, position)
        starts = self.consumer.beginning_offsets(new) if new else {}
        ends = self.consumer.end_offsets(new) if new else {}
        for partition, where in new.items():
            self.runs[partition] = deque()
            self.copied.pop(partition, None)
            self._measures[partition] = self._beans.measures(BEAN, self._tags(partition))
            first = 0
            if where.copied is not None:
                self.copied[partition] = where.copied
                first = where.copied + 1
            self._start(partition, first, starts[partition], ends[partition])

    def poll(self, timeout_ms: int | None = None) -> int:
        """Copy records that have arrived, and note acknowledgements; the number of records sent."""
        self._reap()
        self._sync_writer.send(self.syncs)
        if not self._backlog:
            limit = self.flow.config.consumer_poll_timeout_ms if timeout_ms is None else timeout_ms
            if any(self.runs.values()):
                limit = min(limit, 10)  # answers of the target are awaited as well
            self._fetch(limit)
        return self._send_backlog() + self.refused.send()

    def commit(self) -> None:
        """Write how far the partitions are; with exactly-once, end the transaction by it."""
        if self.flow.is_exactly_once:
            self.commit_transaction()
        else:
            self._reap()
            self._write_offsets()
        self.syncs.on_commit()
        self._sync_writer.send(self.syncs)

    def take_lack(self) -> bool:
        """Whether a topic of the flow's own took nothing since the last time: it may be gone."""
        found = self._offsets_wait | self._sync_writer.take_lack()
        self._offsets_wait = False
        return found

    def finish(self, timeout_s: float) -> None:
        """Wait until all that was read is acknowledged, and commit it."""
        self._backlog.clear()
        for _ in range(2):  # what was copied, and then how far that is
            self._producer.flush(timeout_s)
            self.commit()
        self._sync_writer.producer.flush(timeout_s)

    def lag(self) -> int | None:
        """Records that are at the source and not at the target; None before the first answers."""
        lags = [self.consumer.current_lag(partition) for partition in self._assigned]
        known = [lag for lag in lags if lag is not None]
        if self._assigned and not known:
            return None
        waiting = sum(batch.last_offset_delta + 1 for _, _, batch in self._backlog)
        waiting += self.refused.count
        under_way = sum(run.record_count for runs in self.runs.values() for run in list(runs))
        return sum(known) + waiting + under_way

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the clients; records not acknowledged within the time are copied again later."""
        for partition in self._assigned:
            self._measure_no_longer(partition)
        self.consumer.close()
        self._producer.close(timeout_s)
        self._sync_writer.producer.close(timeout_s)

    # What it measures, batch by batch

    def _tags(self, partition: TopicPartition) -> Tags:
        topic = self._places[partition].remote_topic
        return (*self.flow.tags, ("topic", topic), ("partition", str(partition.partition)))

    def _measure_no_longer(self, partition: TopicPartition) -> None:
        if self._measures.pop(partition, None) is not None:
            self._beans.drop(BEAN, self._tags(partition))

    def _note_sent(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """All of a batch is on its way: how large it is, and how old its newest record."""
        self.copied_bytes += batch.size_in_bytes
        measures = self._measures[partition]
        measures.add(BYTES, batch.size_in_bytes)
        if batch.max_timestamp >= 0:
            measures.record(AGE, (self._beans.clock.now_ms() - batch.max_timestamp,))

    def _note_written(self, partition: TopicPartition, runs: Iterable[Run]) -> None:
        """Runs are acknowledged: how many records, and how long each batch took to get there."""
        measures = self._measures.get(partition)
        if measures is None:
            return  # it is another task's by now
        now_ms = self._beans.clock.now_ms()
        measures.add(RECORDS, sum(run.record_count for run in runs))
        times = dict.fromkeys(run.timestamp_ms for run in runs if run.timestamp_ms >= 0)
        measures.record(LATENCY, [now_ms - timestamp_ms for timestamp_ms in times])

    # Reading

    def _start(self, partition: TopicPartition, first: int, start: int, end: int) -> None:
        """Begin to read at `first`, or where the log begins and ends now."""
        if first < start and self.copied.get(partition) is not None:
            self._on_gap(Gap(partition, first, start - 1, "deleted before they were copied"))
        if first > end:
            why = "the source's log was cut, and ends before"
            self._on_gap(Gap(partition, end, first - 1, why))
            self.syncs.forget({partition: None})
        position = min(max(first, start), end)
        if partition not in self.copied:
            self.copied[partition] = position - 1  # from now on what is lost is known to be
            self.dirty.add(partition)
        self._committed[partition] = position - 1
        self.consumer.seek(partition, position)

    def _fetch(self, limit_ms: int) -> None:
        try:
            fetched = self.consumer.poll_batches(limit_ms)
        except LogTruncationError as error:
            self._on_truncated(error)
            return
        except TopicRecreatedError as error:
            self._on_recreated(error)
            return
        except KafkaError as error:
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._on_out_of_range()
            return
        for each in fetched:
            self._queue(each)

    def _queue(self, fetched: FetchedBatches) -> None:
        partition, position, batches = fetched
        if self.refused.take(partition, position, batches):
            return
        for batch in batches:
            self._backlog.append((partition, position, batch))
            position = batch.next_offset

    def _on_out_of_range(self) -> None:
        """Find the partitions whose position is not in the log now, and continue in it."""
        starts = self.consumer.beginning_offsets(self._assigned)
        ends = self.consumer.end_offsets(self._assigned)
        for partition in self._assigned:
            position = self.consumer.position(partition)
            if not starts[partition] <= position <= ends[partition]:
                self.copied.setdefault(partition, position - 1)
                self._start(partition, position, starts[partition], ends[partition])

    def _on_recreated(self, error: TopicRecreatedError) -> None:
        """The flow assigns the other topic soon; it may have done so before the consumer knew."""
        partition = error.topic_partition
        where = self._assigned.get(partition)
        if where is None or str(self.consumer.topic_id(partition.topic)) != where.source_id:
            logger.warning("%s: %s", self.flow.name, error)
        else:  # its place was taken for one in the former topic
            self.read_again(partition, self.next_of(partition))

    def _on_truncated(self, error: LogTruncationError) -> None:
        partition = error.topic_partition
        position = self.consumer.position(partition)
        resume = position if error.divergent_offset is None else error.divergent_offset
        why = "the source's log was cut, and has others there now"
        self._on_gap(Gap(partition, resume, position - 1, why))
        self.syncs.forget({partition: None})
        self.consumer.seek(partition, resume)

    def _on_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self.lost_records += 0 if gap.last is None else gap.last - gap.first + 1
        logger.error("%s: %s", self.flow.name, gap)
        if self.flow.config.on_gap == FAIL:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"on.gap=fail: {gap}")

    # Writing

    def _send_backlog(self) -> int:
        """Send the records read, as far as there is room; the others wait, by partition."""
        count = 0
        self._release_held()
        while self._backlog:
            partition, position, batch = self._backlog[0]
            if partition not in self._assigned:
                self._backlog.popleft()
                continue
            try:
                self.begin_if_due()
                count += self._send(partition, position, batch)
            except BufferExhaustedError:
                break  # the target is away, or slower than the source
            except KafkaError as error:
                self._on_not_sent(partition, position, batch, error)
                break
            self._backlog.popleft()
            self._note_sent(partition, batch)
        return count

    def _on_not_sent(
        self, partition: TopicPartition, position: int, batch: RecordBatch, error: KafkaError
    ) -> None:
        """A batch was not taken: its topic is not known, it is too large, or all is aborted."""
        if error.retriable:
            logger.warning("%s: %s waits: %s", self.flow.name, partition, error)
            self._held[partition] = self._beans.clock.monotonic_ms() + HOLD_MS
            self.read_again(partition, self.next_of(partition))
            self.consumer.pause([partition])
            return
        if error.error in OF_PRODUCER:
            raise error
        if self.flow.is_exactly_once:
            self._reap()  # the record may be another's, and this one's transaction is over
            if self.is_aborted():
                return
        until = batch.next_offset - 1
        self.refused.add({partition: (max(position, batch.base_offset), until)}, error)

    def _release_held(self) -> None:
        now_ms = self._beans.clock.monotonic_ms()
        for partition in [p for p, until_ms in self._held.items() if until_ms <= now_ms]:
            del self._held[partition]
            self.consumer.resume([partition])

    def next_of(self, partition: TopicPartition) -> int:
        """The offset behind all that was handed over."""
        runs = self.runs[partition]
        return (runs[-1].last if runs else self.copied[partition]) + 1

    def read_again(self, partition: TopicPartition, offset: int) -> None:
        self._backlog = deque(each for each in self._backlog if each[0] != partition)
        self.consumer.seek(partition, offset)

    def _send(self, partition: TopicPartition, position: int, batch: RecordBatch) -> int:
        where, runs = self._assigned[partition], self.runs[partition]
        whole = as_it_is(partition.partition, batch, position)
        if whole is None:
            return self._send_records(partition, position, batch)
        if not self.flow.keeps_codec:
            whole = whole._replace(payload=batch.payload(), codec=None)
        sent = self._producer.send_encoded(where.remote_topic, whole)
        runs.append(Run(batch.base_offset, batch.record_count, sent, batch.max_timestamp))
        return batch.record_count

    def _send_records(self, partition: TopicPartition, position: int, batch: RecordBatch) -> int:
        """Send the records of a batch one by one, from the position on.

        If there is no room for one, the next call continues there.
        """
        count = 0
        for record in timed_records(batch, position):
            try:
                self.send_record(partition, record, batch.max_timestamp)
            except KafkaError:
                self._backlog[0] = partition, record.offset, batch
                raise
            count += 1
        return count

    def send_record(self, partition: TopicPartition, record: Record, timestamp_ms: int) -> None:
        sent = self._producer.send(
            self._assigned[partition].remote_topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=partition.partition,
            timestamp_ms=record.timestamp_ms,
        )
        self.runs[partition].append(Run(record.offset, 1, sent, timestamp_ms))

    def _reap(self) -> None:
        """Note acknowledgements, in the order of each partition."""
        refused: dict[TopicPartition, tuple[int, int]] = {}
        for partition, runs in self.runs.items():
            written: list[Run] = []
            while runs and runs[0].is_done:
                run = runs[0]
                error = run.failure()
                if error is not None:
                    if self.refused.is_to_blame(partition, run, error):
                        refused[partition] = run.upstream, runs[-1].last
                    break
                runs.popleft()
                written.append(run)
                self.note_copied(partition, run.upstream, run.downstream(), run.record_count)
            if written:
                self._note_written(partition, written)
        self.refused.add(refused)

    def note_copied(
        self, partition: TopicPartition, upstream: int, downstream: int, count: int
    ) -> None:
        self.copied[partition] = upstream + count - 1
        self.dirty.add(partition)
        if not self.flow.policy.is_heartbeats_topic(partition.topic):
            self.copied_records.add(count)
        if self.flow.config.emit_offset_syncs_enabled:
            self.syncs.on_copied(partition, upstream, downstream, count)

    def abort(self) -> None:
        """Take the transaction back: all partitions are read again from the last commit on."""
        self._producer.abort_transaction()
        self._in_transaction = False
        self.copied_records.abort()
        self._backlog.clear()
        self._held.clear()
        for partition in self._assigned:
            self.runs[partition].clear()
            self.copied[partition] = self._committed[partition]
            self.consumer.seek(partition, self._committed[partition] + 1)
            self.dirty.add(partition)
        self.consumer.resume(list(self._assigned))
        self.refused.forget_read()

    # How far it is

    def begin_if_due(self) -> None:
        if self.flow.is_exactly_once and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def is_aborted(self) -> bool:
        """Whether no transaction is open; each look at acknowledgements may abort it."""
        return not self._in_transaction

    def commit_transaction(self) -> None:
        if self.dirty:
            self.begin_if_due()
        if not self._in_transaction:
            return
        self._producer.flush(STANDING_S)
        self._reap()
        if self.is_aborted():
            return  # as a record was refused
        self._send_offsets(sorted(self.dirty))
        self._producer.commit_transaction(STANDING_S)
        self._in_transaction = False
        self.copied_records.commit()
        self._committed |= {partition: self.copied[partition] for partition in self.dirty}
        self.dirty.clear()

    def _write_offsets(self) -> None:
        """Begin to write how far it is, unless the last such write is still under way."""
        while self._writes and self._writes[0].done():
            self._writes.popleft().result(0)
        now_ms = self._beans.clock.monotonic_ms()
        stands_ms = now_ms - self._standing_ms if self._writes else 0
        self._offsets_wait |= stands_ms > LACKING_MS
        if stands_ms > STANDING_S * 1000:
            self._writes.clear()
            self.dirty |= self._assigned.keys()
        if not self._writes:
            self._standing_ms = now_ms
            try:
                self._writes += self._send_offsets(sorted(self.dirty))
            except KafkaTimeoutError:
                self._offsets_wait = True
                return  # some may be written twice
            self.dirty.clear()

    def _send_offsets(self, partitions: Iterable[TopicPartition]) -> list[RecordFuture]:
        copied = {
            each: CopiedTo(
                self.copied[each], self._places[each].source_id, self._places[each].target_id
            )
            for each in partitions
        }
        return [
            self._producer.send(self.flow.offsets_topic, value, key=key)
            for key, value in records_of(self.flow.source.alias, copied)
        ]


def _open_producers(flow: Flow, number: int) -> tuple[Producer, Producer]:
    """The producers of the records, and of the pairs of offsets."""
    settings = {**PRODUCER_SETTINGS, **flow.target.settings("producer")}
    if flow.is_exactly_once:
        name = f"{flow.group_id}-{flow.target.alias}-MirrorSourceConnector-{number}"
        settings["transactional.id"] = name
    syncs = {**PRODUCER_SETTINGS, **flow.sync_cluster.settings("producer")}
    return Producer(settings), Producer(syncs)


class Assigned(NamedTuple):
    """Where a partition of the source is copied to, and how far it was copied before."""

    remote_topic: str
    source_id: str = ""
    target_id: str = ""
    copied: int | None = None

    def is_same(self, other: Assigned) -> bool:
        """Whether neither topic was made again; how far it was copied does not count."""
        return self[:3] == other[:3]


class Gap(NamedTuple):
    """Records of the source that were gone before they were copied; `why` is for a person."""

    partition: TopicPartition
    first: int
    last: int | None
    why: str

    def __str__(self) -> str:
        end = "?" if self.last is None else self.last
        return f"{self.partition} offsets {self.first}-{end}: {self.why}"


class Run(NamedTuple):
    """Records of consecutive offsets that were handed to the producer together.

    `timestamp_ms` is that of the newest record of the source's batch.
    """

    upstream: int
    record_count: int
    sent: ProducerBatch | RecordFuture
    timestamp_ms: int

    @property
    def is_done(self) -> bool:
        return self.sent.done() if isinstance(self.sent, RecordFuture) else self.sent.is_settled

    @property
    def last(self) -> int:
        """The source's offset of its last record."""
        return self.upstream + self.record_count - 1

    def failure(self) -> KafkaError | None:
        """Why it, or a part of it, was not written; for a run that is done."""
        return (
            self.sent.exception(0) if isinstance(self.sent, RecordFuture) else self.sent.failure()
        )

    def downstream(self) -> int:
        """The offset of its first record at the target; for a run that was written."""
        if isinstance(self.sent, RecordFuture):
            return self.sent.result(0).offset
        _, first, _ = next(self.sent.pieces(self.record_count))
        return first.base_offset

    def written(self) -> dict[int, int]:
        """The offsets at both ends of its records that were written, though others were not."""
        if isinstance(self.sent, RecordFuture):
            return {} if self.failure() else {self.upstream: self.downstream()}
        return {
            start + index: piece.base_offset + index
            for start, piece, count in self.sent.pieces(self.record_count, self.upstream)
            if piece.error is None
            for index in range(count)
        }


class RefusedPartition:
    """A partition with a record that the target refuses, until all around it is copied.

    `first` is the offset to read next, `until` the last one that was handed over when the record
    was refused, and `written` has the offsets at both ends of what is at the target behind `first`.
    """

    def __init__(self, first: int, until: int) -> None:
        self.first = first
        self.until = until
        self.written: dict[int, int] = {}
        self.is_settled = True
        """Whether the end of all that was handed over is known."""
        self.refusal: KafkaError | None = None
        """Why a record was not even taken by the producer."""
        self.passed = first
        """All before this offset was read."""
        self.batches: deque[tuple[int, RecordBatch]] = deque()
        self.records: deque[Record] = deque()
        self.group = MOST_AT_ONCE
        """How many records are sent together; halved until one is known to be refused."""
        self.is_sent = False
        """Whether a group is under way, or was and is written."""
        self.error: KafkaError | None = None
        """Why the record at `first` was refused when it was sent alone."""
        self.retry_at_ms = 0
        self.delay_ms = FIRST_RETRY_MS

    @property
    def is_over(self) -> bool:
        """Whether all was read and handed over that was when a record was refused."""
        return not self.records and self.error is None and self.passed > self.until

    @property
    def count(self) -> int:
        """How many records were read and are not handed over."""
        return len(self.records) + sum(b.last_offset_delta + 1 for _, b in self.batches)

    def forget_read(self) -> None:
        """All that is not copied is read again."""
        self.batches.clear()
        self.records.clear()
        self.passed = self.first

    def take_batch(self) -> None:
        """Decode the next batch."""
        position, batch = self.batches.popleft()
        self.records.extend(timed_records(batch, position))
        self.passed = batch.next_offset

    def on_group_refused(self, error: KafkaError | None, count: int) -> None:
        """Note a refused group of records: the next group is smaller, or it is this record."""
        if self.is_sent and self.group == 1:
            self.error = error
        else:
            self.group = max(1, min(count, self.group // 2))
        self.is_sent = False

    def begin_group(self) -> list[Record]:
        """The records to send now, up to one that is at the target; larger groups follow."""
        if self.is_sent:
            self.group = min(2 * self.group, MOST_AT_ONCE)
            self.delay_ms = FIRST_RETRY_MS
        self.is_sent = True
        group: list[Record] = []
        while (
            len(group) < self.group and self.records and self.records[0].offset not in self.written
        ):
            group.append(self.records.popleft())
        return group

    def stand_still(self, now_ms: int) -> None:
        """Try the record at `first` once more, later each time."""
        self.error, self.group = None, 1
        self.retry_at_ms = now_ms + self.delay_ms
        self.delay_ms = min(2 * self.delay_ms, LONGEST_RETRY_MS)


def as_it_is(partition: int, batch: RecordBatch, position: int) -> EncodedRecords | None:
    """The records of a stored batch, still compressed; None if they have to be decoded.

    That is so for the old formats, for one that was read in part, one that compaction has made
    holes in, and one whose records do not have the timestamps that they are to have.
    """
    if batch.magic != MAGIC or batch.base_offset < position or batch.is_log_append_time:
        return None
    if batch.delete_horizon_ms is not None or batch.record_count != batch.last_offset_delta + 1:
        return None
    section = batch.view[BATCH_OVERHEAD:]
    times = (batch.base_timestamp, batch.max_timestamp)
    return EncodedRecords(partition, batch.record_count, section, *times, batch.compression)


def timed_records(batch: RecordBatch, position: int) -> Iterator[Record]:
    """The records from the position on, with the timestamps that readers of the batch see."""
    is_append_time = batch.magic == MAGIC and batch.is_log_append_time
    for record in batch.records():
        if record.offset >= position:
            time_ms = batch.max_timestamp if is_append_time else record.timestamp_ms
            yield record._replace(timestamp_ms=max(0, time_ms))


class RefusedPartitions:
    """Copies the rest of partitions with records that the target refuses."""

    def __init__(self, task: SourceTask, letters: DeadLetterQueue, clock: Clock) -> None:
        self._task = task
        self._letters = letters
        self._clock = clock
        self._states: dict[TopicPartition, RefusedPartition] = {}
        self.stopped: dict[TopicPartition, str] = {}
        """The partitions that stand still, each with the offset and the reason."""
        self.left_out = 0

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """All others are no longer copied, or begin again."""
        for known in (self._states, self.stopped):
            for partition in known.keys() - partitions:
                known.pop(partition)

    @property
    def count(self) -> int:
        """How many records were read and are not handed over."""
        return sum(state.count for state in self._states.values())

    def take(
        self, partition: TopicPartition, position: int, batches: Iterable[RecordBatch]
    ) -> bool:
        """Take what was read of a partition; false if it has no such record."""
        state = self._states.get(partition)
        if state is None:
            return False
        for batch in batches:
            state.batches.append((position, batch))
            position = batch.next_offset
        self._task.consumer.pause([partition])  # until this is done with
        return True

    def forget_read(self) -> None:
        """All that is not committed is read again."""
        for state in self._states.values():
            state.forget_read()

    def is_to_blame(self, partition: TopicPartition, run: Run, error: KafkaError) -> bool:
        """Whether records are to blame; not if all of a transaction is aborted for another one."""
        if self._task.flow.is_exactly_once and error.error is ErrorCode.OPERATION_NOT_ATTEMPTED:
            return False
        if error.retriable or error.error in OF_PRODUCER:
            where = f"{partition} from offset {run.upstream} on"
            raise KafkaError(error.error, f"{where} was not copied: {error.message}")
        return True

    def add(
        self, refused: Mapping[TopicPartition, tuple[int, int]], error: KafkaError | None = None
    ) -> None:
        """Send the records between these offsets again, in groups, once the rest has ended.

        `error` says why the first of them was not even taken by the producer.
        """
        for partition, (first, until) in refused.items():
            state = self._states.setdefault(partition, RefusedPartition(first, until))
            if state.is_settled:
                state.first, state.until = first, max(until, state.until)
                state.is_settled, state.refusal = False, error
                self._task.read_again(partition, first)
                self._task.consumer.pause([partition])
        is_ended = self._task.flow.is_exactly_once  # an abort ends all
        for partition, state in self._states.items():
            runs = self._task.runs[partition]
            if not state.is_settled and (is_ended or all(run.is_done for run in runs)):
                self._settle(partition, state)
        if refused and self._task.flow.is_exactly_once:
            self._task.abort()

    def _settle(self, partition: TopicPartition, state: RefusedPartition) -> None:
        """The end of all that was handed over is known: read again what is not at the target."""
        runs = self._task.runs[partition]
        state.is_settled = True
        if runs:
            state.first = runs[0].upstream
            state.on_group_refused(runs[0].failure(), runs[0].record_count)
        else:
            state.on_group_refused(state.refusal, 1)
        if not self._task.flow.is_exactly_once:
            for run in runs:
                state.written |= run.written()
            runs.clear()
            while state.first in state.written:
                self._task.note_copied(partition, state.first, state.written.pop(state.first), 1)
                state.first += 1
        state.forget_read()
        self._task.read_again(partition, state.first)
        self._task.consumer.resume([partition])

    def send(self) -> int:
        """Send the next records of each of these partitions."""
        count, now_ms = 0, self._clock.monotonic_ms()
        for partition, state in list(self._states.items()):
            if state.is_settled and state.retry_at_ms <= now_ms:
                count += self._send_next(partition, state)
        return count

    def _send_next(self, partition: TopicPartition, state: RefusedPartition) -> int:
        """One group of records, once all before it is written; 0 if it has to be read first."""
        if not self._may_read_on(partition, state):
            return 0
        while state.records and state.records[0].offset in state.written:
            offset = state.records.popleft().offset
            self._task.note_copied(partition, offset, state.written.pop(offset), 1)
        if not state.records:
            return 0
        state.first = state.records[0].offset
        if self._task.flow.is_exactly_once:
            self._task.commit_transaction()
            if not state.records:
                return 0  # it was aborted for another record
        if state.error is not None:
            self._on_known(partition, state, state.error)
            return 0
        self._task.begin_if_due()
        group = state.begin_group()
        for record in group:
            try:
                self._task.send_record(partition, record, record.timestamp_ms)
            except KafkaError as error:
                self._on_group_not_sent(partition, state, record, error)
                return 0
        if self._task.flow.is_exactly_once:
            self._task.commit_transaction()
        return len(group) if state.is_sent else 0

    def _on_group_not_sent(
        self, partition: TopicPartition, state: RefusedPartition, record: Record, error: KafkaError
    ) -> None:
        """The producer did not take a record of a group."""
        if error.retriable:
            state.retry_at_ms = self._clock.monotonic_ms() + HOLD_MS
            state.forget_read()
            self._task.read_again(partition, self._task.next_of(partition))
            self._task.consumer.resume([partition])
        elif error.error in OF_PRODUCER:
            raise error
        else:
            self.add({partition: (record.offset, state.until)}, error)

    def _may_read_on(self, partition: TopicPartition, state: RefusedPartition) -> bool:
        """Have records to send; false if there are none yet, or the last ones are under way."""
        if self._task.runs[partition]:
            return False
        if partition in self.stopped and state.is_sent:
            del self.stopped[partition]
            logger.info("%s: %s is copied again", self._task.flow.name, partition)
        while not state.records and state.batches:
            state.take_batch()
        if state.is_over:
            del self._states[partition]
        if not state.records:
            self._task.consumer.resume([partition])
        return bool(state.records)

    def _on_known(
        self, partition: TopicPartition, state: RefusedPartition, error: KafkaError
    ) -> None:
        """The record that the target refuses is known: leave it out, or stand still before it."""
        record = state.records[0]
        where = f"{partition} offset {record.offset}: {error.message}"
        if self._task.flow.config.errors_tolerance == "all":
            letter_error = self._bury(partition, record, error)
            if letter_error is None:
                state.records.popleft()
                state.error, state.is_sent = None, False
                self._task.copied[partition] = record.offset
                self._task.dirty.add(partition)
                self.left_out += 1
                self.stopped.pop(partition, None)
                logger.warning("%s: left out: %s", self._task.flow.name, where)
                return
            where = f"{where}; {letter_error.message}"
        if partition not in self.stopped:
            logger.warning(
                "%s: not copied: %s; this partition stands still, others are copied, and "
                "errors.tolerance=all leaves such records out",
                self._task.flow.name,
                where,
            )
        self.stopped[partition] = where
        state.stand_still(self._clock.monotonic_ms())

    def _bury(
        self, partition: TopicPartition, record: Record, error: KafkaError
    ) -> KafkaError | None:
        """Send a record to the dead letters, if there are any; why it is not there."""
        if not self._task.flow.config.errors_deadletterqueue_topic_name:
            return None
        letter = ConsumerRecord(
            *partition,
            record.offset,
            record.timestamp_ms,
            TimestampType.CREATE_TIME,
            record.key,
            record.value,
            record.headers,
        )
        self._task.begin_if_due()
        self._letters(RecordFailure(Operation(Stage.KAFKA_PRODUCE, CONNECTOR, letter), error, 1))
        try:
            self._letters.flush()
        except KafkaError as refusal:
            if self._task.flow.is_exactly_once:
                self._task.abort()
            return refusal
        return None
