"""One partition's records that have arrived and wait to be read."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.clients.consumer.subscription_state import TopicPartitionState
from ottla.clients.serialization import Deserialize
from ottla.config.config_type import LONG_MAX
from ottla.errors import KafkaError
from ottla.record import kernel
from ottla.record.consumer_record import ConsumerRecord, placed
from ottla.record.control_record import end_of_transaction
from ottla.record.legacy_batch import LegacyBatch
from ottla.record.memory_records import batches
from ottla.record.record import COMPRESSION_MASK, CorruptRecordError
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Buffer
from ottla.structs import NamedTuple, TopicPartition, Value

LEAST_TO_DECOMPRESS_AHEAD: Final = 16 * 1024
"""Smaller batches take less time than it takes to ask another thread for it."""


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
            if batch.next_offset > LONG_MAX:
                raise CorruptRecordError(f"the batch at offset {batch.base_offset} has no next one")
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
        topic, partition, offset, time_ms, time_type, key, value, headers, epoch = record
        if self.deserialize_key is not None and key is not None:
            key = self.deserialize_key(topic, key)
        if self.deserialize_value is not None and value is not None:
            value = self.deserialize_value(topic, value)
        fields = topic, partition, offset, time_ms, time_type, key, value, headers, epoch
        return tuple.__new__(ConsumerRecord, fields)


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
        self._topic_id = state.topic_id
        self.is_empty = False
        self._decoding = decoding
        self._aborted = aborted
        batches, self._error = found
        self._batches = deque(batches)
        self._batch: RecordBatch | None = None
        self._records: list[ConsumerRecord] = []
        self._index = 0
        self._payload: bytes | memoryview | None = None  # of the next batch
        self.decoded_bytes = 0
        """The bytes of the batches whose records were decoded, without their codecs."""

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

    def take(self, max_count: int, max_bytes: int = sys.maxsize) -> list[ConsumerRecord]:
        """The next records, at most `max_count`; raises an error only if no record precedes it.

        No other batch is decoded for them once batches of more than `max_bytes` were.
        """
        taken: list[ConsumerRecord] = []
        max_bytes += self.decoded_bytes
        while len(taken) < max_count:
            try:
                is_full = self.decoded_bytes > max_bytes
                if self.is_read_up and taken and (is_full or self.is_compressed):
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
        state.given_id = self._topic_id
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
        taken = self._records[self._index : self._index + max_count]
        if not self._decoding.is_plain:
            taken = self._deserialize(taken)
        self._index += len(taken)
        state.leader_epoch = batch.partition_leader_epoch
        is_last = self._index >= len(self._records)
        state.position = batch.next_offset if is_last else taken[-1].offset + 1
        state.given_id = self._topic_id
        return taken

    def _deserialize(self, records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records up to one that a deserializer refuses; it raises at once for the first."""
        key_of = self._decoding.deserialize_key
        value_of = self._decoding.deserialize_value
        new, cls = tuple.__new__, ConsumerRecord
        taken: list[ConsumerRecord] = []
        for topic, partition, offset, time_ms, type_, key, value, headers, epoch in records:
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
            fields = topic, partition, offset, time_ms, type_, key, value, headers, epoch
            taken.append(new(cls, fields))
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

    def _wanted_records(self, batch: RecordBatch) -> list[ConsumerRecord]:
        """The records from the position on; none for a marker or an aborted transaction."""
        position = self.state.position or 0
        if not self._is_wanted(batch):
            return []
        topic, partition = self.state.topic_partition
        if isinstance(batch, LegacyBatch):
            records = placed(list(batch.records()), batch, topic, partition)
            self.decoded_bytes += sum(len(record.value or b"") for record in records)
        else:
            payload = batch.payload() if self._payload is None else self._payload
            self.decoded_bytes += len(payload)
            records = kernel.decode_consumer_records(batch, payload, topic, partition)
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
