"""Reads a partition of the offsets topic back into groups and offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.coordinator.group.consumer.stored_consumer_group import StoredConsumerGroup
from ottla.coordinator.group.group import GroupMetadata
from ottla.coordinator.group.group_records import read_group_value, read_offset_value
from ottla.coordinator.group.group_type import Group
from ottla.coordinator.group.offsets import OffsetAndMetadata
from ottla.coordinator.stepwise_loader import StepwiseLoader
from ottla.errors import KafkaError
from ottla.protocol.offsets_topic import GroupMetadataKey, OffsetCommitKey, decode_key
from ottla.record.record_batch import Record, RecordBatch
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

COMMIT_MARKER: Final = 1


class PartitionLoader(StepwiseLoader):
    """Collects the last value of each key.

    A record that cannot be read is logged and left out: the other groups of the partition must not
    suffer from it. Offsets of a transaction count once its commit marker has been read, at the
    place where they were written, so that a later plain commit stays.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        super().__init__(partition, source)
        self._groups: dict[str, bytes] = {}
        self._consumer_groups: dict[str, StoredConsumerGroup] = {}
        self._offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        # Where the record was that said it; of a deletion as well.
        self._places: dict[tuple[str, TopicPartition], int] = {}
        self._open_transactions: dict[int, list[Record]] = {}

    def groups(self, now_ms: int) -> Iterator[Group]:
        """The groups of the partition, with their offsets."""
        waiting = self._waiting()
        consumers = [name for name, stored in self._consumer_groups.items() if stored.exists]
        for group_id in dict.fromkeys((*self._groups, *consumers, *self._offsets, *waiting)):
            group = self._group(group_id, now_ms)
            group.offsets.load(self._offsets.get(group_id, {}))
            for producer_id, offsets in waiting.get(group_id, {}).items():
                group.offsets.prepare_in_transaction(producer_id, offsets)
            yield group

    def _waiting(self) -> dict[str, dict[int, dict[TopicPartition, OffsetAndMetadata]]]:
        """By group and producer, the offsets in transactions that have no end yet."""
        found: dict[str, dict[int, dict[TopicPartition, OffsetAndMetadata]]] = {}
        for producer_id, records in self._open_transactions.items():
            inner = PartitionLoader(self.partition, iter(()))
            inner._apply(records)
            for group_id, offsets in inner._offsets.items():
                found.setdefault(group_id, {})[producer_id] = offsets
        return found

    def _group(self, group_id: str, now_ms: int) -> Group:
        data = self._groups.get(group_id)
        stored = self._consumer_groups.get(group_id)
        try:
            if stored is not None and stored.exists:
                return stored.restore(group_id)
            if data is None:
                return GroupMetadata(group_id, now_ms)
            return read_group_value(group_id, data, now_ms)
        except KafkaError as error:
            logger.error("Group %s cannot be read back: %s", group_id, error)
            return GroupMetadata(group_id, now_ms)

    def read_batch(self, batch: RecordBatch) -> None:
        try:
            batch.verify()
            records = list(batch.records())
        except KafkaError as error:
            logger.error("%r of offsets partition %d is lost: %s", batch, self.partition, error)
            return
        self.record_count += max(1, len(records))
        if batch.is_control:
            self._end_transaction(batch.producer_id, records)
        elif batch.is_transactional:
            self._open_transactions.setdefault(batch.producer_id, []).extend(records)
        else:
            self._apply(records)

    def _end_transaction(self, producer_id: int, markers: Iterable[Record]) -> None:
        """A control record's key is an int16 version and an int16 type."""
        records = self._open_transactions.pop(producer_id, [])
        for marker in markers:
            if marker.key is not None and marker.key[2:4] == COMMIT_MARKER.to_bytes(2, "big"):
                self._apply(records)

    def _apply(self, records: Iterable[Record]) -> None:
        for record in records:
            try:
                self._apply_record(record)
            except KafkaError as error:
                logger.error(
                    "Record %d of offsets partition %d is left out: %s",
                    record.offset,
                    self.partition,
                    error,
                )

    def _apply_record(self, record: Record) -> None:
        key = decode_key(record.key or b"")
        if key is None:
            # Kafka keeps groups of other kinds in the same topic.
            logger.debug("Record %d has a key of another kind", record.offset)
        elif isinstance(key, GroupMetadataKey):
            self._apply_group(key.group, record.value)
        elif not isinstance(key, OffsetCommitKey):
            stored = self._consumer_groups.setdefault(key.group, StoredConsumerGroup())
            stored.apply(key, record.value)
        else:
            partition = TopicPartition(key.topic, key.partition)
            if self._places.get((key.group, partition), -1) <= record.offset:
                self._places[key.group, partition] = record.offset
                self._apply_offset(key.group, partition, record.value)

    def _apply_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = value

    def _apply_offset(self, group_id: str, partition: TopicPartition, value: bytes | None) -> None:
        offsets = self._offsets.setdefault(group_id, {})
        if value is None:
            offsets.pop(partition, None)
        else:
            offsets[partition] = read_offset_value(value)
        if not offsets:
            del self._offsets[group_id]
