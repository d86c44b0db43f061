"""The groups and offsets of a partition of the offsets topic, read back from its records."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.coordinator_partitions import StepwiseLoader
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer.stored_consumer_group import StoredConsumerGroup
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.group_records import read_group_value, read_offset_value
from ottla.coordinator.group.offsets import GroupOffsets
from ottla.protocol.offsets_topic import GroupMetadataKey, OffsetCommitKey, decode_key
from ottla.record.record_batch import Record, RecordBatch, end_of_transaction
from ottla.structs import NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)


class PartitionLoader(StepwiseLoader):
    """Collects the last value of each key.

    A record that cannot be read is logged and left out: the other groups of the partition must not
    suffer from it. Offsets count by the same rules as those of a running coordinator.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        super().__init__(partition, source)
        self._groups: dict[str, bytes] = {}
        self._consumer_groups: dict[str, StoredConsumerGroup] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        # By producer id, the groups with offsets in its open transaction.
        self._transactions: dict[int, set[str]] = {}
        self.deleted_topics: set[str] = set()
        """Topics that were deleted while the partition was being read."""

    def groups(self, now_ms: int) -> Iterator[Group]:
        """The groups of the partition, with their offsets."""
        consumers = [name for name, stored in self._consumer_groups.items() if stored.exists]
        with_offsets = [
            name for name, offsets in self._offsets.items() if not offsets.has_nothing_but(())
        ]
        for group_id in dict.fromkeys((*self._groups, *consumers, *with_offsets)):
            group = self._group(group_id, now_ms)
            group.offsets = self._offsets.get(group_id, group.offsets)
            yield group

    def _group(self, group_id: str, now_ms: int) -> Group:
        data = self._groups.get(group_id)
        stored = self._consumer_groups.get(group_id)
        try:
            if stored is not None and stored.exists:
                return stored.restore(group_id)
            if data is None:
                return ClassicGroup(group_id, now_ms)
            return read_group_value(group_id, data, now_ms)
        except Exception as error:
            self.report(f"group {group_id}", error)
            return ClassicGroup(group_id, now_ms)

    def end_transaction(self, marker: RecordBatch) -> None:
        ending = end_of_transaction(marker)
        is_commit = ending is not None and ending.is_commit
        self.end_offsets(marker.base_offset, marker.producer_id, is_commit)

    def end_offsets(self, place: int, producer_id: int, is_commit: bool) -> None:
        """The transaction has ended at this place, up to which the partition is read."""
        for group_id in self._transactions.pop(producer_id, ()):
            self._offsets[group_id].end_transaction(place, producer_id, is_commit)

    def apply(self, record: Record, batch: RecordBatch) -> None:
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
            producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
            self._apply_offset(key, record, producer_id)

    def _apply_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = value

    def _apply_offset(self, key: OffsetCommitKey, record: Record, producer_id: int) -> None:
        partition = TopicPartition(key.topic, key.partition)
        offsets = self._offsets.get(key.group)
        if offsets is None:
            offsets = self._offsets[key.group] = GroupOffsets()
        if record.value is None:
            offsets.delete(record.offset, partition)
        elif producer_id == NO_PRODUCER_ID:
            offsets.put(record.offset, partition, read_offset_value(record.value))
        else:
            value = read_offset_value(record.value)
            offsets.stage(record.offset, producer_id, partition, value)
            self._transactions.setdefault(producer_id, set()).add(key.group)


def replay(log: CoordinatorLog, partition: int, now_ms: int) -> dict[str, Group]:
    """The groups of a partition by id, as its log has them now."""
    loader = PartitionLoader(partition, log.read(partition))
    while loader.step():
        pass
    return {group.group_id: group for group in loader.groups(now_ms)}
