"""Fetch (1): read record batches of partitions, as a consumer or as a following replica."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    RecordsData,
    String,
    Uuid,
    field,
)

FIRST_VERSION_OF_CONSUMERS: Final = 4
"""Older versions answer with message sets, and know no aborted transactions."""
FIRST_VERSION_WITH_ZSTD: Final = 10
FIRST_VERSION_WITH_FETCHED_EPOCH: Final = 12
"""The request has the epoch of the last record, and the leader returns where the logs part."""
LAST_VERSION_OF_LEADERS: Final = 10
"""In later versions a consumer names its rack, and followers answer it as well (KIP-392)."""
LAST_VERSION_WITH_NAMES: Final = 12
"""Newer versions name topics by their ids alone (KIP-516)."""
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
"""The replica that fetches is named with its broker epoch (KIP-903)."""
FIRST_VERSION_WITH_LEADERS: Final = 16
"""An error names the leader and its address (KIP-951)."""


class ReplicaState(Struct):
    """The replica that fetches and the epoch of its registration; -1 for a consumer."""

    replica_id: int = field(Int32, default=-1)
    replica_epoch: int = field(Int64, default=-1)


class FetchPartition(Struct):
    """The offset from which one partition is read, and how much of it."""

    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="9+", default=-1, ignorable=True)
    fetch_offset: int = field(Int64)
    last_fetched_epoch: int = field(Int32, versions="12+", default=-1)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(Int32)
    replica_directory_id: UUID = field(Uuid, versions="17+", tag=0, ignorable=True)
    # The default means that the leader sends no new high watermark before its time.
    high_watermark: int = field(Int64, versions="18+", tag=1, default=2**63 - 1, ignorable=True)


class FetchTopic(Struct):
    """The partitions of one topic; the topic goes by its id from v13 on."""

    topic: str = field(String, versions="0-12", ignorable=True)
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    topic: str = field(String, versions="0-12", ignorable=True)
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True)
    partitions: list[int] = field(Array(Int32))


class FetchRequest(Request, api_key=1, flexible="12+"):
    """Answer when `min_bytes` are there, or after `max_wait_ms`.

    v0-1 readers of magic 0 · v2 of magic 1 · v3 order of partitions counts, and max_bytes (KIP-74)
    · v4 of magic 2, isolation level (KIP-98) · v5 log start offset of a follower (KIP-107) · v7
    fetch sessions (KIP-227) · v9 leader epoch (KIP-320) · v10 zstd (KIP-110) · v11 rack (KIP-392)
    · v12 flexible, divergence found by the leader (KIP-595) · v13 topic ids (KIP-516) · v14 tiered
    storage (KIP-405) · v15 replica state in place of replica id (KIP-903) · v17 directory of the
    replica (KIP-853) · v18 high watermark that a replica knows (KIP-1166).
    """

    cluster_id: str | None = field(String, versions="12+", nullable="12+", tag=0, ignorable=True)
    replica_id: int = field(Int32, versions="0-14", default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, versions="15+", tag=1)
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, versions="3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = field(Int8, versions="4+", ignorable=True)
    session_id: int = field(Int32, versions="7+", ignorable=True)
    session_epoch: int = field(Int32, versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), versions="7+")
    rack_id: str = field(String, versions="11+", ignorable=True)


class DivergingEpoch(Struct):
    """Where the leader's log parts from the follower's: the end of the last common epoch."""

    epoch: int = field(Int32, default=-1)
    end_offset: int = field(Int64, default=-1)


class SnapshotId(Struct):
    """The snapshot to fetch in place of records that are gone; metadata quorum only."""

    end_offset: int = field(Int64, default=-1)
    epoch: int = field(Int32, default=-1)


class AbortedTransaction(Struct):
    """A reader of committed records drops this producer's batches up to its abort marker."""

    producer_id: int = field(Int64)
    first_offset: int = field(Int64)


class PartitionData(Struct):
    """The answer for one partition: records, or an error."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    high_watermark: int = field(Int64)
    last_stable_offset: int = field(Int64, versions="4+", default=-1, ignorable=True)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch | None = field(DivergingEpoch, versions="12+", tag=0)
    # A hint, so older versions simply go without it (KIP-951).
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch, versions="12+", tag=1, ignorable=True
    )
    snapshot_id: SnapshotId | None = field(SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction), versions="4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(Int32, versions="11+", default=-1)
    # Null is legal, but Kafka never sends it and librdkafka takes it for a broken response.
    records: RecordsData = field(Records, nullable="0+", default=b"")


class FetchableTopicResponse(Struct):
    """The partitions of one topic."""

    topic: str = field(String, versions="0-12", ignorable=True)
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True)
    partitions: list[PartitionData] = field(Array(PartitionData))


class FetchResponse(Response, api_key=1, flexible="12+"):
    """Records per partition; in a session only of partitions with something new.

    v1 throttle time (KIP-13) · v4 last stable offset, aborted transactions (KIP-98) · v5 log start
    offset (KIP-107) · v7 top-level error and session (KIP-227) · v11 preferred replica (KIP-392) ·
    v12 flexible, diverging epoch (KIP-595) · v13 topic ids (KIP-516) · v16 endpoints (KIP-951).
    """

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    error_code: int = field(Int16, versions="7+", ignorable=True)
    session_id: int = field(Int32, versions="7+")
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="16+", tag=0, ignorable=True
    )
