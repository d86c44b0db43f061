"""OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47): how far a group has got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int16, Int32, Int64, String, Uuid, field

if TYPE_CHECKING:
    from uuid import UUID


class OffsetCommitRequestPartition(Struct):
    """The offset of the next record to read, with a note of the consumer's own."""

    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="6+", default=-1, ignorable=True)
    commit_timestamp: int = field(Int64, versions="1", default=-1)
    committed_metadata: str | None = field(String, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Request, api_key=8, flexible="8+"):
    """Commit offsets as a member of a group, or with generation -1 without being one.

    v0 was kept in ZooKeeper · v1 generation, member and timestamp · v2-4 retention in place of the
    timestamp · v5 neither (KIP-211) · v6 leader epoch (KIP-320) · v7 static members (KIP-345) · v8
    flexible · v9 the generation may be a member epoch · v10 topics by id (both KIP-848).
    """

    group_id: str = field(String)
    generation_id_or_member_epoch: int = field(Int32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(String, versions="1+", ignorable=True)
    group_instance_id: str | None = field(String, versions="7+", nullable="7+")
    retention_time_ms: int = field(Int64, versions="2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    """Whether the offset of one partition was kept."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Response, api_key=8, flexible="8+"):
    """One result per partition.

    v3 throttle time · v8 flexible · v9 new errors · v10 topics by id (both KIP-848).
    """

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic to look up (v0-7)."""

    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic to look up for one group (v8+)."""

    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    partition_indexes: list[int] = field(Array(Int32))


class OffsetFetchRequestGroup(Struct):
    """The partitions to look up for one group: null topics ask for all."""

    group_id: str = field(String)
    member_id: str | None = field(String, versions="9+", nullable="9+", ignorable=True)
    member_epoch: int = field(Int32, versions="9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        Array(OffsetFetchRequestTopics), nullable="0+"
    )


FETCH_ERROR_VERSION: Final = 2
"""The first version of OffsetFetch with an error of the whole request."""
FETCH_GROUPS_VERSION: Final = 8
"""The first version of OffsetFetch that asks for several groups."""
TOPIC_IDS_VERSION: Final = 10
"""The first version of OffsetCommit, and of OffsetFetch, that has the ids of topics, not names."""


class OffsetFetchRequest(Request, api_key=9, flexible="6+"):
    """Look up committed offsets.

    v0 was kept in ZooKeeper · v2 null topics ask for all (KIP-88) · v6 flexible · v7 only offsets
    of finished transactions (KIP-447) · v8 several groups (KIP-709) · v9 member epoch · v10 topics
    by id (both KIP-848).
    """

    group_id: str = field(String, versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        Array(OffsetFetchRequestTopic), versions="0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), versions="8+")
    require_stable: bool = field(Boolean, versions="7+")


class OffsetFetchResponsePartition(Struct):
    """The committed offset, or offset -1 (v0-7)."""

    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="5+", default=-1, ignorable=True)
    metadata: str | None = field(String, nullable="0+")
    error_code: int = field(Int16)


class OffsetFetchResponseTopic(Struct):
    """The partitions of one topic (v0-7)."""

    name: str = field(String)
    partitions: list[OffsetFetchResponsePartition] = field(Array(OffsetFetchResponsePartition))


class OffsetFetchResponsePartitions(Struct):
    """The committed offset, or offset -1 (v8+)."""

    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, default=-1)
    metadata: str | None = field(String, nullable="0+")
    error_code: int = field(Int16)


class OffsetFetchResponseTopics(Struct):
    """The partitions of one topic (v8+)."""

    name: str = field(String, versions="0-9", ignorable=True)
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(Array(OffsetFetchResponsePartitions))


class OffsetFetchResponseGroup(Struct):
    """The offsets of one group."""

    group_id: str = field(String)
    topics: list[OffsetFetchResponseTopics] = field(Array(OffsetFetchResponseTopics))
    error_code: int = field(Int16)


class OffsetFetchResponse(Response, api_key=9, flexible="6+"):
    """The offsets, from v8 on by group.

    v2 top-level error (KIP-88) · v3 throttle time · v5 leader epoch (KIP-320) · v6 flexible · v7
    UNSTABLE_OFFSET_COMMIT possible (KIP-447) · v8 groups (KIP-709) · v10 topics by id (KIP-848).
    """

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), versions="0-7")
    error_code: int = field(Int16, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), versions="8+")


class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset must be deleted."""

    partition_index: int = field(Int32)


class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Request, api_key=47):
    """Forget committed offsets of topics that the group no longer reads (KIP-496)."""

    group_id: str = field(String)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    """Whether the offset of one partition is forgotten."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class OffsetDeleteResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Response, api_key=47):
    """One result per partition, or an error for the whole group."""

    error_code: int = field(Int16)
    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
