"""Committing offsets to a group, and looking them up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import (
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    Group,
    GroupState,
    check_member,
)
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.offsets import OffsetAndMetadata
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.coordinator.transaction.transaction_coordinator import TxnProducer
from ottla.errors import ErrorCode
from ottla.runtime import Clock
from ottla.structs import TopicPartition

OnCommitted = Callable[[Mapping[TopicPartition, ErrorCode]], object]

NO_GENERATION = -1


class Committer(NamedTuple):
    """The sender of a commit: a member in its generation, or, without both, a simple consumer.

    In a consumer group the generation is a member epoch. Members of the consumer protocol cannot
    use OffsetCommit before v9, which has no error for a stale epoch (`knows_epochs` is False).
    """

    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    knows_epochs: bool = True

    @property
    def claims_membership(self) -> bool:
        """Whether the sender claims to be a member."""
        return (
            self.generation_id >= 0
            or self.member_id != UNKNOWN_MEMBER_ID
            or self.group_instance_id is not None
        )


NOBODY = Committer()


class OffsetCommits:
    """Decides whether a commit may change the group's offsets."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        rebalancer: Rebalancer,
    ) -> None:
        self._clock = clock
        self._metadata_max_bytes = config.offset_metadata_max_bytes
        self._manager = manager
        self._rebalancer = rebalancer

    def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_committed: OnCommitted,
    ) -> None:
        """Store all offsets or none; only those with too long metadata fail alone."""
        group = self._manager.group(group_id)
        if group is None:
            if committer.generation_id >= 0:
                # Only clients that know epochs understand GROUP_ID_NOT_FOUND.
                unknown = ErrorCode.ILLEGAL_GENERATION
                if committer.knows_epochs:
                    unknown = ErrorCode.GROUP_ID_NOT_FOUND
                on_committed(dict.fromkeys(offsets, unknown))
                return
            group = self._manager.get_or_create_group(group_id)
        error = self._check(group, committer, offsets)
        if error:
            on_committed(dict.fromkeys(offsets, error))
        else:
            self._store(group, offsets, on_committed)
        self._manager.forget_if_unused(group)

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: TxnProducer,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_committed: OnCommitted,
    ) -> None:
        """Store all offsets or none; they count once the producer's transaction is committed.

        A producer that names no member is an old one, which is fenced by its epoch alone (KIP-447).
        A request of a connection that the producer has since replaced is late, and is refused.
        """
        group = self._manager.group(group_id)
        if group is None:
            if committer.generation_id >= 0:
                on_committed(dict.fromkeys(offsets, ErrorCode.ILLEGAL_GENERATION))
                return
            group = self._manager.get_or_create_group(group_id)
        is_empty = committer.generation_id < 0 and group.is_empty
        error = ErrorCode.NONE
        if not is_empty and committer.claims_membership:
            error = check_generation(group, committer, offsets)
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            error = ErrorCode.ILLEGAL_GENERATION  # TxnOffsetCommit has no error for stale epochs
        if not error and not group.offsets.admit(
            producer.producer_id, producer.producer_epoch, producer.session
        ):
            error = ErrorCode.NOT_COORDINATOR
        if error:
            on_committed(dict.fromkeys(offsets, error))
        else:
            fitting = {p: value for p, value in offsets.items() if self._fits(value)}
            self._manager.store_offsets_in_transaction(
                group, producer, fitting, self._with_misfits(offsets, fitting, on_committed)
            )
        self._manager.forget_if_unused(group)

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets; a group without any, or no group, is not an error."""
        group = self._manager.group(group_id)
        if group is None:
            return dict.fromkeys(partitions or ())
        if partitions is None:
            return dict(group.offsets.all())
        return {partition: group.offsets.get(partition) for partition in partitions}

    def _check(
        self, group: Group, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        if committer.generation_id < 0 and group.is_empty:
            return ErrorCode.NONE
        if not committer.claims_membership:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = check_generation(group, committer, partitions)
        if error:
            return error
        if isinstance(group, ConsumerGroup):
            is_fit = committer.knows_epochs or group.members[committer.member_id].is_classic
            return ErrorCode.NONE if is_fit else ErrorCode.UNSUPPORTED_VERSION
        assert isinstance(group, ClassicGroup)
        self._rebalancer.sessions.restart(group, group.members[committer.member_id])
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            # The sender knows the new generation, but not yet which partitions are its own.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _store(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_committed: OnCommitted,
    ) -> None:
        fitting = {p: value for p, value in offsets.items() if self._fits(value)}
        self._manager.store_offsets(
            group, fitting, self._with_misfits(offsets, fitting, on_committed)
        )

    def _with_misfits(
        self,
        offsets: Iterable[TopicPartition],
        fitting: Iterable[TopicPartition],
        on_committed: OnCommitted,
    ) -> Callable[[ErrorCode], object]:
        """Offsets with too long metadata fail alone; the others share the result of the batch."""

        def on_stored(error: ErrorCode) -> None:
            results = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
            results.update(dict.fromkeys(fitting, error))
            on_committed(results)

        return on_stored

    def _fits(self, value: OffsetAndMetadata) -> bool:
        return len(value.metadata.encode("utf-8", "surrogatepass")) <= self._metadata_max_bytes


def check_generation(
    group: Group, committer: Committer, partitions: Iterable[TopicPartition]
) -> ErrorCode:
    """Whether the committer is a member of the group in its present generation.

    A member of a consumer group that does not know its new epoch yet, as the heartbeat's answer is
    still on its way, may commit partitions that it has had since the old one (KIP-1251).
    """
    if isinstance(group, ConsumerGroup):
        return _check_epoch(group, committer, partitions)
    assert isinstance(group, ClassicGroup)
    error = check_member(group, committer.member_id, committer.group_instance_id)
    if not error and committer.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def check_reader(group: Group | None, reader: Committer) -> ErrorCode:
    """Members of consumer groups must name their present epoch; all others may always read."""
    if not isinstance(group, ConsumerGroup) or not reader.claims_membership:
        return ErrorCode.NONE
    return _check_epoch(group, reader, None)


def _check_epoch(
    group: ConsumerGroup, committer: Committer, committed: Iterable[TopicPartition] | None
) -> ErrorCode:
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    epoch = committer.generation_id
    if epoch == member.current.member_epoch:
        return ErrorCode.NONE
    if member.is_classic:
        return ErrorCode.ILLEGAL_GENERATION
    if committed is not None and all(group.has_had(member, p, epoch) for p in committed):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH
