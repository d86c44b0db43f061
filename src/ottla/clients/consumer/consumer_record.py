"""The record that a consumer returns, and the interceptors that see it.

A completed fetch has the records of one partition that have arrived and wait to be read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import repeat
from typing import Any, Final, NamedTuple

from ottla.clients.consumer.subscription_state import TopicPartitionState
from ottla.clients.serialization import Deserialize
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import ConfigType
from ottla.errors import KafkaError
from ottla.record import kernel
from ottla.record.record import COMPRESSION_MASK
from ottla.record.record_batch import Record, RecordBatch, batches, end_of_transaction
from ottla.runtime import Buffer
from ottla.structs import NO_EPOCH, TopicPartition, Value

logger = logging.getLogger(__name__)

LEAST_TO_DECOMPRESS_AHEAD: Final = 16 * 1024
"""Smaller batches take less time than it takes to ask another thread for it."""


class TimestampType(IntEnum):
    """The side that set the timestamp of a record: its producer, or the broker at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record and its place. Key and value are bytes, or a deserializer's results."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = NO_EPOCH


class ConsumerInterceptors:
    """The application's objects that see the records of each poll, and each commit.

    They are a chain: `on_consume(records)` returns the records for the next one.
    `on_commit(offsets)` is called after each commit. Either method may be absent. An interceptor's
    exceptions are logged: they must not stop the records.
    """

    def __init__(self, setting: Sequence[Any]) -> None:
        found = [ConfigType.CLASS.parse("interceptor.classes", item) for item in setting]
        self._interceptors = [item() if isinstance(item, type) else item for item in found]

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_consume"):
                try:
                    records = interceptor.on_consume(records)
                except Exception:
                    logger.exception("on_consume of %r raised", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_commit"):
                try:
                    interceptor.on_commit(offsets)
                except Exception:
                    logger.exception("on_commit of %r raised", interceptor)


class AbortedTransactions:
    """Which batches of a fetch a reader of committed records must skip (KIP-98).

    A producer's transactional batches count as aborted from the first offset in the response up to
    its abort marker.
    """

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        """`transactions` are pairs of producer id and first offset."""
        self._ahead = sorted(transactions, key=lambda entry: entry[1], reverse=True)
        self._aborted: set[int] = set()

    def hides(self, batch: RecordBatch) -> bool:
        """Whether the batch, the next one in order, belongs to an aborted transaction."""
        while self._ahead and self._ahead[-1][1] <= batch.last_offset:
            self._aborted.add(self._ahead.pop()[0])
        if not batch.is_transactional:
            return False
        marker = end_of_transaction(batch) if batch.is_control else None
        if marker is not None and not marker.is_commit:
            self._aborted.discard(batch.producer_id)
        return batch.producer_id in self._aborted


def split_batches(data: Buffer) -> tuple[list[RecordBatch], KafkaError | None]:
    """The whole batches of a fetch, and the error that follows the last of them, if any."""
    found: list[RecordBatch] = []
    try:
        for batch in batches(data):
            found.append(batch)
    except KafkaError as error:
        return found, error
    return found, None


class Decoding(Value, frozen=True):
    """How the bytes of a record become the application's values."""

    check_crcs: bool
    deserialize_key: Deserialize | None = None
    deserialize_value: Deserialize | None = None
    is_ahead: bool = False
    """Whether large batches are decompressed before they are taken, elsewhere."""

    @property
    def is_plain(self) -> bool:
        return self.deserialize_key is None and self.deserialize_value is None

    def plain(self) -> Decoding:
        """The same without deserializers."""
        return Decoding(self.check_crcs, is_ahead=self.is_ahead)

    def decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """A record that was read as bytes, with the application's values."""
        if self.is_plain:
            return record
        key, value = record.key, record.value
        if self.deserialize_key is not None and key is not None:
            key = self.deserialize_key(record.topic, key)
        if self.deserialize_value is not None and value is not None:
            value = self.deserialize_value(record.topic, value)
        return record._replace(key=key, value=value)


class FetchedBatches(NamedTuple):
    """Batches of a partition as they were stored; of the first one, records before `position`
    were read before."""

    topic_partition: TopicPartition
    position: int
    batches: list[RecordBatch]


class CompletedFetch:
    """One partition's part of a fetch response: decoded batch by batch, as it is read.

    Invariant: `state.position` is the offset after the last record that `take` has returned, so
    that an error leaves it at the record at fault.
    """

    def __init__(
        self,
        state: TopicPartitionState,
        found: tuple[list[RecordBatch], KafkaError | None],
        decoding: Decoding,
        aborted: AbortedTransactions | None,
    ) -> None:
        """`found` is the result of `split_batches`."""
        self.state = state
        self.generation = state.generation
        self.is_empty = False
        self._decoding = decoding
        self._aborted = aborted
        batches, self._error = found
        self._batches = deque(batches)
        self._batch: RecordBatch | None = None
        self._records: list[Record] = []
        self._index = 0
        self._payload: bytes | memoryview | None = None  # of the next batch

    def use(self, decoding: Decoding) -> None:
        """Decode what is taken from now on in another way."""
        self._decoding = decoding

    @property
    def is_compressed(self) -> bool:
        """Whether the next batch takes long to decompress, and was not decompressed ahead."""
        if not self._decoding.is_ahead or self._payload is not None or not self._batches:
            return False
        batch = self._batches[0]
        is_large = batch.size_in_bytes >= LEAST_TO_DECOMPRESS_AHEAD
        return is_large and type(batch) is RecordBatch and bool(batch.attributes & COMPRESSION_MASK)

    @property
    def is_read_up(self) -> bool:
        """Whether no record of a batch that was decoded is left."""
        return self._index >= len(self._records)

    def next_payload(self) -> Callable[[], bytes | memoryview]:
        """What decompresses the next batch, in any thread, for `put_payload`."""
        return self._batches[0].payload

    def put_payload(self, batch_payload: bytes | memoryview) -> None:
        self._payload = batch_payload

    def take(self, max_count: int) -> list[ConsumerRecord]:
        """The next records, at most `max_count`; raises an error only if no record precedes it."""
        taken: list[ConsumerRecord] = []
        while len(taken) < max_count:
            try:
                if self.is_read_up and taken and self.is_compressed:
                    break
                if self.is_read_up and not self._next_batch():
                    self.is_empty = True
                    break
                taken += self._take_from_batch(max_count - len(taken))
            except KafkaError:
                if taken:
                    break  # it will come first next time
                raise
        return taken

    def take_batches(self) -> list[RecordBatch]:
        """All that is left, as batches in their codecs; the first may begin before the position.

        Markers and aborted transactions are left out.
        """
        taken: list[RecordBatch] = []
        state = self.state
        if self._batch is not None and self._index < len(self._records):  # it was read in part
            taken.append(self._batch)
            state.position = self._batch.next_offset
            self._records, self._index = [], 0
        while self._batches:
            batch = self._batches[0]
            try:
                if self._is_wanted(batch):
                    taken.append(batch)
            except KafkaError:
                if taken:
                    return taken  # it will come first next time
                raise
            self._batches.popleft()
            self._payload = None
            state.leader_epoch = batch.partition_leader_epoch
            state.position = max(state.position or 0, batch.next_offset)
        if self._error is not None and not taken:
            raise self._error.with_traceback(None)
        self.is_empty = self._error is None
        return taken

    def _take_from_batch(self, max_count: int) -> list[ConsumerRecord]:
        batch, state = self._batch, self.state
        assert batch is not None
        records = self._records[self._index : self._index + max_count]
        topic, partition = state.topic_partition
        epoch = batch.partition_leader_epoch
        timestamp_type = TimestampType(batch.is_log_append_time)
        if self._decoding.is_plain:
            # Column by column, so that no loop of Python's runs for a record.
            offsets, times, *contents = zip(*records, strict=True)
            place = repeat(topic), repeat(partition), offsets
            time = times, repeat(timestamp_type)
            fields = zip(*place, *time, *contents, repeat(epoch), strict=False)
            taken = list(map(tuple.__new__, repeat(ConsumerRecord), fields))
        else:
            taken = self._deserialize(records, timestamp_type, epoch)
        self._index += len(taken)
        state.leader_epoch = epoch
        is_last = self._index >= len(self._records)
        state.position = batch.next_offset if is_last else taken[-1].offset + 1
        return taken

    def _deserialize(
        self, records: Sequence[Record], timestamp_type: TimestampType, epoch: int
    ) -> list[ConsumerRecord]:
        topic, partition = self.state.topic_partition
        key_of = self._decoding.deserialize_key
        value_of = self._decoding.deserialize_value
        taken: list[ConsumerRecord] = []
        for offset, time_ms, key, value, headers in records:
            try:
                if key_of is not None and key is not None:
                    key = key_of(topic, key)
                if value_of is not None and value is not None:
                    value = value_of(topic, value)
            except KafkaError as error:
                if taken:
                    break
                raise KafkaError(
                    error.error,
                    f"{self.state.topic_partition} offset {offset}: {error.message}; "
                    "seek past it to go on",
                ) from error
            taken.append(
                ConsumerRecord(
                    topic, partition, offset, time_ms, timestamp_type, key, value, headers, epoch
                )
            )
        return taken

    def _next_batch(self) -> bool:
        """Decode batches until one has records to be read; False when there is none left."""
        while self._batches:
            batch = self._batches[0]
            self._records = self._wanted_records(batch)
            self._batches.popleft()  # only after it was decoded without an error
            self._payload = None
            self._index = 0
            if self._records:
                self._batch = batch
                return True
            self.state.position = max(self.state.position or 0, batch.next_offset)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return False

    def _wanted_records(self, batch: RecordBatch) -> list[Record]:
        """The records from the position on; none for a marker or an aborted transaction."""
        position = self.state.position or 0
        if not self._is_wanted(batch):
            return []
        if self._payload is None:
            records = list(batch.records())
        else:
            records = kernel.decode_records(batch, self._payload)
        if records and records[0].offset < position:
            return [record for record in records if record.offset >= position]
        return records

    def _is_wanted(self, batch: RecordBatch) -> bool:
        """Whether a batch, the next one in order, has records to read."""
        if batch.last_offset < (self.state.position or 0):
            return False
        if self._decoding.check_crcs:
            batch.verify()
        is_hidden = self._aborted is not None and self._aborted.hides(batch)
        return not (batch.is_control or is_hidden)
