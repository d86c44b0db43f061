"""What consumers say to each other inside JoinGroup and SyncGroup: subscription and assignment.

Each travels as bytes with an int16 version in front (`encode_versioned`, `decode_versioned`). No
version is flexible. A reader takes the fields that it knows of a newer version.
"""

from __future__ import annotations

from ottla.protocol.message import Message, Struct
from ottla.protocol.types import Array, Bytes, Int32, String, field


class ConsumerProtocolTopicPartition(Struct):
    """Some partitions of one topic."""

    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class ConsumerProtocolSubscription(Message, versions="0-3", reads_newer=True):
    """What a member wants and has.

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
    """What a member gets. All versions look alike."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = field(
        Array(ConsumerProtocolTopicPartition)
    )
    user_data: bytes | None = field(Bytes, nullable="0+")
