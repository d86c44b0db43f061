"""All groups of this broker: a cache in memory over the partitions of the offsets topic.

A partition is loaded when this broker becomes its leader, and its groups are refused with
COORDINATOR_LOAD_IN_PROGRESS until that is done. A client is told of a commit or an assignment when
all in-sync replicas have it, so that a crash cannot undo what a client was told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.coordinator_log import CoordinatorLog, CoordinatorPartitions, StepwiseLoader
from ottla.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    Records,
    StoredConsumerGroup,
)
from ottla.coordinator.group.group import (
    ClassicGroup,
    Group,
    GroupState,
    MemberMetadata,
    SupportedProtocol,
    group_key,
)
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import decode_versioned, encode_versioned
from ottla.protocol.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
    decode_key,
)
from ottla.record.batch_builder import BatchBuilder
from ottla.record.record_batch import Record, RecordBatch, end_of_transaction
from ottla.runtime import Runtime
from ottla.structs import (
    OFFSETS_TOPIC,
    TopicPartition,
    TxnProducer,
    Value,
)

logger = logging.getLogger(__name__)


# Groups and offsets as records of `__consumer_offsets`, with Kafka's keys and values.
#
# Values are written as Kafka 2.3 to 3.9 do: version 3 for groups and for offsets, version 1 for the
# offset of a client that set its own retention time. A record without a value deletes its key.


OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return encode_versioned(key, OFFSET_KEY_VERSION)


def offset_value(value: CommittedOffset) -> bytes:
    """A committed offset; the version with an expiry time has no room for the leader epoch."""
    stored = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
    )
    if value.expire_timestamp_ms is None:
        return encode_versioned(stored, OFFSET_VALUE_VERSION)
    stored.expire_timestamp = value.expire_timestamp_ms
    return encode_versioned(stored, OFFSET_VALUE_WITH_EXPIRY_VERSION)


def read_offset_value(data: bytes) -> CommittedOffset:
    """A committed offset of any version."""
    stored = decode_versioned(OffsetCommitValue, data)
    return CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp if stored.expire_timestamp >= 0 else None,
    )


def group_value(group: ClassicGroup, assignment: Mapping[str, bytes]) -> bytes:
    """The present generation of a group, with the assignment that it is about to get."""
    timestamp_ms = group.state_timestamp_ms
    stored = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if timestamp_ms is None else timestamp_ms,
        members=[
            _stored_member(group, member, assignment.get(member.member_id, b""))
            for member in group.members.values()
        ],
    )
    return encode_versioned(stored, GROUP_VALUE_VERSION)


def _stored_member(group: ClassicGroup, member: MemberMetadata, assignment: bytes) -> StoredMember:
    assert group.protocol_name is not None, "a group with members has a protocol"
    return StoredMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignment,
    )


def read_group_value(group_id: str, data: bytes, now_ms: int) -> ClassicGroup:
    """The group as its last generation left it: Stable with its members, or Empty."""
    stored = decode_versioned(GroupMetadataValue, data)
    _check_members(stored)
    group = ClassicGroup(group_id, now_ms)
    group.protocol_type = stored.protocol_type or None
    for member in stored.members:
        group.add(_loaded_member(stored, member))
    group.generation_id = stored.generation
    group.protocol_name = stored.protocol
    group.leader_id = stored.leader if stored.leader in group.members else group.leader_id
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    timestamp_ms = stored.current_state_timestamp
    group.state_timestamp_ms = timestamp_ms if timestamp_ms >= 0 else None
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _check_members(stored: GroupMetadataValue) -> None:
    """Refuse values that no coordinator writes, before they fail the group's own assertions."""
    ids = [member.member_id for member in stored.members]
    instances = [
        member.group_instance_id
        for member in stored.members
        if member.group_instance_id is not None
    ]
    if len(set(ids)) < len(ids) or len(set(instances)) < len(instances):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a member stands in the group twice")
    if ids and not (stored.protocol_type and stored.protocol is not None):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the group has members and no protocol")


def _loaded_member(stored: GroupMetadataValue, member: StoredMember) -> MemberMetadata:
    timeout_ms = member.rebalance_timeout
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        protocol_type=stored.protocol_type,
        protocols=[SupportedProtocol(stored.protocol or "", member.subscription)],
        assignment=member.assignment,
    )


# Reads a partition of the offsets topic back into groups and offsets.


class PartitionLoader(StepwiseLoader):
    """Collects the last value of each key.

    A record that cannot be read is logged and left out: the other groups of the partition must not
    suffer from it. Offsets in a transaction count once its commit marker has been read. They are
    ordered by where they were written, so that a plain commit written after them wins.
    """

    def __init__(self, partition: int, source: Iterator[memoryview]) -> None:
        super().__init__(partition, source)
        self._groups: dict[str, bytes] = {}
        self._consumer_groups: dict[str, StoredConsumerGroup] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # The log offset of each key's newest record, also if that is a tombstone.
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

    def _waiting(self) -> dict[str, dict[int, dict[TopicPartition, CommittedOffset]]]:
        """By group and producer, the offsets in transactions that have no end yet."""
        found: dict[str, dict[int, dict[TopicPartition, CommittedOffset]]] = {}
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
                return ClassicGroup(group_id, now_ms)
            return read_group_value(group_id, data, now_ms)
        except KafkaError as error:
            logger.error("Group %s cannot be read back: %s", group_id, error)
            return ClassicGroup(group_id, now_ms)

    def read_batch(self, batch: RecordBatch) -> None:
        try:
            batch.verify()
            records = list(batch.records())
            marker = end_of_transaction(batch) if batch.is_control else None
        except KafkaError as error:
            logger.error("%r of offsets partition %d is lost: %s", batch, self.partition, error)
            return
        self.record_count += max(1, len(records))
        if batch.is_control:
            waiting = self._open_transactions.pop(batch.producer_id, [])
            if marker is not None and marker.is_commit:
                self._apply(waiting)
        elif batch.is_transactional:
            self._open_transactions.setdefault(batch.producer_id, []).extend(records)
        else:
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
# ... and to a member of a consumer group, which simply sends its heartbeat again.
STORE_RECORDS_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **STORE_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class GroupCounts(Value):
    """What groups of this broker have done since it began."""

    commits: int = 0
    """Offsets that were committed: one for each partition."""
    expirations: int = 0
    deletions: int = 0
    rebalances: int = 0
    """New generations, of classic groups."""


