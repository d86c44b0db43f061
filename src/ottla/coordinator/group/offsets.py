"""The offsets that one group has committed, and the commits that are on their way into the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from uuid import UUID

from ottla.structs import (
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_SESSION,
    NO_UUID,
    NamedTuple,
    TopicPartition,
    TxnProducer,
)


class CommittedOffset(NamedTuple):
    """A committed offset, with the client's metadata beside it.

    `expire_timestamp_ms` is only there when the client named a retention time (OffsetCommit v2-4);
    otherwise offsets.retention.minutes decides, and the group's activity counts (KIP-211).
    `topic_id` is that of the topic at the commit; NO_UUID where it is not known.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: UUID = NO_UUID


class PlacedOffset(NamedTuple):
    """A committed offset, and the log offset of its record."""

    place: int
    value: CommittedOffset


class OffsetsWrite:
    """Offsets on their way into the log, of one producer's transaction if it names a producer.

    `orphans` are those whose topic was deleted meanwhile: they never count.
    """

    __slots__ = ("offsets", "orphans", "producer_id")

    def __init__(
        self, offsets: Mapping[TopicPartition, CommittedOffset], producer_id: int = NO_PRODUCER_ID
    ) -> None:
        self.offsets = offsets
        self.producer_id = producer_id
        self.orphans: set[TopicPartition] = set()


