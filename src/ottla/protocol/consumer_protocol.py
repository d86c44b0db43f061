"""The consumer protocol inside JoinGroup and SyncGroup: subscription and assignment.

Each travels as bytes with an int16 version in front, which a classic coordinator passes on unread.
No version is flexible. A reader takes the fields that it knows of a newer version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.protocol.message import Message, Struct, decode_versioned, encode_versioned
from ottla.protocol.types import Array, Buffer, Bytes, Int32, String, field
from ottla.structs import TopicPartition, by_topic

SUBSCRIPTION_VERSION: Final = 2
ASSIGNMENT_VERSION: Final = 1


class ConsumerProtocolTopicPartition(Struct):
    """Some partitions of one topic."""

    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class ConsumerProtocolSubscription(Message, versions="0-3", reads_newer=True):
    """The subscription of a member, and the partitions that it owns.

    v1 owned partitions (KIP-429) · v2 generation in which they were assigned (KIP-792) · v3 rack
    (KIP-881).
    """

    topics: list[str] = field(Array(String))
    user_data: bytes | None = field(Bytes, nullable="0+")
    owned_partitions: list[ConsumerProtocolTopicPartition] = field(
        Array(ConsumerProtocolTopicPartition), versions="1+", ignorable=True
    )
    generation_id: int = field(Int32, versions="2+", default=-1, ignorable=True)
    rack_id: str | None = field(String, versions="3+", nullable="3+", ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", reads_newer=True):
    """The assignment of a member. All versions look alike."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = field(
        Array(ConsumerProtocolTopicPartition)
    )
    user_data: bytes | None = field(Bytes, nullable="0+")


def encode_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation_id: int,
    user_data: bytes | None,
) -> bytes:
    """The topics that a member subscribes to, and the partitions that it owned in a generation."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=_topics_of(owned),
            generation_id=generation_id,
        ),
        SUBSCRIPTION_VERSION,
    )


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """A subscription; ProtocolError if the bytes are of another kind."""
    return decode_versioned(ConsumerProtocolSubscription, data)


def encode_assignment(
    partitions: Iterable[TopicPartition], version: int = ASSIGNMENT_VERSION
) -> bytes:
    """The partitions that a member is assigned, in the newest version up to `version`."""
    assignment = ConsumerProtocolAssignment(assigned_partitions=_topics_of(partitions))
    return encode_versioned(assignment, assignment_version(version))


def assignment_version(version: int) -> int:
    """The version of an assignment for a member whose subscription has this one."""
    return max(0, min(version, ConsumerProtocolAssignment.max_version))


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """An assignment; ProtocolError if the bytes are of another kind."""
    return decode_versioned(ConsumerProtocolAssignment, data)


def partitions_of(topics: Iterable[ConsumerProtocolTopicPartition]) -> list[TopicPartition]:
    """The partitions, one by one."""
    return [TopicPartition(topic.topic, p) for topic in topics for p in topic.partitions]


def _topics_of(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolTopicPartition]:
    return [
        ConsumerProtocolTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
