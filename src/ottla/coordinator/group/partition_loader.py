"""The groups and offsets of a partition of the offsets topic, read back from its records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.coordinator_partitions import StepwiseLoader
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer.stored_consumer_group import StoredConsumerGroup
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.group_records import read_group_value, read_offset_value
from ottla.coordinator.group.offsets import GroupOffsets
from ottla.protocol.offsets_topic import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
)
from ottla.record.control_record import end_of_transaction
from ottla.record.record_batch import Record, RecordBatch
from ottla.runtime.scheduler import Work
from ottla.structs import NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)

GROUPS_IN_A_STEP: Final = 1000


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

    def groups(self, now_ms: int) -> Iterator[Group | None]:
        """The groups of the partition, with their offsets; None where others may run."""
        ids = dict.fromkeys(chain(self._groups, self._consumer_groups, self._offsets))
        for number, group_id in enumerate(ids, 1):
            if not number % GROUPS_IN_A_STEP:  # most of them may be deleted ones
                yield None
            stored, offsets = self._consumer_groups.get(group_id), self._offsets.get(group_id)
            if (
                group_id in self._groups
                or (stored is not None and stored.exists)
                or (offsets is not None and not offsets.has_nothing_but(()))
            ):
                group = yield from self._group(group_id, now_ms)
                if offsets is not None:
                    group.offsets = offsets
                yield group

    def _group(self, group_id: str, now_ms: int) -> Work[Group]:
        data = self._groups.get(group_id)
        stored = self._consumer_groups.get(group_id)
        try:
            if stored is not None and stored.exists:
                return (yield from stored.restore(group_id))
            if data is None:
                return ClassicGroup(group_id, now_ms)
            return (yield from read_group_value(group_id, data, now_ms))
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

    def tables(self) -> Iterable[dict[Any, Any]]:
        yield from (self._groups, self._consumer_groups)
        while self._offsets:
            yield self._offsets.popitem()[1].give_up()

    def apply(self, record: Record, batch: RecordBatch) -> Work[None] | None:
        key = decode_key(record.key or b"")
        if key is None:
            # Kafka keeps groups of other kinds in the same topic.
            logger.debug("Record %d has a key of another kind", record.offset)
        elif isinstance(key, GroupMetadataKey):
            self._apply_group(key.group, record.value)
        elif not isinstance(key, OffsetCommitKey):
            stored = self._consumer_groups.setdefault(key.group, StoredConsumerGroup())
            if isinstance(key, ConsumerGroupMetadataKey):
                stored.epoch_ms = record.timestamp_ms
            return stored.apply(key, record.value)
        else:
            producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
            self._apply_offset(key, record, producer_id)
        return None

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
    return {group.group_id: group for group in loader.groups(now_ms) if group is not None}