class GroupOffsets:
    """Committed offsets by partition: a function of the log's records, in any order.

    Every record counts by its place in the log: a value does not replace one that stands behind it,
    and a deletion takes the offsets before it, also from open transactions. So it does not matter
    in which order writes are acknowledged, and what a new coordinator reads from the log is what
    this one has. Offsets in a transaction are kept apart, by producer, until it ends; until then
    their partitions' offsets are unstable (KIP-447).
    """

    def __init__(self) -> None:
        self._applied: dict[TopicPartition, PlacedOffset] = {}
        self._staged: dict[int, dict[TopicPartition, PlacedOffset]] = {}
        self._writes: dict[OffsetsWrite, None] = {}
        # The places that writes under way are compared with: deletions, and ends of transactions.
        self._deleted: dict[TopicPartition, int] = {}
        self._ended: dict[int, list[tuple[int, bool]]] = {}
        # By producer id, the epoch and the latest connection of its open transaction.
        self._sessions: dict[int, tuple[int, int]] = {}
        # Of each deletion under way, the partitions that were committed since it began.
        self._committed_since: list[set[TopicPartition]] = []
        self.owed_tombstones: dict[TopicPartition, int] = {}
        """Offsets of deleted topics that the log may have, with the place that is known of them."""

    def __len__(self) -> int:
        return len(self._applied)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._applied

    @property
    def has_pending(self) -> bool:
        """Whether a commit is on its way into the log, or waits for the end of a transaction."""
        return bool(self._writes or self._staged)

    @property
    def open_transactions(self) -> Collection[int]:
        """The producers whose open transactions have offsets of this group."""
        under_way = (write.producer_id for write in self._writes)
        return {*self._staged, *(each for each in under_way if each != NO_PRODUCER_ID)}

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may change the partition's offset."""
        return any(partition in offsets for offsets in self._staged.values()) or any(
            write.producer_id != NO_PRODUCER_ID and partition in write.offsets
            for write in self._writes
        )

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """The committed offset of a partition."""
        applied = self._applied.get(partition)
        return applied.value if applied is not None else None

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        """Every committed offset."""
        return {partition: applied.value for partition, applied in self._applied.items()}

    def current(
        self,
        is_deleted: Callable[[TopicPartition, UUID], bool],
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of these partitions, or of all, in topics that exist.

        An offset in a deleted topic does not count for the next topic of its name. It stays in the
        log: this broker's view of the topic may be older than the commit.
        """
        found = ((p, self.get(p)) for p in (self._applied if partitions is None else partitions))
        return {p: v for p, v in found if v is not None and not is_deleted(p, v.topic_id)}

    def staged(self) -> dict[int, dict[TopicPartition, CommittedOffset]]:
        """The offsets in open transactions that are in the log, by producer."""
        return {
            producer_id: {partition: each.value for partition, each in offsets.items()}
            for producer_id, offsets in self._staged.items()
        }

    def known(self) -> list[TopicPartition]:
        """Every partition that has an offset, or may get one from a write under way."""
        found = list(self._applied)  # a hundred thousand at once in a millisecond
        if self.has_pending:
            found += dict.fromkeys(each for each in self.pending() if each not in self._applied)
        return found

    def pending(self) -> Iterator[TopicPartition]:
        """Each partition of open transactions and writes under way, once for each of them."""
        under_way = (write.offsets for write in self._writes)
        return chain(*self._staged.values(), *under_way)

    def in_pieces(self, most: int) -> Iterator[list[TopicPartition]]:
        """The partitions that have an offset now, so many at a time; an empty list for none."""
        committed = list(self._applied)
        for place in range(0, len(committed) or 1, most):
            yield committed[place : place + most]

    def knows(self, partition: TopicPartition) -> bool:
        """Whether it is one of the known partitions."""
        return partition in self._applied or any(
            partition in offsets
            for offsets in (*self._staged.values(), *(write.offsets for write in self._writes))
        )

    def in_topics(self, topics: Collection[str]) -> list[TopicPartition]:
        """The partitions of these topics; all groups together may have a million others."""
        return [partition for partition in self.known() if partition.topic in topics]

    def give_up(self) -> dict[TopicPartition, PlacedOffset]:
        """Forget all committed offsets, as the group is forgotten; returns what they were kept in.

        A million of them take too long to be freed in one step.
        """
        applied, self._applied = self._applied, {}
        return applied

    def put(self, place: int, partition: TopicPartition, value: CommittedOffset) -> None:
        """The log has a committed offset at this place."""
        if place > self._newest(partition):
            self._applied[partition] = PlacedOffset(place, value)
            self.owed_tombstones.pop(partition, None)

    def stage(
        self, place: int, producer_id: int, partition: TopicPartition, value: CommittedOffset
    ) -> None:
        """The log has an offset in the producer's transaction at this place."""
        for end, is_commit in sorted(self._ended.get(producer_id, ())):
            if place < end:
                if is_commit:
                    self.put(place, partition, value)
                return
        staged = self._staged.get(producer_id, {}).get(partition)
        newest = self._deleted.get(partition, -1) if staged is None else staged.place
        if place > newest:
            self._staged.setdefault(producer_id, {})[partition] = PlacedOffset(place, value)

    def delete(self, place: int, partition: TopicPartition) -> None:
        """The log has a tombstone at this place."""
        if self.owed_tombstones.get(partition, place) < place:
            del self.owed_tombstones[partition]
        if any(partition in write.offsets for write in self._writes):
            self._deleted[partition] = max(place, self._deleted.get(partition, -1))
        applied = self._applied.get(partition)
        if applied is not None and applied.place < place:
            del self._applied[partition]
        for producer_id, staged in list(self._staged.items()):
            if partition in staged and staged[partition].place < place:
                self._unstage(producer_id, partition)
        self._forget_ended()

    def end_transaction(self, place: int, producer_id: int, commit: bool) -> None:
        """The log has the producer's marker at this place: the transaction before it has ended."""
        if any(write.producer_id == producer_id for write in self._writes):
            self._ended.setdefault(producer_id, []).append((place, commit))
        for partition, staged in list(self._staged.get(producer_id, {}).items()):
            if staged.place < place:
                self._unstage(producer_id, partition)
                if commit:
                    self.put(staged.place, partition, staged.value)
        self._forget_ended()

    def begin(self, write: OffsetsWrite) -> OffsetsWrite:
        """These offsets are going to be written."""
        self._writes[write] = None
        for committed in self._committed_since:
            committed.update(write.offsets)
        return write

    def begin_deletion(self) -> set[TopicPartition]:
        """The partitions that will have been committed since now, until `end_deletion`."""
        committed: set[TopicPartition] = set()
        self._committed_since.append(committed)
        return committed

    def end_deletion(self, committed: set[TopicPartition]) -> None:
        """The deletion that began with this set is over."""
        self._committed_since = [each for each in self._committed_since if each is not committed]

    def settle(self, write: OffsetsWrite, base_offset: int) -> None:
        """The write is in the log from `base_offset` on, or, with NO_OFFSET, will never be."""
        self._writes.pop(write, None)
        if base_offset != NO_OFFSET:
            for place, (partition, value) in enumerate(write.offsets.items(), base_offset):
                if partition in write.orphans:
                    if place > self._deleted.get(partition, -1):
                        self.owed_tombstones[partition] = place
                elif write.producer_id == NO_PRODUCER_ID:
                    self.put(place, partition, value)
                else:
                    self.stage(place, write.producer_id, partition, value)
        self._forget_ended()

    def is_late(self, producer: TxnProducer) -> bool:
        """Whether a newer connection of the producer has committed in its open transaction."""
        epoch, latest = self._sessions.get(producer.producer_id, (NO_EPOCH, NO_SESSION))
        return epoch == producer.producer_epoch and producer.session < latest

    def begin_in_transaction(
        self, producer: TxnProducer, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> OffsetsWrite:
        """These offsets are going to be written, and count when the transaction is committed."""
        self._sessions[producer.producer_id] = producer.producer_epoch, producer.session
        return self.begin(OffsetsWrite(offsets, producer.producer_id))

    def remove_deleted(self, gone: Collection[TopicPartition]) -> None:
        """Forget all offsets in deleted topics, and writes under way; the log owes tombstones."""
        if not gone:
            return
        self.owed_tombstones.update(dict.fromkeys(gone, -1))
        for write in self._writes:
            write.orphans.update(partition for partition in gone if partition in write.offsets)
        for partition in gone:
            self._applied.pop(partition, None)
            for producer_id in list(self._staged):
                self._unstage(producer_id, partition)
        self._forget_ended()

    def has_nothing_but(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the log would have no offset of the group without those of these partitions."""
        if self._writes or len(self._applied) > len(partitions):
            return False
        kept = chain(self._applied, self.owed_tombstones, *self._staged.values())
        return all(map(frozenset(partitions).__contains__, kept))

    def payable_tombstones(self) -> Iterator[TopicPartition]:
        """The tombstones that can be written now and hit no offset of a new topic of the name."""
        taken = {partition for offsets in self._staged.values() for partition in offsets}
        for write in self._writes:
            taken |= write.offsets.keys() - write.orphans
        return (partition for partition in self.owed_tombstones if partition not in taken)

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        idle_since_ms: Callable[[CommittedOffset], int],
        partitions: Iterable[TopicPartition],
        subscribed_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """The partitions whose offset has expired, by the rules of KIP-211."""

        def is_expired(value: CommittedOffset) -> bool:
            if value.expire_timestamp_ms is not None:
                return now_ms >= value.expire_timestamp_ms
            return now_ms - idle_since_ms(value) >= retention_ms

        pending = {partition for write in self._writes for partition in write.offsets}
        pending.update(*self._staged.values())
        return [
            partition
            for partition in partitions
            if partition.topic not in subscribed_topics
            and partition not in pending
            and (value := self.get(partition)) is not None
            and is_expired(value)
        ]

    def _newest(self, partition: TopicPartition) -> int:
        """The place of the newest record of the partition, as far as one can still be older."""
        applied = self._applied.get(partition)
        deleted = self._deleted.get(partition, -1)
        return deleted if applied is None else max(applied.place, deleted)

    def _unstage(self, producer_id: int, partition: TopicPartition) -> None:
        staged = self._staged[producer_id]
        staged.pop(partition, None)
        if not staged:
            del self._staged[producer_id]

    def _forget_ended(self) -> None:
        """Keep only the places for comparison with writes under way, and open transactions."""
        if self._deleted:
            under_way = {partition for write in self._writes for partition in write.offsets}
            self._deleted = {p: place for p, place in self._deleted.items() if p in under_way}
        if self._ended:
            writing = {write.producer_id for write in self._writes}
            self._ended = {each: ends for each, ends in self._ended.items() if each in writing}
        if self._sessions:
            open_ = self.open_transactions
            self._sessions = {each: last for each, last in self._sessions.items() if each in open_}
