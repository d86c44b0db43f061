"""What the groups of both protocols have in common: an id, offsets, and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

from ottla.coordinator.group.offsets import GroupOffsets
from ottla.structs import TopicPartition


class GroupType(Enum):
    """The protocols that members of groups speak, as ListGroups names them (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(ABC):
    """A group of either protocol, which keeps committed offsets.

    `subscribed_topics` are those that some member reads, None where that cannot be told.
    """

    type: ClassVar[GroupType]
    protocol_type: str | None
    subscribed_topics: frozenset[str] | None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets()

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
        """Whether nobody is in the group, or about to be, and it keeps no offsets."""
        return self.is_empty and not len(self.offsets) and not self.offsets.has_pending

    @abstractmethod
    def tombstone_keys(self) -> list[bytes]:
        """The keys of the group's records, those of its offsets left out."""

    @abstractmethod
    def die(self, now_ms: int) -> None:
        """The group is forgotten."""

    @abstractmethod
    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Partitions whose offset nobody needs any more (KIP-211)."""
