"""All groups of this broker: a cache in memory over the partitions of the offsets topic.

A partition is loaded when this broker becomes its leader, and its groups are refused with
COORDINATOR_LOAD_IN_PROGRESS until that is done. What is written reaches the cache when all in-sync
replicas have it, so that nobody reads what a crash could take back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.coordinator_partitions import CoordinatorPartitions
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.pending_writes import Records
from ottla.coordinator.group.group import GroupMetadata, group_key
from ottla.coordinator.group.group_records import group_value, offset_key, offset_value
from ottla.coordinator.group.group_type import Group
from ottla.coordinator.group.offsets import OffsetAndMetadata
from ottla.coordinator.group.partition_loader import PartitionLoader
from ottla.coordinator.transaction.transaction_coordinator import TxnProducer
from ottla.errors import ErrorCode
from ottla.record.batch_builder import BatchBuilder
from ottla.runtime import Runtime
from ottla.structs import OFFSETS_TOPIC, TopicPartition

logger = logging.getLogger(__name__)

OnStored = Callable[[ErrorCode], object]

TOMBSTONES_PER_BATCH: Final = 1000

# What a failed write of the log means to a member of a group (SyncGroup) ...
STORE_GROUP_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# ... and to one that commits offsets.
STORE_OFFSETS_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **STORE_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
# ... and to a member of a consumer group, whose heartbeat is simply to be sent again.
STORE_RECORDS_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **STORE_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class GroupMetadataManager:
    """The groups by id, their partitions, and the way into the log and back.

    Invariant: a group in the cache belongs to a partition that is loaded here, and is not Dead.
    """

    def __init__(self, runtime: Runtime, log: CoordinatorLog) -> None:
        self.log = log
        self._clock = runtime.clock
        self._groups: dict[str, Group] = {}
        self._partitions: CoordinatorPartitions[PartitionLoader] = CoordinatorPartitions(
            runtime.scheduler, OFFSETS_TOPIC
        )
        # (partition, producer id) -> groups with offsets in the producer's open transaction.
        self._transactions: dict[tuple[int, int], set[str]] = {}

    def availability(self, group_id: str) -> ErrorCode:
        """NONE if this broker can answer for the group now, else what to tell the client."""
        return self._partitions.availability(self.log.partition_for(group_id))

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being loaded."""
        return self._partitions.is_loading

    def group(self, group_id: str) -> Group | None:
        """The group of whatever protocol, if it exists."""
        return self._groups.get(group_id)

    def classic_group(self, group_id: str) -> GroupMetadata | None:
        """The group, if it exists and is one of the classic protocol."""
        group = self._groups.get(group_id)
        return group if isinstance(group, GroupMetadata) else None

    def groups(self) -> Iterator[Group]:
        """Every group, by id."""
        for group_id in sorted(self._groups):
            yield self._groups[group_id]

    def get_or_create_group(self, group_id: str) -> Group:
        """The group; one that nobody has asked for before is new, classic and Empty."""
        return self._groups.get(group_id) or self._add_classic_group(group_id)

    def get_or_create_classic_group(self, group_id: str) -> GroupMetadata | None:
        """The group for members of the classic protocol; None if others are in it.

        A consumer group without members becomes a classic one, and keeps its offsets.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, GroupMetadata):
            return group or self._add_classic_group(group_id)
        if not isinstance(group, ConsumerGroup) or not group.is_empty:
            return None
        successor = self.create_classic_group(group)

        def on_stored(error: ErrorCode) -> None:
            if not error:
                successor.owed_tombstones.clear()

        self._append_tombstones(successor, list(successor.owed_tombstones), on_stored)
        return successor

    def create_classic_group(self, before: ConsumerGroup) -> GroupMetadata:
        """A classic group in the place of a consumer group, with its offsets.

        Generations and epochs are one sequence: what was given out in one of them is not given
        out again under the same number.
        """
        self._forget(before)
        group = self._add_classic_group(before.group_id)
        group.generation_id = before.group_epoch
        group.offsets = before.offsets
        group.owed_tombstones = dict.fromkeys(before.tombstone_keys())
        return group

    def create_consumer_group(self, group_id: str) -> ConsumerGroup:
        """A consumer group in the place of none, or of a classic one, with its offsets."""
        group = ConsumerGroup(group_id)
        before = self._groups.get(group_id)
        if before is not None:
            group.offsets = before.offsets
            group.group_epoch = before.generation_id if isinstance(before, GroupMetadata) else 0
            group.writes.unsaved.update(dict.fromkeys(before.tombstone_keys()))
            self._forget(before)
        self._groups[group_id] = group
        return group

    def forget_if_unused(self, group: Group) -> None:
        """A group that was only ever asked about leaves no trace."""
        if group.is_unused and self._groups.get(group.group_id) is group:
            self._forget(group)

    def store_records(self, group: ConsumerGroup, records: Records, on_stored: OnStored) -> None:
        """Write records of a consumer group in one batch, after those that it still owes."""

        def append(batch: Mapping[bytes, bytes | None], on_done: OnStored) -> None:
            builder = BatchBuilder()
            now_ms = self._clock.now_ms()
            for key, value in batch.items():
                builder.append(now_ms, key, value)
            self._append(group, builder, on_done)

        group.writes.write(
            records, append, lambda error: on_stored(STORE_RECORDS_ERRORS.get(error, error))
        )

    def store_group(
        self, group: GroupMetadata, assignment: Mapping[str, bytes], on_stored: OnStored
    ) -> None:
        """Write the generation of the group with the assignment of its members."""
        owed = list(group.owed_tombstones)
        builder = self._tombstones(owed)
        builder.append(
            self._clock.now_ms(), group_key(group.group_id), group_value(group, assignment)
        )

        def on_done(error: ErrorCode) -> None:
            if not error:
                for key in owed:
                    group.owed_tombstones.pop(key, None)
            on_stored(STORE_GROUP_ERRORS.get(error, error))

        self._append(group, builder, on_done)

    def store_offsets(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_stored: OnStored,
    ) -> None:
        """Write committed offsets in one batch, all or none."""
        if not offsets:
            on_stored(ErrorCode.NONE)
            return
        sequence = group.offsets.prepare(offsets)

        def on_done(error: ErrorCode) -> None:
            if error:
                group.offsets.give_up(sequence, offsets)
            else:
                group.offsets.complete(sequence, offsets)
            on_stored(STORE_OFFSETS_ERRORS.get(error, error))

        self._append_offsets(group, offsets, BatchBuilder(), on_done)

    def store_offsets_in_transaction(
        self,
        group: Group,
        producer: TxnProducer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_stored: OnStored,
    ) -> None:
        """Write offsets that count once the producer's transaction is committed."""
        if not offsets:
            on_stored(ErrorCode.NONE)
            return
        producer_id = producer.producer_id
        sequence = group.offsets.prepare_in_transaction(producer_id, offsets)
        partition = self.log.partition_for(group.group_id)
        self._transactions.setdefault((partition, producer_id), set()).add(group.group_id)

        def on_done(error: ErrorCode) -> None:
            if error:
                group.offsets.give_up_in_transaction(producer_id, sequence, offsets)
            on_stored(STORE_OFFSETS_ERRORS.get(error, error))

        # The log knows a producer's transaction by its batches. Their numbers do not matter here.
        builder = BatchBuilder()
        builder.set_producer_state(producer_id, producer.producer_epoch, 0, True)
        self._append_offsets(group, offsets, builder, on_done)

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """The end of a producer's transaction is in the log of the partition."""
        for group_id in self._transactions.pop((partition, producer_id), ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, commit)
                self.forget_if_unused(group)

    def delete_offsets(
        self, group: Group, partitions: Iterable[TopicPartition], on_stored: OnStored
    ) -> None:
        """Forget what was committed for partitions, and the group if nothing else is left."""
        known = [partition for partition in partitions if partition in group.offsets]
        self._drop_offsets(group, known, on_stored)

    def delete_group(self, group: Group, on_stored: OnStored) -> None:
        """Delete a group without members, with all its offsets."""
        assert group.is_empty, f"group {group.group_id} still has members"
        keys = [offset_key(group.group_id, partition) for partition in group.offsets.all()]
        keys += group.tombstone_keys()
        self._forget(group)
        self._append_tombstones(group, keys, on_stored)

    def expire_offsets(self, retention_ms: int) -> int:
        """Drop offsets that nobody needs any more, and groups that nothing is left of (KIP-211)."""
        count = 0
        for group in list(self._groups.values()):
            expired = group.expired_offsets(self._clock.now_ms(), retention_ms)
            count += len(expired)
            self._drop_offsets(group, expired)
        if count:
            logger.info("%d committed offsets have expired", count)
        return count

    def drop_topics(self, topics: Collection[str]) -> None:
        """The topics were deleted: one that is made again under the same name begins anew."""
        for group in list(self._groups.values()):
            gone = group.offsets.remove_topics(topics)
            if gone:
                self._drop_offsets(group, gone)

    def load(self, partition: int, on_loaded: Callable[[Group], object]) -> None:
        """This broker leads the partition now: read its groups, which goes on in steps."""
        self._partitions.load(
            partition,
            lambda: PartitionLoader(partition, self.log.read(partition)),
            lambda loader: self._finish_loading(loader, on_loaded),
        )

    def unload(self, partition: int) -> list[Group]:
        """Another broker leads the partition now; returns the groups that were forgotten."""
        self._partitions.unload(partition)
        gone = [
            group
            for group in self._groups.values()
            if self.log.partition_for(group.group_id) == partition
        ]
        for group in gone:
            del self._groups[group.group_id]
        for key in [key for key in self._transactions if key[0] == partition]:
            del self._transactions[key]
        return gone

    def _finish_loading(
        self, loader: PartitionLoader, on_loaded: Callable[[Group], object]
    ) -> None:
        groups = list(loader.groups(self._clock.now_ms()))
        for group in groups:
            self._groups[group.group_id] = group
            for producer_id in group.offsets.open_transactions:
                key = loader.partition, producer_id
                self._transactions.setdefault(key, set()).add(group.group_id)
        if loader.record_count:
            logger.info(
                "Offsets partition %d is loaded: %d groups from %d records",
                loader.partition,
                len(groups),
                loader.record_count,
            )
        for group in groups:
            on_loaded(group)

    def _drop_offsets(
        self,
        group: Group,
        partitions: list[TopicPartition],
        on_stored: OnStored = lambda error: None,
    ) -> None:
        group.offsets.remove(partitions)
        keys = [offset_key(group.group_id, partition) for partition in partitions]
        if group.is_over:
            logger.info("Nothing is left of group %s", group.group_id)
            keys += group.tombstone_keys()
            self._forget(group)
        self._append_tombstones(group, keys, on_stored)

    def _append_tombstones(self, group: Group, keys: list[bytes], on_stored: OnStored) -> None:
        """A group may have more offsets than a batch has room for; the first error is reported."""
        if not keys:
            on_stored(ErrorCode.NONE)
            return
        chunks = [
            keys[start : start + TOMBSTONES_PER_BATCH]
            for start in range(0, len(keys), TOMBSTONES_PER_BATCH)
        ]
        errors: list[ErrorCode] = []

        def on_done(error: ErrorCode) -> None:
            if error:
                logger.warning(
                    "Group %s: deletions were not stored, they come back after a restart: %s",
                    group.group_id,
                    error.name,
                )
            errors.append(STORE_GROUP_ERRORS.get(error, error))
            if len(errors) == len(chunks):
                on_stored(next(filter(None, errors), ErrorCode.NONE))

        for chunk in chunks:
            self._append(group, self._tombstones(chunk), on_done)

    def _tombstones(self, keys: Iterable[bytes]) -> BatchBuilder:
        builder = BatchBuilder()
        now_ms = self._clock.now_ms()
        for key in keys:
            builder.append(now_ms, key, None)
        return builder

    def _append_offsets(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        builder: BatchBuilder,
        on_done: OnStored,
    ) -> None:
        now_ms = self._clock.now_ms()
        for partition, value in offsets.items():
            builder.append(now_ms, offset_key(group.group_id, partition), offset_value(value))
        self._append(group, builder, on_done)

    def _append(self, group: Group, builder: BatchBuilder, on_done: OnStored) -> None:
        self.log.append(self.log.partition_for(group.group_id), builder.build(), on_done)

    def _add_classic_group(self, group_id: str) -> GroupMetadata:
        group = self._groups[group_id] = GroupMetadata(group_id, self._clock.now_ms())
        return group

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        group.die(self._clock.now_ms())
