"""The task that copies: partitions of a source, as whole batches, to a producer at the target.

`poll` moves what has arrived and notes what was acknowledged; `commit` writes how far it is. Both
are called by one thread, of `ottla mirror` or of a worker. A batch is neither decoded nor
decompressed where its records may stay as they are; only its header is made again, so that the
producer's own sequence numbers protect it.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.consumer_record import ConsumerRecord, FetchedBatches
from ottla.clients.consumer.positions import LogTruncationError, TopicRecreatedError
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import ProducerBatch, RecordFuture
from ottla.config.config_type import INT_MAX
from ottla.config.mirror_config import FAIL
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.metrics.metrics_registry import BeanKind, Beans, FamilyName, Measures, Tags
from ottla.mirror.flow import MBEANS, Cluster, Flow
from ottla.mirror.offset_sync import OffsetSyncQueue
from ottla.record.record_batch import BATCH_OVERHEAD, MAGIC, RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.runtime.scheduler import Clock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

CONNECTOR: Final = "MirrorSourceConnector"
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
READ_MS: Final = 500
READ_LIMIT_MS: Final = 60_000
BLOCK_MS: Final = 1000
"""How long a poll waits for room in the producer; what is left is sent by the next one."""
LARGEST_REQUEST: Final = 16 << 20
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
        if isinstance(self.sent, RecordFuture):
            return self.sent.done()
        return self.sent.is_done or (bool(self.sent.parts) and self.sent.wait(0))

    def downstream(self) -> int:
        """The offset of its first record at the target; raises why it was not written."""
        if isinstance(self.sent, RecordFuture):
            return self.sent.result(0).offset
        error = self.sent.failure()
        if error is not None:
            raise error.with_traceback(None)
        first: ProducerBatch = self.sent
        while first.parts:
            first = first.parts[0][1]
        return first.base_offset


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


class SourceTask:
    """Copies some partitions of a flow.

    Errors that only time can mend are waited out; others are raised, and then the task must be
    closed: a new one continues where `commit` has written that this one was.
    """

    def __init__(self, flow: Flow, number: int, beans: Beans) -> None:
        """`beans` gets the MBeans of the partitions, until they are another task's."""
        self.flow = flow
        self._beans = beans
        self._measures: dict[TopicPartition, Measures] = {}
        self.copied_records = self.copied_bytes = self.decoded_records = 0
        self.gaps: list[Gap] = []
        self.lost_records = 0
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._places: dict[TopicPartition, Assigned] = {}
        self._runs: dict[TopicPartition, deque[Run]] = {}
        self._backlog: deque[tuple[TopicPartition, int, RecordBatch]] = deque()
        self._copied: dict[TopicPartition, int] = {}
        self._dirty: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        self._syncs = OffsetSyncQueue(flow.config.offset_lag_max)
        self._sync_futures: deque[RecordFuture] = deque()
        self._writes: deque[RecordFuture] = deque()
        self._in_transaction = False
        transaction: dict[str, Any] = {}
        if flow.is_exactly_once:
            name = f"{flow.group_id}-{flow.target.alias}-MirrorSourceConnector-{number}"
            transaction = {"transactional.id": name}
        consumer = {**flow.source.settings("consumer"), **CONSUMER_SETTINGS}
        consumer.pop("group.id", None)
        self._consumer = Consumer(consumer)
        try:
            self._producer = Producer(
                {**PRODUCER_SETTINGS, **flow.target.settings("producer"), **transaction}
            )
            self._sync_producer = Producer(
                {**PRODUCER_SETTINGS, **flow.sync_cluster.settings("producer")}
            )
        except BaseException:
            self._consumer.close()
            raise
        if flow.is_exactly_once:
            self._producer.init_transactions()

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
        positions = {partition: self._consumer.position(partition) for partition in kept}
        new = {p: each for p, each in partitions.items() if p not in kept}
        for partition in self._assigned.keys() - kept:
            self._measure_no_longer(partition)
        self._assigned = dict(partitions)
        self._places |= partitions
        self._backlog = deque(each for each in self._backlog if each[0] in kept)
        self._consumer.assign(partitions)
        for partition, position in positions.items():
            self._consumer.seek(partition, position)
        starts = self._consumer.beginning_offsets(new) if new else {}
        ends = self._consumer.end_offsets(new) if new else {}
        for partition, where in new.items():
            self._runs[partition] = deque()
            self._copied.pop(partition, None)
            self._measures[partition] = self._beans.measures(BEAN, self._tags(partition))
            first = 0
            if where.copied is not None:
                self._copied[partition] = where.copied
                first = where.copied + 1
            self._start(partition, first, starts[partition], ends[partition])

    def poll(self, timeout_ms: int | None = None) -> int:
        """Copy what has arrived, and note what was acknowledged; the number of records sent."""
        self._reap()
        self._send_syncs()
        if not self._backlog:
            limit = self.flow.config.consumer_poll_timeout_ms if timeout_ms is None else timeout_ms
            if any(self._runs.values()):
                limit = min(limit, 10)  # answers of the target are awaited as well
            self._fetch(limit)
        return self._send_backlog()

    def commit(self) -> None:
        """Write how far the partitions are; with exactly-once, end the transaction by it."""
        if self.flow.is_exactly_once:
            self._commit_transaction()
        else:
            self._reap()
            self._write_offsets()
        self._syncs.on_commit()
        self._send_syncs()

    def finish(self, timeout_s: float) -> None:
        """Wait until all that was read is acknowledged, and commit it."""
        self._backlog.clear()
        for _ in range(2):  # what was copied, and then how far that is
            self._producer.flush(timeout_s)
            self.commit()
        self._sync_producer.flush(timeout_s)

    def lag(self) -> int | None:
        """Records that are at the source and not at the target; None before the first answers."""
        lags = [self._consumer.current_lag(partition) for partition in self._assigned]
        known = [lag for lag in lags if lag is not None]
        if self._assigned and not known:
            return None
        waiting = sum(batch.last_offset_delta + 1 for _, _, batch in self._backlog)
        under_way = sum(run.record_count for runs in self._runs.values() for run in list(runs))
        return sum(known) + waiting + under_way

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the clients; what is not acknowledged within the time is copied again later."""
        for partition in self._assigned:
            self._measure_no_longer(partition)
        self._consumer.close()
        self._producer.close(timeout_s)
        self._sync_producer.close(timeout_s)

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
        if first < start and self._copied.get(partition) is not None:
            self._on_gap(Gap(partition, first, start - 1, "deleted before they were copied"))
        if first > end:
            self._on_gap(
                Gap(partition, end, first - 1, "the source's log was cut, and ends before")
            )
            self._syncs.forget({partition: None})
        position = min(max(first, start), end)
        if partition not in self._copied:
            self._copied[partition] = position - 1  # from now on what is lost is known to be
            self._dirty.add(partition)
        self._consumer.seek(partition, position)

    def _fetch(self, limit_ms: int) -> None:
        try:
            fetched = self._consumer.poll_batches(limit_ms)
        except LogTruncationError as error:
            self._on_truncated(error)
            return
        except TopicRecreatedError as error:
            # The flow looks at its topics from time to time, and assigns the other one then.
            logger.warning("%s: %s", self.flow.name, error)
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
        for batch in batches:
            self._backlog.append((partition, position, batch))
            position = batch.next_offset

    def _on_out_of_range(self) -> None:
        """Find the partitions whose position is not in the log now, and continue in it."""
        starts = self._consumer.beginning_offsets(self._assigned)
        ends = self._consumer.end_offsets(self._assigned)
        for partition in self._assigned:
            position = self._consumer.position(partition)
            if not starts[partition] <= position <= ends[partition]:
                self._copied.setdefault(partition, position - 1)
                self._start(partition, position, starts[partition], ends[partition])

    def _on_truncated(self, error: LogTruncationError) -> None:
        partition = error.topic_partition
        position = self._consumer.position(partition)
        resume = position if error.divergent_offset is None else error.divergent_offset
        why = "the source's log was cut, and has others there now"
        self._on_gap(Gap(partition, resume, position - 1, why))
        self._syncs.forget({partition: None})
        self._consumer.seek(partition, resume)

    def _on_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self.lost_records += 0 if gap.last is None else gap.last - gap.first + 1
        logger.error("%s: %s", self.flow.name, gap)
        if self.flow.config.on_gap == FAIL:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"on.gap=fail: {gap}")

    # Writing

    def _send_backlog(self) -> int:
        count = 0
        while self._backlog:
            partition, position, batch = self._backlog[0]
            if partition not in self._assigned:
                self._backlog.popleft()
                continue
            self._begin_if_due()
            try:
                sent = self._send(partition, position, batch)
            except KafkaTimeoutError:
                break  # the producer is full, or its cluster is away
            self._backlog.popleft()
            self._note_sent(partition, batch)
            count += sent
        self.copied_records += count
        return count

    def _send(self, partition: TopicPartition, position: int, batch: RecordBatch) -> int:
        where, runs = self._assigned[partition], self._runs[partition]
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
        where, runs = self._assigned[partition], self._runs[partition]
        count = 0
        for record in batch.records():
            if record.offset < position:
                continue
            timestamp_ms = record.timestamp_ms
            if batch.magic == MAGIC and batch.is_log_append_time:
                timestamp_ms = batch.max_timestamp
            try:
                sent = self._producer.send(
                    where.remote_topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=partition.partition,
                    timestamp_ms=max(0, timestamp_ms),
                )
            except KafkaTimeoutError:
                self._backlog[0] = partition, record.offset, batch
                self.copied_records += count
                raise
            runs.append(Run(record.offset, 1, sent, batch.max_timestamp))
            count += 1
        self.decoded_records += count
        return count

    def _reap(self) -> None:
        """Note what was acknowledged, in the order of each partition."""
        for partition, runs in self._runs.items():
            written: list[Run] = []
            while runs and runs[0].is_done:
                run = runs[0]
                try:
                    downstream = run.downstream()
                except KafkaError as error:
                    where = f"{partition} from offset {run.upstream} on"
                    raise KafkaError(
                        error.error, f"{where} was not copied: {error.message}"
                    ) from None
                runs.popleft()
                written.append(run)
                self._copied[partition] = run.upstream + run.record_count - 1
                self._dirty.add(partition)
                if self.flow.config.emit_offset_syncs_enabled:
                    self._syncs.on_copied(partition, run.upstream, downstream, run.record_count)
            if written:
                self._note_written(partition, written)

    # How far it is

    def _begin_if_due(self) -> None:
        if self.flow.is_exactly_once and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def _commit_transaction(self) -> None:
        if self._dirty:
            self._begin_if_due()
        if not self._in_transaction:
            return
        self._producer.flush()
        self._reap()
        self._send_offsets(sorted(self._dirty))
        self._producer.commit_transaction()
        self._in_transaction = False
        self._dirty.clear()

    def _write_offsets(self) -> None:
        """Begin to write how far it is, unless the last such write is still under way."""
        while self._writes and self._writes[0].done():
            self._writes.popleft().result(0)
        if not self._writes:
            try:
                self._writes += self._send_offsets(sorted(self._dirty))
            except KafkaTimeoutError:
                return  # the target is away; some may be written twice
            self._dirty.clear()

    def _send_offsets(self, partitions: Iterable[TopicPartition]) -> list[RecordFuture]:
        copied = {
            each: CopiedTo(
                self._copied[each], self._places[each].source_id, self._places[each].target_id
            )
            for each in partitions
        }
        return [
            self._producer.send(self.flow.offsets_topic, value, key=key)
            for key, value in records_of(self.flow.source.alias, copied)
        ]

    def _send_syncs(self) -> None:
        """Send the syncs that are due, as many as may be under way; a lost one is made up for."""
        while self._sync_futures and self._sync_futures[0].done():
            error = self._sync_futures.popleft().exception(0)
            if error is not None:
                logger.warning("%s: an offset sync was not written: %s", self.flow.name, error)
        room = 10 - len(self._sync_futures)
        for sync in self._syncs.take(room) if room > 0 else ():
            try:
                future = self._sync_producer.send(
                    self.flow.syncs_topic, sync.value(), key=sync.key(), partition=0
                )
            except KafkaTimeoutError as error:
                logger.warning("%s: offset syncs wait: %s", self.flow.name, error)
                break
            self._sync_futures.append(future)


# How far a flow has copied each partition: the topic at the target that says so. Records are those
# of a Connect worker: key ["MirrorSourceConnector",{...}], value {"offset":n} with the source's
# offset of the last record that was copied. Ottla adds the ids of both topics: a topic that was
# made again under its name has another id, and offsets of the former do not count for it. Kafka's
# mirror reads the offset and passes over the rest.


class CopiedTo(NamedTuple):
    """The last offset of a source's partition that was copied, and the ids of both topics.

    An id is "" where it is not known: then it is not compared.
    """

    offset: int
    source_id: str = ""
    target_id: str = ""

    def value(self) -> bytes:
        found: dict[str, Any] = {"offset": self.offset}
        if self.source_id:
            found["source.id"] = self.source_id
        if self.target_id:
            found["target.id"] = self.target_id
        return to_json(found)

    @classmethod
    def of(cls, value: bytes | None) -> Self | None:
        """What a value says; None for a tombstone or one without an offset."""
        found = json.loads(value) if value is not None else None
        if not isinstance(found, dict) or not isinstance(found.get("offset"), int):
            return None
        return cls(
            found["offset"], str(found.get("source.id", "")), str(found.get("target.id", ""))
        )


def to_json(value: Any) -> bytes:
    """JSON without spaces, as a Connect worker writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def key_of(source: str, partition: TopicPartition) -> bytes:
    """The key of a partition of the cluster with this alias."""
    place = {"cluster": source, "partition": partition.partition, "topic": partition.topic}
    return to_json([CONNECTOR, place])


