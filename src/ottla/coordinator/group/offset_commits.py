"""Commits of offsets to a group, in transactions and without, and reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.deletion import OnStored
from ottla.coordinator.group.group import Committer, Group, GroupType
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_requests import MemberRequests
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition, TxnProducer

OnCommitted = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class OffsetCommits:
    """Decides whether a commit may change the group's offsets."""

    def __init__(
        self,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        requests: Mapping[GroupType, MemberRequests[Any]],
    ) -> None:
        self._metadata_max_bytes = config.offset_metadata_max_bytes
        self._manager = manager
        self._requests = requests

    def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        on_committed: OnCommitted,
    ) -> None:
        """Store all offsets or none; only those with too long metadata fail alone."""
        group = self._group(group_id, committer)
        if isinstance(group, ErrorCode):
            on_committed(dict.fromkeys(offsets, group))
            return
        error = self._check(group, committer, offsets)
        store = partial(self._manager.store_offsets, group)
        self._store(group, offsets, error, store, on_committed)

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: TxnProducer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        on_committed: OnCommitted,
    ) -> None:
        """Store all offsets or none; they count once the producer's transaction is committed.

        A producer that names no member is an old one, which is fenced by its epoch alone (KIP-447).
        A request of a connection that the producer has since replaced is late, and is refused.
        """
        group = self._group(group_id, committer)
        if isinstance(group, ErrorCode):
            on_committed(dict.fromkeys(offsets, group))
            return
        is_empty = committer.generation_id < 0 and group.is_empty
        error = ErrorCode.NONE
        if not is_empty and committer.claims_membership:
            error = group.check_generation(committer, offsets)
        if error is ErrorCode.STALE_MEMBER_EPOCH and not committer.knows_epochs:
            error = ErrorCode.ILLEGAL_GENERATION
        if not error and group.offsets.is_late(producer):
            error = ErrorCode.NOT_COORDINATOR
        store = partial(self._manager.store_offsets_in_transaction, group, producer)
        self._store(group, offsets, error, store, on_committed)

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, CommittedOffset | None]:
        """The committed offsets; a group without any, or no group, is not an error."""
        group = self._manager.group(group_id)
        if group is None:
            return dict.fromkeys(partitions or ())
        committed = group.offsets.current(self._manager.is_deleted, partitions)
        return committed if partitions is None else {p: committed.get(p) for p in partitions}

    def _group(self, group_id: str, committer: Committer) -> Group | ErrorCode:
        """The group, a new one for a sender that is no member; an error if there is none."""
        if self._manager.group(group_id) is not None or committer.generation_id < 0:
            return self._manager.get_or_create_group(group_id)
        # Only clients that know epochs understand GROUP_ID_NOT_FOUND.
        known = committer.knows_epochs
        return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION

    def _check(
        self, group: Group, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        if committer.generation_id < 0 and group.is_empty:
            return ErrorCode.NONE
        if not committer.claims_membership:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._requests[group.type].check_commit(group, committer, partitions)

    def _store(
        self,
        group: Group,
        offsets: Mapping[TopicPartition, CommittedOffset],
        error: ErrorCode,
        store: Callable[[Mapping[TopicPartition, CommittedOffset], OnStored], object],
        on_committed: OnCommitted,
    ) -> None:
        """Offsets with too long metadata fail alone; the others share the result of the batch."""

        def on_stored(error: ErrorCode) -> None:
            results = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
            on_committed(results | dict.fromkeys(fitting, error))

        try:
            if error:
                on_committed(dict.fromkeys(offsets, error))
                return
            fitting = {p: value for p, value in offsets.items() if self._fits(value)}
            store(fitting, on_stored)
        finally:
            self._manager.forget_if_unused(group)

    def _fits(self, value: CommittedOffset) -> bool:
        return len(value.metadata.encode("utf-8", "surrogatepass")) <= self._metadata_max_bytes