class GroupMetadataManager:
    """The groups by id, their partitions, and how they are written to the log and loaded.

    Invariant: a group in the cache belongs to a partition that is loaded here, and is not Dead.
    """

    def __init__(self, runtime: Runtime, log: CoordinatorLog) -> None:
        self.log = log
        self._clock = runtime.clock
        self.counts = GroupCounts()
        self._groups: dict[str, Group] = {}
        self.partitions: CoordinatorPartitions[PartitionLoader] = CoordinatorPartitions(
            runtime, OFFSETS_TOPIC
        )
        # (partition, producer id) -> groups with offsets in the producer's open transaction.
        self._transactions: dict[tuple[int, int], set[str]] = {}

    def availability(self, group_id: str) -> ErrorCode:
        """NONE if this broker can answer for the group now, else what to tell the client."""
        return self.partitions.availability(self.log.partition_for(group_id))

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being loaded."""
        return self.partitions.is_loading

    def group(self, group_id: str) -> Group | None:
        """The group of either protocol, if it exists."""
        return self._groups.get(group_id)

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """The group, if it exists and is one of the classic protocol."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it exists and is one of the consumer protocol (KIP-848)."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def groups(self) -> Iterator[Group]:
        """Every group, by id."""
        for group_id in sorted(self._groups):
            yield self._groups[group_id]

    def get_or_create_group(self, group_id: str) -> Group:
        """The group; if there is none, a new one, which is classic and Empty."""
        return self._groups.get(group_id) or self._add_classic_group(group_id)

    def group_to_join(self, group_id: str, *, is_new: bool) -> Group | None:
        """The group that a member of the classic protocol joins.

        Only a new member creates a group, or makes a consumer group without members a classic one,
        which keeps its offsets. A member id is from a group that has members, or soon has some.
        """
        before = self.consumer_group(group_id)
        if before is None or not before.is_empty:
            return self.get_or_create_group(group_id) if is_new else self._groups.get(group_id)
        if not is_new:
            return None
        successor = self.create_classic_group(before)

        def on_stored(error: ErrorCode) -> None:
            if not error:
                successor.owed_tombstones.clear()

        self._append_tombstones(successor, list(successor.owed_tombstones), on_stored)
        return successor

    def create_classic_group(self, before: ConsumerGroup) -> ClassicGroup:
        """Put a classic group in the place of a consumer group, with its offsets.

        The generation continues from the group epoch, so that no number is used twice.
        """
        self._forget(before)
        group = self._add_classic_group(before.group_id)
        group.generation_id = before.group_epoch
        group.offsets = before.offsets
        group.owed_tombstones = dict.fromkeys(before.tombstone_keys())
        return group

    def create_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Create a consumer group; it takes the offsets of a classic group that it replaces."""
        group = ConsumerGroup(group_id)
        before = self.classic_group(group_id)
        if before is not None:
            group.offsets = before.offsets
            group.group_epoch = before.generation_id
            group.writes.unsaved.update(dict.fromkeys(before.tombstone_keys()))
            self._forget(before)
        self._groups[group_id] = group
        return group

    def forget_if_unused(self, group: Group) -> None:
        """Forget a group that was only ever asked about."""
        if group.is_unused and self._groups.get(group.group_id) is group:
            self._forget(group)

    def store_records(self, group: ConsumerGroup, records: Records, on_stored: OnStored) -> None:
        """Write records of a consumer group in one batch, with those that failed before."""

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
        self, group: ClassicGroup, assignment: Mapping[str, bytes], on_stored: OnStored
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
        offsets: Mapping[TopicPartition, CommittedOffset],
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
                self.counts.commits += len(offsets)
            on_stored(STORE_OFFSETS_ERRORS.get(error, error))

        self._append_offsets(group, offsets, BatchBuilder(), on_done)

    def store_offsets_in_transaction(
        self,
        group: Group,
        producer: TxnProducer,
        offsets: Mapping[TopicPartition, CommittedOffset],
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

        # The log recognizes a transaction by its batches' producer id and epoch; their sequence
        # numbers do not matter here.
        builder = BatchBuilder()
        builder.set_producer_state(producer_id, producer.producer_epoch, 0, True)
        self._append_offsets(group, offsets, builder, on_done)

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """A producer's transaction marker is in the log of the partition."""
        for group_id in self._transactions.pop((partition, producer_id), ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, commit)
                self.forget_if_unused(group)

    def delete_offsets(
        self, group: Group, partitions: Iterable[TopicPartition], on_stored: OnStored
    ) -> None:
        """Delete the offsets of partitions, and the group if nothing else is left."""
        known = [partition for partition in partitions if partition in group.offsets]
        self.counts.deletions += len(known)
        self._drop_offsets(group, known, on_stored)

    def delete_group(self, group: Group, on_stored: OnStored) -> None:
        """Delete a group without members, with all its offsets."""
        assert group.is_empty, f"group {group.group_id} still has members"
        keys = [offset_key(group.group_id, partition) for partition in group.offsets.all()]
        keys += group.tombstone_keys()
        self._forget(group)
        self._append_tombstones(group, keys, on_stored)

    def expire_offsets(self, retention_ms: int) -> int:
        """Delete expired offsets, and groups that have nothing left (KIP-211)."""
        count = 0
        for group in list(self._groups.values()):
            expired = group.expired_offsets(self._clock.now_ms(), retention_ms)
            count += len(expired)
            self._drop_offsets(group, expired)
        if count:
            self.counts.expirations += count
            logger.info("%d committed offsets have expired", count)
        return count

    def drop_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of deleted topics; a new topic of the same name begins without any."""
        for group in list(self._groups.values()):
            gone = group.offsets.remove_topics(topics)
            if gone:
                self._drop_offsets(group, gone)

    def load(self, partition: int, on_loaded: Callable[[Group], object]) -> None:
        """This broker leads the partition now: read its groups, in steps."""
        self.partitions.load(
            partition,
            lambda: PartitionLoader(partition, self.log.read(partition)),
            lambda loader: self._finish_loading(loader, on_loaded),
        )

    def unload(self, partition: int) -> list[Group]:
        """Another broker leads the partition now; returns the groups that were forgotten."""
        self.partitions.unload(partition)
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
        """Write tombstones, in several batches if there are many; reports the first error."""
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
        offsets: Mapping[TopicPartition, CommittedOffset],
        builder: BatchBuilder,
        on_done: OnStored,
    ) -> None:
        now_ms = self._clock.now_ms()
        for partition, value in offsets.items():
            builder.append(now_ms, offset_key(group.group_id, partition), offset_value(value))
        self._append(group, builder, on_done)

    def _append(self, group: Group, builder: BatchBuilder, on_done: OnStored) -> None:
        self.log.append(self.log.partition_for(group.group_id), builder.build(), on_done)

    def _add_classic_group(self, group_id: str) -> ClassicGroup:
        group = self._groups[group_id] = ClassicGroup(group_id, self._clock.now_ms())
        return group

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        group.die(self._clock.now_ms())
