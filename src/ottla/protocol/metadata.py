"""Metadata (3) and DescribeTopicPartitions (75): brokers, topics and leaders of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int16, Int32, String, Uuid, field

if TYPE_CHECKING:
    from uuid import UUID

# The value of the authorized-operations fields when the client did not ask for them (KIP-430).
OPERATIONS_NOT_REQUESTED: Final = -0x80000000


class MetadataRequestTopic(Struct):
    """A topic by name, or from v12 on by id with a null name."""

    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    name: str | None = field(String, nullable="10+")


FIRST_VERSION_WITH_CREATION_FLAG: Final = 4
"""Earlier requests for metadata create topics as the broker is set up to."""


class MetadataRequest(Request, api_key=3, flexible="9+"):
    """Ask about some topics, or about all: null topics, or in v0 an empty list.

    librdkafka writes null topics of a flexible version in four bytes instead of one. The last three
    are then read as the other fields, and the bytes after them are left over.

    v4 automatic creation may be declined (KIP-204) · v8 authorized operations (KIP-430) · v9
    flexible · v10 topic ids in the answer (KIP-516) · v11 cluster operations move to
    DescribeCluster (KIP-700) · v12 topics by id (KIP-516) · v13 as v12.
    """

    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(Boolean, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(Boolean, versions="8-10")
    include_topic_authorized_operations: bool = field(Boolean, versions="8+")


class MetadataResponseBroker(Struct):
    """A live broker, at the address of the listener that was asked."""

    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, versions="1+", nullable="1+", ignorable=True)


class MetadataResponsePartition(Struct):
    """Leader and replicas of one partition; leader -1 if there is none."""

    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, versions="7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), versions="5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic, or why it cannot be described."""

    error_code: int = field(Int16)
    name: str | None = field(String, nullable="12+")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True)
    is_internal: bool = field(Boolean, versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(Int32, versions="8+", default=OPERATIONS_NOT_REQUESTED)


class MetadataResponse(Response, api_key=3, flexible="9+"):
    """Brokers, controller and topics.

    v1 rack, controller, internal topics · v2 cluster id (KIP-78) · v3 throttle time · v5 offline
    replicas (KIP-112) · v7 leader epoch (KIP-320) · v8 authorized operations (KIP-430) · v9
    flexible · v10 topic ids (KIP-516) · v11 no cluster operations (KIP-700) · v13 an error for
    the whole request (KIP-1102).
    """

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(String, versions="2+", nullable="2+", ignorable=True)
    controller_id: int = field(Int32, versions="1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(
        Int32, versions="8-10", default=OPERATIONS_NOT_REQUESTED
    )
    error_code: int = field(Int16, versions="13+", ignorable=True)


class TopicRequest(Struct):
    """A topic by name."""

    name: str = field(String)


class Cursor(Struct):
    """The partition to begin with: of this request, or of the request that continues an answer."""

    topic_name: str = field(String)
    partition_index: int = field(Int32)


class DescribeTopicPartitionsRequest(Request, api_key=75, flexible="0+"):
    """Ask about some topics, or about all where none is named, in pieces (KIP-966)."""

    topics: list[TopicRequest] = field(Array(TopicRequest))
    response_partition_limit: int = field(Int32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """Leader and replicas of one partition, as Metadata has them, and its eligible leaders."""

    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    eligible_leader_replicas: list[int] | None = field(Array(Int32), nullable="0+")
    last_known_elr: list[int] | None = field(Array(Int32), nullable="0+")
    offline_replicas: list[int] = field(Array(Int32), ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic, or why it cannot be described."""

    error_code: int = field(Int16)
    name: str | None = field(String, nullable="0+")
    topic_id: UUID = field(Uuid, ignorable=True)
    is_internal: bool = field(Boolean, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(Int32, default=OPERATIONS_NOT_REQUESTED)


class DescribeTopicPartitionsResponse(Response, api_key=75, flexible="0+"):
    """Topics in the order of their names, and where the next request continues (null: done)."""

    throttle_time_ms: int = field(Int32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        Array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = field(Cursor, nullable="0+")