def partition_of(key: bytes | None, source: str) -> TopicPartition | None:
    """The partition that a key is about; None if it is of another connector or cluster."""
    try:
        connector, place = json.loads(key or b"")
        if connector != CONNECTOR or place["cluster"] != source:
            return None
        return TopicPartition(place["topic"], place["partition"])
    except (ValueError, KeyError, TypeError):
        return None


class TopicReader:
    """Reads a topic of records that replace each other: to its end, and later what follows."""

    def __init__(self, cluster: Cluster, topic: str, clock: Clock, **own: Any) -> None:
        self.topic = topic
        self._clock = clock
        settings = cluster.settings(
            "consumer",
            auto_offset_reset="earliest",
            enable_auto_commit="false",
            allow_auto_create_topics="false",
            **own,
        )
        settings.pop("group.id", None)
        self._consumer = Consumer(settings)
        try:
            partitions = self._consumer.partitions_for(topic)
            self.partitions = [TopicPartition(topic, each.partition) for each in partitions]
            if not self.partitions:
                raise KafkaTimeoutError(f"{topic} has no partitions yet")
            self._consumer.assign(self.partitions)
        except BaseException:
            self._consumer.close()
            raise

    def read_to_end(self, is_over: Callable[[], bool] = lambda: False) -> Iterator[ConsumerRecord]:
        """The records up to the ends as they are now; KafkaTimeoutError after a minute of none."""
        ends = self._consumer.end_offsets(self.partitions)
        behind = [p for p in self.partitions if self._consumer.position(p) < ends[p]]
        until_ms = self._clock.monotonic_ms() + READ_LIMIT_MS
        while behind and not is_over():
            found = self._consumer.poll(READ_MS)
            now_ms = self._clock.monotonic_ms()
            if found:
                until_ms = now_ms + READ_LIMIT_MS
            elif now_ms > until_ms:
                raise KafkaTimeoutError(f"{self.topic} could not be read to its end")
            yield from found
            behind = [p for p in behind if self._consumer.position(p) < ends[p]]

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """What has come since; waits up to `timeout_ms` for the first record."""
        return self._consumer.poll(timeout_ms)

    def close(self) -> None:
        self._consumer.close()


def read_offsets(
    cluster: Cluster, topic: str, source: str, clock: Clock
) -> dict[TopicPartition, CopiedTo]:
    """How far all partitions of the cluster `source` were copied."""
    reader = TopicReader(cluster, topic, clock, isolation_level="read_committed")
    try:
        found: dict[TopicPartition, CopiedTo] = {}
        for record in reader.read_to_end():
            partition = partition_of(record.key, source)
            copied = CopiedTo.of(record.value)
            if partition is not None and copied is not None:
                found[partition] = copied
            elif partition is not None:
                found.pop(partition, None)
        return found
    finally:
        reader.close()


def records_of(
    source: str, offsets: Mapping[TopicPartition, CopiedTo]
) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each."""
    for partition, copied in offsets.items():
        yield key_of(source, partition), copied.value()
