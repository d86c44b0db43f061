"""Records of `__consumer_offsets`: keys and values of commits and of groups.

Each is stored with an int16 version in front. A record with a null value deletes its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Message, Struct, decode_versioned
from ottla.protocol.types import Array, Buffer, Bytes, Int8, Int32, Int64, String, Uuid, field
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


class OffsetCommitKey(Message, versions="0-1"):
    """The key of a committed offset; both versions look alike and 1 is written."""

    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset.

    v1 is written only where a client set its own retention; v2 removed its expiry timestamp again
    · v3 leader epoch (KIP-320) · v4 flexible (KIP-915), with the topic id that Kafka 4.1 added.
    v4 is written where the id is known, else v3.
    """

    offset: int = field(Int64)
    leader_epoch: int = field(Int32, versions="3+", default=-1, ignorable=True)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    expire_timestamp: int = field(Int64, versions="1", default=-1, ignorable=True)
    topic_id: UUID = field(Uuid, versions="4+", tag=0, default=NO_UUID, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """The key of a group of the classic protocol."""

    group: str = field(String)


class StoredMember(Struct):
    """A member of a group as it is stored."""

    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", ignorable=True)
    client_id: str = field(String)
    client_host: str = field(String)
    rebalance_timeout: int = field(Int32, versions="1+", default=-1, ignorable=True)
    session_timeout: int = field(Int32)
    subscription: bytes = field(Bytes)
    assignment: bytes = field(Bytes)


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A group of the classic protocol.

    v1 rebalance timeout (KIP-62) · v2 time of the last change of state (KIP-211) · v3 instance ids
    (KIP-345) · v4 flexible (KIP-915). v3 is written, as 3.9 does.
    """

    protocol_type: str = field(String)
    generation: int = field(Int32)
    protocol: str | None = field(String, nullable="0+")
    leader: str | None = field(String, nullable="0+")
    current_state_timestamp: int = field(Int64, versions="2+", default=-1, ignorable=True)
    members: list[StoredMember] = field(Array(StoredMember))


class ConsumerGroupMetadataKey(Message, versions="3"):
    """The key of a consumer group's epoch (KIP-848)."""

    group: str = field(String)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of a consumer group: each change of members, subscriptions or topics raises it."""

    epoch: int = field(Int32)


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    """The key of the topics that a consumer group reads."""

    group: str = field(String)


class StoredRacks(Struct):
    """The racks of one partition's replicas; Kafka 4 leaves them out."""

    partition: int = field(Int32)
    racks: list[str] = field(Array(String))


class StoredTopic(Struct):
    """A topic as the group knows it."""

    topic_id: UUID = field(Uuid)
    topic_name: str = field(String)
    partition_count: int = field(Int32)
    partition_metadata: list[StoredRacks] = field(Array(StoredRacks))


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The topics that a consumer group reads, with the partitions they had then."""

    topics: list[StoredTopic] = field(Array(StoredTopic))


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    """The key of a member of a consumer group."""

    group: str = field(String)
    member_id: str = field(String)


class StoredClassicProtocol(Struct):
    """An assignor that a member of the classic protocol offers."""

    name: str = field(String)
    metadata: bytes = field(Bytes)


class ClassicMemberMetadata(Struct):
    """The metadata that only members of the classic protocol have."""

    session_timeout_ms: int = field(Int32)
    supported_protocols: list[StoredClassicProtocol] = field(Array(StoredClassicProtocol))


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """The identity of a member and its subscription."""

    instance_id: str | None = field(String, nullable="0+")
    rack_id: str | None = field(String, nullable="0+")
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+")
    rebalance_timeout_ms: int = field(Int32, default=-1)
    server_assignor: str | None = field(String, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    """The key of a consumer group's assignment epoch."""

    group: str = field(String)


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """The group epoch that the target assignment was made for."""

    assignment_epoch: int = field(Int32)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    """The key of a member's target assignment."""

    group: str = field(String)
    member_id: str = field(String)


class StoredTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """The partitions that a member is going to read."""

    topic_partitions: list[StoredTopicPartitions] = field(Array(StoredTopicPartitions))


class StoredOwnedPartitions(Struct):
    """Partitions of one topic that a member has, each since an epoch of its own (KIP-1251)."""

    topic_id: UUID = field(Uuid)
    partitions: list[int] = field(Array(Int32))
    assignment_epochs: list[int] | None = field(Array(Int32), nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    """The key of a member's current assignment."""

    group: str = field(String)
    member_id: str = field(String)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """How far a member is on its way to its target assignment."""

    member_epoch: int = field(Int32)
    previous_member_epoch: int = field(Int32)
    state: int = field(Int8)
    assigned_partitions: list[StoredOwnedPartitions] = field(Array(StoredOwnedPartitions))
    partitions_pending_revocation: list[StoredOwnedPartitions] = field(Array(StoredOwnedPartitions))


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    """The key of a regular expression that members of a consumer group subscribe to."""

    group: str = field(String)
    regular_expression: str = field(String)


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    """The topics that a regular expression stood for when it was last looked at."""

    topics: list[str] = field(Array(String))
    version: int = field(Int64)
    timestamp: int = field(Int64)


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
Key = OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey

KEYS: Final[Mapping[int, type[Key]]] = {
    version: cls
    for cls in (
        OffsetCommitKey,
        GroupMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    )
    for version in range(cls.min_version, cls.max_version + 1)
}
"""The kinds of keys, by the version in front of a key."""

VALUES: Final[Mapping[type[Message], type[Message]]] = {
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
"""The values of records, by the kind of their key."""


def decode_key(buffer: Buffer) -> Key | None:
    """The key of a record; None if its version is of a kind that is not known here."""
    version = int.from_bytes(bytes(buffer[:2]), "big", signed=True)
    cls = KEYS.get(version)
    return None if cls is None else decode_versioned(cls, buffer)
