"""A group of either protocol: an id, its members, and committed offsets that expire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import ClassVar, Final

from ottla.coordinator.group.member_metadata import UNKNOWN_MEMBER_ID
from ottla.coordinator.group.offsets import GroupOffsets
from ottla.errors import ErrorCode
from ottla.structs import NO_GENERATION, NamedTuple, TopicPartition


class GroupType(Enum):
    """The protocols that members of groups speak, as ListGroups names them (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(ABC):
    """A group of either protocol, which keeps committed offsets.

    `members` are found by their ids. `subscribed_topics` are those that some member reads, None if
    that is unknown.
    """

    type: ClassVar[GroupType]
    members: Mapping[str, object]
    protocol_type: str | None
    subscribed_topics: frozenset[str] | None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets()
        self.is_dying = False
        """Whether its last tombstones are on their way into the log: it waits for these."""

    def __repr__(self) -> str:
        return f"group {self.group_id}"

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state under Kafka's name."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted or change its protocol."""

    @property
    @abstractmethod
    def is_unused(self) -> bool:
        """Whether nothing would be lost if the group were forgotten."""

    @property
    def is_over(self) -> bool:
        """Whether the group has no members, present or pending, and no offsets or open commits."""
        return self.is_over_without(())

    def is_over_without(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether that would be so if the offsets of these partitions were deleted."""
        return self.is_empty and self.offsets.has_nothing_but(partitions)

    @property
    @abstractmethod
    def stored_state(self) -> object:
        """Members and epochs as the log has them; None while the log does not have the present."""

    @abstractmethod
    def tombstone_keys(self) -> list[bytes]:
        """The keys of the group's records, except those of its offsets."""

    @abstractmethod
    def die(self, now_ms: int) -> None:
        """Make the group Dead: its coordinator forgets it."""

    @abstractmethod
    def check_generation(
        self, committer: Committer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Whether the sender is a member in the present generation, and may commit so."""

    @abstractmethod
    def check_reader(self, reader: Committer) -> ErrorCode:
        """Whether the sender may read the committed offsets."""

    @abstractmethod
    def expired_offsets(
        self, now_ms: int, retention_ms: int, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """The partitions whose committed offset has expired (KIP-211)."""


def differences(known: Group | None, replayed: Group | None) -> Iterator[str]:
    """The differences between a group in memory and in a fresh load of the log."""
    if known is not None and replayed is not None:
        before, after = known.stored_state, replayed.stored_state
        if before is not None and before != after:
            yield f"in memory {before}, in the log {after}"
    elif known is None and replayed is not None:
        yield f"only the log has it: {replayed.stored_state}"
    elif known is not None and known.stored_state is not None and not known.is_unused:
        yield f"the log does not have it: {known.stored_state}"
    nothing = GroupOffsets()
    in_memory = nothing if known is None else known.offsets
    in_log = nothing if replayed is None else replayed.offsets
    if in_memory.all() != in_log.all():
        yield f"offsets in memory {in_memory.all()}, in the log {in_log.all()}"
    if in_memory.staged() != in_log.staged():
        yield f"in transactions in memory {in_memory.staged()}, in the log {in_log.staged()}"


class Committer(NamedTuple):
    """The sender of a commit: a member in its generation, or, without both, a simple consumer.

    In a consumer group the generation is a member epoch. `knows_epochs` is False for requests that
    have no error for a stale one: OffsetCommit before v9, and TxnOffsetCommit before v6.
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


MAX_NAME_BYTES: Final = 32767
"""Names are kept in records as strings with an int16 length; flexible requests could carry
longer."""


def is_too_long(name: str | None) -> bool:
    """Whether a name is too long for the records of the offsets topic."""
    return name is not None and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES


def is_valid_group_id(group_id: str, *, may_be_empty: bool) -> bool:
    """Groups without a name have no members, but old clients keep offsets under the empty name."""
    return bool(group_id or may_be_empty) and not is_too_long(group_id)
