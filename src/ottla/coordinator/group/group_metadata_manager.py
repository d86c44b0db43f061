"""All groups of this broker: a cache in memory over the partitions of the offsets topic.

A partition is loaded when this broker becomes its leader, and its groups are refused with
COORDINATOR_LOAD_IN_PROGRESS until that is done. A client hears of a commit or an assignment when
all in-sync replicas have it, so that a crash cannot undo an answer. Memory has the state that a
fresh load of the log would give (`differences`), except for writes on their way.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, cast
from uuid import UUID

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.coordinator_partitions import CoordinatorPartitions
from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS, CoordinatorWriter
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.pending_writes import Records, batch_of
from ottla.coordinator.group.deletion import Deletion, Doomed, OnStored
from ottla.coordinator.group.group import Group, differences
from ottla.coordinator.group.group_records import group_batch, offsets_batch
from ottla.coordinator.group.offsets import CommittedOffset, OffsetsWrite
from ottla.coordinator.group.partition_loader import PartitionLoader, replay
from ottla.coordinator.group.topic_drops import OwedTombstones, TopicDrops
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work, at_once
from ottla.structs import (
    NO_OFFSET,
    NO_PRODUCER_ID,
    OFFSETS_TOPIC,
    TopicPartition,
    TxnProducer,
    Value,
)

logger = logging.getLogger(__name__)


OnLoaded = Callable[[Group], Work[None]]

# A batch that was answered so is in the log of its leader, and counts or may count later.
IN_THE_LOG: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)

# The error of a failed write of the log for a member of a group (SyncGroup) ...
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
    """The counts of the groups of this broker since it began."""

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

    def __init__(
        self,
        runtime: Runtime,
        log: CoordinatorLog,
        is_deleted: Callable[[TopicPartition, UUID], bool],
    ) -> None:
        self.log = log
        self.is_deleted = is_deleted
        self._runtime = runtime
        self._clock, self._scheduler = runtime.clock, runtime.scheduler
        self._writer = CoordinatorWriter(runtime, log)
        self.counts = GroupCounts()
        self._groups: dict[str, Group] = {}
        self._ids: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """The ids of the groups by partition."""
        self.partitions = CoordinatorPartitions[PartitionLoader](runtime, log, OFFSETS_TOPIC)
        # (partition, producer id) -> groups with offsets in the producer's open transaction.
        self._transactions: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        self._debts = OwedTombstones(runtime, self._groups, self._drop_offsets)
        self.drops = TopicDrops(runtime, self._groups, is_deleted, self.pay_tombstones)

    def availability(self, group_id: str) -> ErrorCode:
        """NONE if this broker can answer for the group now, else the error for the client.

        A group whose deletion is on its way into the log cannot change until that is known.
        """
        group = self.group(group_id)
        if group is not None and group.is_dying:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.partitions.availability(self.log.partition_for(group_id))

    @property
    def is_loading(self) -> bool:
        """Whether some partition is being loaded."""
        return self.partitions.is_loading

    def group(self, group_id: str) -> Group | None:
        """The group of either protocol, if it exists."""
        group = self._groups.get(group_id)
        if group is not None and self.drops.is_under_way:
            self.drops.attend(group)
            return self._groups.get(group_id)  # that may have been its end
        return group

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """The group, if it exists and is one of the classic protocol."""
        group = self.group(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it exists and is one of the consumer protocol (KIP-848)."""
        group = self.group(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def groups(self) -> list[Group]:
        """Every group; a hundred thousand of them in a millisecond."""
        return list(self._groups.values())

    def get_or_create_group(self, group_id: str) -> Group:
        """The group; if there is none, a new one, which is classic and Empty."""
        return self.group(group_id) or self._add_classic_group(group_id)

    def group_to_join(self, group_id: str, *, is_new: bool) -> Group | None:
        """The group that a member of the classic protocol joins.

        Only a new member creates a group, or makes a consumer group without members a classic one,
        which keeps its offsets. A member id is from a group that has members, or soon has some.
        """
        before = self.consumer_group(group_id)
        if before is None or not before.is_empty:
            return self.get_or_create_group(group_id) if is_new else self.group(group_id)
        if not is_new:
            return None
        successor = ClassicGroup(group_id, self._clock.now_ms())
        successor.owed_tombstones = dict.fromkeys(before.tombstone_keys())
        self.replace_consumer_group(before, successor)

        def on_stored(error: ErrorCode) -> None:
            if not error:
                successor.owed_tombstones.clear()

        self._append_tombstones(successor, list(successor.owed_tombstones), on_stored)
        return successor

    def replace_consumer_group(self, before: ConsumerGroup, group: ClassicGroup) -> None:
        """Put a classic group in the place of a consumer group, with its offsets.

        The generation continues from the group epoch, so that no number is used twice.
        """
        self.drops.attend(before)
        self._forget(before)
        self._add(group)
        group.generation_id = before.group_epoch
        group.offsets = before.offsets

    def add_consumer_group(self, group: ConsumerGroup) -> ConsumerGroup:
        """Keep a consumer group; it takes the offsets of a classic group that it replaces."""
        before = self.classic_group(group.group_id)
        if before is not None:
            group.offsets = before.offsets
            group.group_epoch = before.generation_id
            group.writes.unsaved.update(dict.fromkeys(before.tombstone_keys()))
            self._forget(before)
        self._add(group)
        return group

    def forget_if_unused(self, group: Group) -> None:
        """Forget a group that was only ever asked about."""
        if group.is_unused and self._groups.get(group.group_id) is group:
            self._forget(group)

    def store_records(
        self,
        group: ConsumerGroup,
        records: Records,
        on_stored: OnStored,
        batch: bytes | None = None,
    ) -> None:
        """Write records of a consumer group in one batch, with those that failed before.

        A batch of all of them may have been made before.
        """

        def append(written: Mapping[bytes, bytes | None], on_done: OnStored) -> None:
            data = batch or batch_of(written, self._clock.now_ms())
            self._append(group, data, lambda place: None, on_done)

        group.writes.write(
            records, append, lambda error: on_stored(STORE_RECORDS_ERRORS.get(error, error))
        )

    def store_group(
        self,
        group: ClassicGroup,
        assignment: Mapping[str, bytes],
        on_stored: OnStored,
        batch: bytes | None = None,
    ) -> None:
        """Write the generation of the group, in a batch that may have been made before."""

        def on_answer(error: ErrorCode) -> None:
            on_stored(STORE_GROUP_ERRORS.get(error, error))
            if error in IN_THE_LOG:
                self._store_again(group)

        data = batch or at_once(group_batch(group, assignment, self._clock.now_ms()))
        self._append_group(group, data, on_answer)

    def _store_again(self, group: ClassicGroup) -> None:
        """Write a stable group over its record in the log, though that was given up here."""
        before = group.generation_id

        def store() -> None:
            present = self._groups.get(group.group_id)
            if (
                present is group
                and group.is_in(GroupState.STABLE)
                and before == group.generation_id
            ):
                assignment = {each.member_id: each.assignment for each in group.members.values()}
                batch = at_once(group_batch(group, assignment, self._clock.now_ms()))
                self._append_group(
                    group, batch, lambda error: self._store_again(group) if error else None
                )

        self._scheduler.call_later(WRITE_AGAIN_MS, store)

    def _append_group(self, group: ClassicGroup, batch: bytes, on_answer: OnStored) -> None:
        owed = list(group.owed_tombstones)

        def on_settled(place: int) -> None:
            if place != NO_OFFSET:
                for key in owed:
                    group.owed_tombstones.pop(key, None)

        self._append(group, batch, on_settled, on_answer)

    def store_offsets(
        self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset], on_stored: OnStored
    ) -> None:
        """Write committed offsets in one batch, all or none."""
        if not offsets:
            on_stored(ErrorCode.NONE)
            return
        batch = offsets_batch(group.group_id, offsets, self._clock.now_ms())
        write = group.offsets.begin(OffsetsWrite(offsets))
        self._append_offsets(group, write, batch, on_stored)

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
        batch = offsets_batch(group.group_id, offsets, self._clock.now_ms(), producer)
        # A tombstone that is written only later would delete these offsets as well.
        self._append_tombstones(group, [*group.offsets.payable_tombstones()], lambda error: None)
        write = group.offsets.begin_in_transaction(producer, offsets)
        key = self.log.partition_for(group.group_id), producer.producer_id
        self._transactions[key].add(group.group_id)
        self._append_offsets(group, write, batch, on_stored)

    def end_transaction(self, partition: int, place: int, producer_id: int, commit: bool) -> None:
        """A producer's transaction marker is in the log of the partition, at this place."""
        if loader := self.partitions.read_loader(partition):
            loader.end_offsets(place, producer_id, commit)
        for group_id in self._transactions.pop((partition, producer_id), ()):
            if (group := self._groups.get(group_id)) is None:
                continue
            group.offsets.end_transaction(place, producer_id, commit)
            if producer_id in group.offsets.open_transactions:
                self._transactions[partition, producer_id].add(group_id)
            self.pay_tombstones(group)
            self.forget_if_unused(group)

    def delete_offsets(
        self, group: Group, partitions: Iterable[TopicPartition], on_stored: OnStored
    ) -> None:
        """Delete the offsets of partitions, and the group if nothing else is left."""
        known = [partition for partition in partitions if group.offsets.knows(partition)]
        self.counts.deletions += len(known)
        self._drop_offsets(group, known, on_stored)

    def delete_group(self, group: Group, on_stored: OnStored) -> None:
        """Delete a group without members, with all its offsets."""
        assert group.is_empty, f"group {group.group_id} still has members"
        known, pending = group.offsets.known(), set(group.offsets.pending())
        known += [each for each in group.offsets.owed_tombstones if each not in pending]
        self._delete(group, known, on_stored)

    def expire_offsets(self, group: Group, some: list[TopicPartition], retention_ms: int) -> int:
        """Delete those of these offsets that have expired; returns how many (KIP-211)."""
        expired = group.expired_offsets(self._clock.now_ms(), retention_ms, some)
        self.counts.expirations += (count := len(expired))
        self._drop_offsets(group, expired)  # which uses the list up
        return count

    def drop_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of deleted topics; a new topic of the same name begins without any."""
        if not topics:
            return
        for loader in self.partitions.loaders:
            loader.deleted_topics.update(topics)
        self.drops.begin(topics)

    def drop_deleted_topics(self) -> None:
        """Delete the offsets of topics that were deleted while no broker coordinated the group."""
        self.drops.compare()

    def load(self, partition: int, on_loaded: OnLoaded) -> None:
        """This broker leads the partition now: read its groups, in steps."""
        self.partitions.load(
            partition,
            lambda: PartitionLoader(partition, self.log.read(partition)),
            lambda loader: self._finish_loading(loader, on_loaded),
        )

    def unload(self, partition: int) -> list[Group]:
        """Another broker leads the partition now; returns its groups, to be freed in slices."""
        self.partitions.unload(partition)
        ids = self._ids.pop(partition, ())
        gone = [self._groups.pop(group_id) for group_id in ids if group_id in self._groups]
        self.drops.forget(ids)
        for key in [key for key in self._transactions if key[0] == partition]:
            del self._transactions[key]
        return gone

    def _finish_loading(self, loader: PartitionLoader, on_loaded: OnLoaded) -> Work[None]:
        count = seen = 0
        for group in loader.groups(self._clock.now_ms()):
            if group is None:
                yield
                continue
            count += 1
            yield from self._take_over(loader, group, on_loaded)
            seen = yield from self.drops.compare_group(group, seen)
            self.forget_if_unused(group)  # a transaction may have been aborted since it was read
        if loader.record_count:
            text = "Offsets partition %d is loaded: %d groups from %d records"
            logger.info(text, loader.partition, count, loader.record_count)

    def _take_over(self, loader: PartitionLoader, group: Group, on_loaded: OnLoaded) -> Work[None]:
        self._add(group)
        for producer_id in group.offsets.open_transactions:
            self._transactions[loader.partition, producer_id].add(group.group_id)
        try:
            yield from on_loaded(group)
        except Exception as error:
            loader.report(f"the beginning of group {group.group_id}", error)
        if loader.deleted_topics:
            group.offsets.remove_deleted(group.offsets.in_topics(loader.deleted_topics))

    def differences(self, partition: int) -> list[str]:
        """The differences between the groups of a partition and a fresh load of its log.

        It reads the whole partition: for tests and simulated clusters. Changes on their way into
        the log, or written only when a rebalance is over, are not compared.
        """
        replayed = replay(self.log, partition, self._clock.now_ms())
        ids = self._ids.get(partition, {}).keys() & self._groups.keys()
        known = {each: self._groups[each] for each in ids}
        return [
            f"group {group_id}: {difference}"
            for group_id in sorted(known.keys() | replayed.keys())
            for difference in differences(known.get(group_id), replayed.get(group_id))
        ]

    def pay_tombstones(self, group: Group) -> None:
        """Write the tombstones of deleted topics, unless the group waits for something else."""
        if group.offsets.owed_tombstones and not group.is_dying:
            self._debts.pay(group)

    def _drop_offsets(
        self,
        group: Group,
        partitions: list[TopicPartition],
        on_stored: OnStored = lambda error: None,
    ) -> None:
        """Delete offsets, and the group with its last ones; others may be deleting it."""

        def on_end(is_written: bool) -> None:
            if is_written and group.is_over and not group.is_dying:
                self._drop_offsets(group, [])

        if group.is_over_without(partitions):
            logger.info("Nothing is left of group %s", group.group_id)
            self._delete(group, partitions, on_stored)
        else:
            self._append_tombstones(group, cast("list[Doomed]", partitions), on_stored, on_end)

    def _delete(self, group: Group, partitions: list[TopicPartition], on_stored: OnStored) -> None:
        """Delete a group, which these are all the offsets of: it is gone when the log has that."""
        group.is_dying = True

        def on_end(is_written: bool) -> None:
            group.is_dying = False
            if self._groups.get(group.group_id) is not group:
                return
            if is_written:
                self._forget(group)
            else:
                self.pay_tombstones(group)

        doomed = cast("list[Doomed]", partitions)
        doomed += group.tombstone_keys()
        self._append_tombstones(group, doomed, on_stored, on_end)

    def _append_tombstones(
        self,
        group: Group,
        doomed: list[Doomed],
        on_stored: OnStored,
        on_end: Callable[[bool], object] = lambda is_written: None,
    ) -> None:
        """Write tombstones; see `Deletion`."""
        self._go_on(Deletion(group, doomed, on_stored, on_end))

    def _go_on(self, deletion: Deletion) -> None:
        group = deletion.group
        if self._groups.get(group.group_id) is not group:  # it went, or has the other protocol
            deletion.end(is_written=False)
            deletion.on_stored(ErrorCode.NOT_COORDINATOR)
            return
        doomed, batch = deletion.next_batch(self._clock.now_ms())
        if not doomed:
            deletion.end(is_written=True)
            deletion.on_stored(ErrorCode.NONE)
            return

        def on_settled(place: int) -> None:
            if place == NO_OFFSET:
                deletion.end(is_written=False)
                return
            for number, each in enumerate(doomed, place):
                if isinstance(each, TopicPartition):
                    group.offsets.delete(number, each)
            if deletion.is_written_out:
                deletion.end(is_written=True)

        def on_answer(error: ErrorCode) -> None:
            if error:
                logger.debug("Group %s: deletions were not stored: %s", group.group_id, error.name)
                if not deletion.is_written_out:
                    deletion.end(is_written=False)
                deletion.on_stored(STORE_GROUP_ERRORS.get(error, error))
            elif deletion.is_written_out:
                deletion.on_stored(ErrorCode.NONE)
            else:
                self._scheduler.call_soon(partial(self._go_on, deletion))

        self._append(group, batch, on_settled, on_answer)

    def _append_offsets(
        self, group: Group, write: OffsetsWrite, batch: bytes, on_stored: OnStored
    ) -> None:
        def on_settled(place: int) -> None:
            group.offsets.settle(write, place)
            if place != NO_OFFSET and write.producer_id == NO_PRODUCER_ID:
                self.counts.commits += len(write.offsets)
            self.pay_tombstones(group)

        self._append(
            group,
            batch,
            on_settled,
            lambda error: on_stored(STORE_OFFSETS_ERRORS.get(error, error)),
        )

    def _append(
        self, group: Group, batch: bytes, on_settled: Callable[[int], object], on_answer: OnStored
    ) -> None:
        if self._groups.get(group.group_id) is not group:  # another broker has it, or had it since
            on_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        partition = self.log.partition_for(group.group_id)
        self._writer.append(partition, batch, on_settled, on_answer)

    def _add_classic_group(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._clock.now_ms())
        self._add(group)
        return group

    def _add(self, group: Group) -> None:
        self._groups[group.group_id] = group
        self._ids[self.log.partition_for(group.group_id)][group.group_id] = None

    def _forget(self, group: Group) -> None:
        del self._groups[group.group_id]
        self._ids[self.log.partition_for(group.group_id)].pop(group.group_id, None)
        self.drops.forget((group.group_id,))
        group.die(self._clock.now_ms())
