"""The offsets that one group has committed, and the commits that are on their way into the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry, create_or_set, ensure_path
from ottla.registry.znodes import decode_offset, encode_offset
from ottla.structs import NO_EPOCH, TopicPartition


class CommittedOffset(NamedTuple):
    """A committed offset, with what the client wanted to be kept beside it.

    `expire_timestamp_ms` is only there when the client named a retention time (OffsetCommit v2-4);
    otherwise offsets.retention.minutes decides, and the group's activity counts (KIP-211).
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None


class _Applied(NamedTuple):
    sequence: int
    value: CommittedOffset


class GroupOffsets:
    """Committed offsets by partition.

    A commit is prepared before it is written to the log and completed when all in-sync replicas
    have it. Commits may complete in another order than they were written; the one written later
    wins, as it does when the log is read again. Offsets in a transaction are kept apart, by
    producer, until it ends; until then their partitions' offsets are unstable (KIP-447).
    """

    def __init__(self) -> None:
        self._applied: dict[TopicPartition, _Applied] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._transactions: dict[int, dict[TopicPartition, _Applied]] = {}
        # By producer id, the epoch and the latest connection of commits in transactions.
        self._sessions: dict[int, tuple[int, int]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._applied)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._applied

    @property
    def has_pending(self) -> bool:
        """Whether a commit is on its way into the log, or waits for the end of a transaction."""
        return bool(self._pending or self._transactions)

    @property
    def open_transactions(self) -> Collection[int]:
        """The producers whose open transactions have offsets of this group."""
        return self._transactions.keys()

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may change the partition's offset."""
        return any(partition in offsets for offsets in self._transactions.values())

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """The committed offset of a partition."""
        applied = self._applied.get(partition)
        return applied.value if applied is not None else None

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        """Every committed offset."""
        return {partition: applied.value for partition, applied in self._applied.items()}

    def load(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Take over what was read from the log."""
        for partition, value in offsets.items():
            self._applied[partition] = _Applied(self._sequence, value)

    def prepare(self, partitions: Iterable[TopicPartition]) -> int:
        """Begin a commit; its number is needed to complete it or to give it up."""
        self._sequence += 1
        for partition in partitions:
            self._pending[partition] = self._sequence
        return self._sequence

    def complete(self, sequence: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The commit is in the log: it counts, unless a later one counts already."""
        self.give_up(sequence, offsets)
        for partition, value in offsets.items():
            applied = self._applied.get(partition)
            if applied is None or applied.sequence < sequence:
                self._applied[partition] = _Applied(sequence, value)

    def give_up(self, sequence: int, partitions: Iterable[TopicPartition]) -> None:
        """The commit is no longer on its way."""
        for partition in partitions:
            if self._pending.get(partition) == sequence:
                del self._pending[partition]

    # -- transactions

    def admit(self, producer_id: int, producer_epoch: int, session: int) -> bool:
        """Whether no newer connection of the producer has committed; if so, note this one."""
        epoch, latest = self._sessions.get(producer_id, (producer_epoch, session))
        if epoch == producer_epoch and session < latest:
            return False
        self._sessions[producer_id] = producer_epoch, session
        return True

    def prepare_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> int:
        """Begin a commit that counts when the producer's transaction does; returns its number."""
        self._sequence += 1
        waiting = self._transactions.setdefault(producer_id, {})
        for partition, value in offsets.items():
            waiting[partition] = _Applied(self._sequence, value)
        return self._sequence

    def give_up_in_transaction(
        self, producer_id: int, sequence: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """The commit did not get into the log."""
        waiting = self._transactions.get(producer_id, {})
        for partition in partitions:
            if partition in waiting and waiting[partition].sequence == sequence:
                del waiting[partition]
        if not waiting:
            self._transactions.pop(producer_id, None)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The producer's marker is in the log: its offsets count, or are forgotten."""
        for partition, waiting in self._transactions.pop(producer_id, {}).items():
            applied = self._applied.get(partition)
            if commit and (applied is None or applied.sequence < waiting.sequence):
                self._applied[partition] = waiting

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets that were deleted or have expired."""
        for partition in partitions:
            self._applied.pop(partition, None)

    def remove_topics(self, topics: Collection[str]) -> list[TopicPartition]:
        """Forget all offsets of deleted topics; returns the partitions that had committed ones."""
        for waiting in self._transactions.values():
            for partition in [key for key in waiting if key.topic in topics]:
                del waiting[partition]
        gone = [partition for partition in self._applied if partition.topic in topics]
        self.remove(gone)
        return gone

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        idle_since_ms: Callable[[CommittedOffset], int],
        subscribed_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Partitions whose offset has expired, by the rules of KIP-211."""

        def is_expired(value: CommittedOffset) -> bool:
            if value.expire_timestamp_ms is not None:
                return now_ms >= value.expire_timestamp_ms
            return now_ms - idle_since_ms(value) >= retention_ms

        return [
            partition
            for partition, applied in self._applied.items()
            if partition.topic not in subscribed_topics
            and partition not in self._pending
            and not self.is_unstable(partition)
            and is_expired(applied.value)
        ]


class RegistryOffsets:
    """Offsets as Kafka 0.8 kept them: a number at /consumers/[group]/offsets/[topic]/[partition].

    Only versions 0 of OffsetCommit and OffsetFetch write and read them.
    """

    def __init__(self, registry: Registry, metadata_max_bytes: int) -> None:
        self.registry = registry
        self.metadata_max_bytes = metadata_max_bytes

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        """Write each offset; its metadata must not be too long, and is not kept."""
        if not group or "/" in group:
            return dict.fromkeys(offsets, ErrorCode.INVALID_GROUP_ID)
        return {
            partition: await self._write(group, partition, offsets[partition])
            for partition in offsets
        }

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError | None]:
        """The offset of each partition, None where there is none, or why it cannot be read."""
        if not group or "/" in group:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.INVALID_GROUP_ID))
        found = await asyncio.gather(*(self._read(group, each) for each in partitions))
        return dict(zip(partitions, found, strict=True))

    async def _write(
        self, group: str, partition: TopicPartition, offset: CommittedOffset
    ) -> ErrorCode:
        if len(offset.metadata.encode("utf-8", "surrogatepass")) > self.metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        path = paths.group_offset(group, *partition)
        try:
            await ensure_path(self.registry, paths.group_offsets(group, partition.topic))
            await create_or_set(self.registry, path, encode_offset(offset.offset))
        except KafkaError as error:
            return error.error
        return ErrorCode.NONE

    async def _read(self, group: str, partition: TopicPartition) -> int | KafkaError | None:
        path = paths.group_offset(group, *partition)
        try:
            data, _ = await self.registry.get(path)
            return decode_offset(path, data)
        except NoNodeError:
            return None
        except KafkaError as error:
            return error
