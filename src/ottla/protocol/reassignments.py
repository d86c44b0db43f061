"""ElectLeaders (43), AlterPartitionReassignments (45) and ListPartitionReassignments (46)."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, String, field

DEFAULT_TIMEOUT_MS = 60_000


class ElectLeadersTopicPartitions(Struct):
    """The partitions of one topic."""

    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class ElectLeadersRequest(Request, api_key=43, flexible="2+"):
    """Ask for elections; null is every partition that needs one (KIP-183).

    v1 the kind of election (KIP-460) · v2 flexible.
    """

    election_type: int = field(Int8, versions="1+", default=0)
    topic_partitions: list[ElectLeadersTopicPartitions] | None = field(
        Array(ElectLeadersTopicPartitions), nullable="0+"
    )
    timeout_ms: int = field(Int32, default=DEFAULT_TIMEOUT_MS)


class ElectLeadersPartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class ElectLeadersReplicaElectionResult(Struct):
    """The partitions of one topic."""

    topic: str = field(String)
    partition_result: list[ElectLeadersPartitionResult] = field(Array(ElectLeadersPartitionResult))


class ElectLeadersResponse(Response, api_key=43, flexible="2+"):
    """One result for each partition. v1 an error for the whole · v2 flexible."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="1+")
    replica_election_results: list[ElectLeadersReplicaElectionResult] = field(
        Array(ElectLeadersReplicaElectionResult)
    )


class ReassignablePartition(Struct):
    """The target replicas of a partition; null cancels its reassignment."""

    partition_index: int = field(Int32)
    replicas: list[int] | None = field(Array(Int32), nullable="0+")


class ReassignableTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Request, api_key=45, flexible="0+"):
    """Begin to move replicas, or stop it (KIP-455). v1 the number may have to stay the same."""

    timeout_ms: int = field(Int32, default=DEFAULT_TIMEOUT_MS)
    allow_replication_factor_change: bool = field(Boolean, versions="1+", default=True)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    """Whether the reassignment of the partition has started, or was cancelled."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class ReassignableTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Response, api_key=45, flexible="0+"):
    """One result for each partition."""

    throttle_time_ms: int = field(Int32)
    allow_replication_factor_change: bool = field(
        Boolean, versions="1+", default=True, ignorable=True
    )
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))


class ListPartitionReassignmentsTopics(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class ListPartitionReassignmentsRequest(Request, api_key=46, flexible="0+"):
    """Ask for the reassignments under way; null asks for all of them (KIP-455)."""

    timeout_ms: int = field(Int32, default=DEFAULT_TIMEOUT_MS)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), nullable="0+"
    )


class OngoingPartitionReassignment(Struct):
    """The replicas of a partition, and which of them come and go."""

    partition_index: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32))
    removing_replicas: list[int] = field(Array(Int32))


class OngoingTopicReassignment(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Response, api_key=46, flexible="0+"):
    """The reassignments under way."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))
