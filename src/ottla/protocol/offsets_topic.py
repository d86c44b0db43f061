"""What the records of `__consumer_offsets` hold: keys and values of commits and of groups.

Each is stored with an int16 version in front. A record with a null value deletes its key.
"""

from __future__ import annotations

from ottla.protocol.message import Message, Struct, decode_versioned
from ottla.protocol.types import Array, Buffer, Bytes, Int32, Int64, String, field


class OffsetCommitKey(Message, versions="0-1"):
    """The key of a committed offset; both versions look alike and 1 is written."""

    group: str = field(String)
    topic: str = field(String)
    partition: int = field(Int32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset.

    v1 is written only where a client set its own retention, of which v2 took the expiry away again
    · v3 leader epoch (KIP-320) · v4 flexible (KIP-915). v3 is written, as 3.9 does.
    """

    offset: int = field(Int64)
    leader_epoch: int = field(Int32, versions="3+", default=-1, ignorable=True)
    metadata: str = field(String)
    commit_timestamp: int = field(Int64)
    expire_timestamp: int = field(Int64, versions="1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """The key of a group of the classic protocol."""

    group: str = field(String)


class MemberMetadata(Struct):
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
    members: list[MemberMetadata] = field(Array(MemberMetadata))


def decode_key(buffer: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """The key of a record; None if its version is of a kind that is not known here."""
    version = int.from_bytes(bytes(buffer[:2]), "big", signed=True)
    if version in OffsetCommitKey.versions:
        return decode_versioned(OffsetCommitKey, buffer)
    if version in GroupMetadataKey.versions:
        return decode_versioned(GroupMetadataKey, buffer)
    return None
