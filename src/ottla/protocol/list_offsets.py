"""ListOffsets (2): the offsets of partitions that belong to timestamps."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Int8, Int16, Int32, Int64, String, field


class ListOffsetsPartition(Struct):
    """A timestamp (or a place such as LATEST_TIMESTAMP) to look up in one partition."""

    partition_index: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="4+", default=-1, ignorable=True)
    timestamp: int = field(Int64)
    max_num_offsets: int = field(Int32, versions="0", default=1)


class ListOffsetsTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition))


class ListOffsetsRequest(Request, api_key=2, flexible="6+"):
    """Look up the first offset whose timestamp is not older.

    v1 one offset in place of a list (KIP-79) · v2 isolation level (KIP-98) · v4 leader epoch
    (KIP-320) · v6 flexible · v7 max timestamp (KIP-734) · v8 local start (KIP-405) · v9 tiered end
    (KIP-1005) · v10 how long tiers may take (KIP-1075) · v11 what waits for a tier (KIP-1023).
    """

    replica_id: int = field(Int32)
    isolation_level: int = field(Int8, versions="2+")
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic))
    timeout_ms: int = field(Int32, versions="10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """The offset of a timestamp, or offset -1 and timestamp -1 if there is none."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    old_style_offsets: list[int] = field(Array(Int64), versions="0")
    timestamp: int = field(Int64, versions="1+", default=-1)
    offset: int = field(Int64, versions="1+", default=-1)
    leader_epoch: int = field(Int32, versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Response, api_key=2, flexible="6+"):
    """One result per partition.

    v0 a list of segment offsets, newest first · v1 offset and timestamp (KIP-79) · v2 throttle time
    · v4 leader epoch (KIP-320) · v5 OFFSET_NOT_AVAILABLE possible (KIP-207) · v6 flexible.
    """

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))
