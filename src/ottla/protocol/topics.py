"""Topics as administrators handle them.

CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37).
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid, field


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, chosen by hand; the first is the preferred leader."""

    partition_index: int = field(Int32)
    broker_ids: list[int] = field(Array(Int32))


class CreatableTopicConfig(Struct):
    """A setting of the new topic."""

    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class CreatableTopic(Struct):
    """A topic to create; with assignments, partitions and replication factor are -1."""

    name: str = field(String)
    num_partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig))


class CreateTopicsRequest(Request, api_key=19, flexible="5+"):
    """Create topics (KIP-4).

    v1 validate only · v4 -1 asks for the broker's defaults (KIP-464) · v5 flexible · v6 quotas on
    changes (KIP-599) · v7 topic ids in the answer (KIP-516).
    """

    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(Int32, default=60000)
    validate_only: bool = field(Boolean, versions="1+")


class CreatableTopicConfigs(Struct):
    """A setting that the new topic has."""

    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    read_only: bool = field(Boolean)
    config_source: int = field(Int8, default=-1)
    is_sensitive: bool = field(Boolean)


class CreatableTopicResult(Struct):
    """The outcome for one topic; null configs mean that the client may not see them."""

    name: str = field(String)
    topic_id: UUID = field(Uuid, versions="7+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="1+", nullable="1+", ignorable=True)
    topic_config_error_code: int = field(Int16, versions="5+", tag=0, ignorable=True)
    num_partitions: int = field(Int32, versions="5+", default=-1, ignorable=True)
    replication_factor: int = field(Int16, versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), versions="5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Response, api_key=19, flexible="5+"):
    """One result per topic.

    v1 error message · v2 throttle time · v5 flexible, partitions and settings of the new topic
    (KIP-525) · v7 topic id (KIP-516).
    """

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))


class DeleteTopicState(Struct):
    """A topic to delete, by name or with a null name by id."""

    name: str | None = field(String, nullable="0+")
    topic_id: UUID = field(Uuid)


class DeleteTopicsRequest(Request, api_key=20, flexible="4+"):
    """Delete topics (KIP-4).

    v4 flexible · v5 error message in the answer, quotas on changes (KIP-599) · v6 topics by id
    (KIP-516).
    """

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), versions="6+")
    topic_names: list[str] = field(Array(String), versions="0-5", ignorable=True)
    timeout_ms: int = field(Int32)


class DeletableTopicResult(Struct):
    """The outcome for one topic."""

    name: str | None = field(String, nullable="6+")
    topic_id: UUID = field(Uuid, versions="6+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="5+", nullable="5+", ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, flexible="4+"):
    """One result per topic. v1 throttle time · v4 flexible · v5 error message · v6 topic id."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))


class DeleteRecordsPartition(Struct):
    """Delete the records before `offset` in one partition; -1 is its high watermark."""

    partition_index: int = field(Int32)
    offset: int = field(Int64)


class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


class DeleteRecordsRequest(Request, api_key=21, flexible="2+"):
    """Move the start of logs forward (KIP-107). v2 flexible."""

    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(Int32)


class DeleteRecordsPartitionResult(Struct):
    """The first offset that every replica of the partition still has."""

    partition_index: int = field(Int32)
    low_watermark: int = field(Int64)
    error_code: int = field(Int16)


class DeleteRecordsTopicResult(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Response, api_key=21, flexible="2+"):
    """One result per partition. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition, chosen by hand."""

    broker_ids: list[int] = field(Array(Int32))


class CreatePartitionsTopic(Struct):
    """A topic and its new total number of partitions."""

    name: str = field(String)
    count: int = field(Int32)
    assignments: list[CreatePartitionsAssignment] | None = field(
        Array(CreatePartitionsAssignment), nullable="0+"
    )


class CreatePartitionsRequest(Request, api_key=37, flexible="2+"):
    """Add partitions to topics (KIP-195). v2 flexible · v3 quotas on changes (KIP-599)."""

    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(Int32)
    validate_only: bool = field(Boolean)


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class CreatePartitionsResponse(Response, api_key=37, flexible="2+"):
    """One result per topic. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))
