"""OffsetForLeaderEpoch (23): where the records of a leader epoch end."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Int16, Int32, Int64, String, field


class OffsetForLeaderPartition(Struct):
    """The epoch of the sender's last record of one partition."""

    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="2+", default=-1, ignorable=True)
    leader_epoch: int = field(Int32)


class OffsetForLeaderTopic(Struct):
    """The partitions of one topic."""

    topic: str = field(String)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Request, api_key=23, flexible="4+"):
    """Ask a leader where epochs end (KIP-101).

    v2 the current epoch as the sender knows it (KIP-320) · v3 replica id · v4 flexible.
    """

    replica_id: int = field(Int32, versions="3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    """The last epoch up to the one asked for, and the offset after its last record; or -1."""

    error_code: int = field(Int16)
    partition: int = field(Int32)
    leader_epoch: int = field(Int32, versions="1+", default=-1, ignorable=True)
    end_offset: int = field(Int64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    """The partitions of one topic."""

    topic: str = field(String)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Response, api_key=23, flexible="4+"):
    """One end for each partition. v1 epoch (KIP-279) · v2 throttle time · v4 flexible."""

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))
