"""Produce (0): append record batches to partitions."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import (
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    RecordsData,
    String,
    Uuid,
    field,
)

FIRST_VERSION_WITH_BATCHES: Final = 3
"""Older ones carry message sets, of magic 0 or 1 (KIP-98)."""
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_LEADERS: Final = 10
FIRST_VERSION_WITH_ABORTABLE: Final = 11
"""It may be answered with TRANSACTION_ABORTABLE (KIP-890)."""
FIRST_VERSION_THAT_ADDS: Final = 12
"""It takes the partition into the transaction (KIP-890)."""
FIRST_VERSION_WITH_IDS: Final = 13
"""It has the ids of topics in the place of their names (KIP-516)."""


class PartitionProduceData(Struct):
    """The record batches for one partition."""

    index: int = field(Int32)
    records: RecordsData = field(Records, nullable="0+")


class TopicProduceData(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-12", ignorable=True)
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


class ProduceRequest(Request, api_key=0, flexible="9+"):
    """Append, and answer when `acks` replicas have it (0: never, 1: the leader, -1: the ISR).

    v0-1 magic 0 · v2 magic 1 (KIP-32) · v3 magic 2 and transactions (KIP-98) · v7 zstd (KIP-110)
    · v9 flexible · v11 may be answered with TRANSACTION_ABORTABLE · v12 takes
    partitions into the transaction (KIP-890) · v13 topic ids (KIP-516).
    """

    transactional_id: str | None = field(String, versions="3+", nullable="3+")
    acks: int = field(Int16)
    timeout_ms: int = field(Int32)
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch unacceptable, by its place in the batch."""

    batch_index: int = field(Int32)
    batch_index_error_message: str | None = field(String, nullable="0+")


class LeaderIdAndEpoch(Struct):
    """The partition's current leader, for a client that asked the wrong broker."""

    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)


class PartitionProduceResponse(Struct):
    """Where the batch went. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    index: int = field(Int32)
    error_code: int = field(Int16)
    base_offset: int = field(Int64)
    log_append_time_ms: int = field(Int64, versions="2+", default=-1, ignorable=True)
    log_start_offset: int = field(Int64, versions="5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        Array(BatchIndexAndErrorMessage), versions="8+", ignorable=True
    )
    error_message: str | None = field(String, versions="8+", nullable="8+", ignorable=True)
    # A hint, so older versions simply go without it (KIP-951).
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch, versions="10+", tag=0, ignorable=True
    )


class TopicProduceResponse(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-12", ignorable=True)
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    """Where a leader named in the response listens."""

    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+")


class ProduceResponse(Response, api_key=0, flexible="9+"):
    """One result per partition. With acks=0 there is no response at all.

    v1 throttle time (KIP-13) · v2 log append time (KIP-32) · v5 log start offset (KIP-207) · v8
    record errors (KIP-467) · v9 flexible · v10 current leaders (KIP-951) · v13 topic ids
    (KIP-516).
    """

    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="10+", tag=0, ignorable=True
    )
