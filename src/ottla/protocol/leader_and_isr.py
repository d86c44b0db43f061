"""Orders of the controller to the brokers of a cluster.

LeaderAndIsr (4) and StopReplica (5): which replicas a broker leads, follows and deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid, field
from ottla.structs import NO_EPOCH, NO_UUID

if TYPE_CHECKING:
    from uuid import UUID


class LeaderAndIsrPartitionState(Struct):
    """One partition: its leader, its in-sync replicas and all its replicas."""

    topic_name: str = field(String, versions="0-1", ignorable=True)
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    partition_epoch: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32), versions="3+", ignorable=True)
    removing_replicas: list[int] = field(Array(Int32), versions="3+", ignorable=True)
    is_new: bool = field(Boolean, versions="1+", ignorable=True)
    leader_recovery_state: int = field(Int8, versions="6+")


class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic (v2+)."""

    topic_name: str = field(String)
    topic_id: UUID = field(Uuid, versions="5+", default=NO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field(Array(LeaderAndIsrPartitionState))


class LeaderAndIsrLiveLeader(Struct):
    """Where a leader is reached by other brokers."""

    broker_id: int = field(Int32)
    host_name: str = field(String)
    port: int = field(Int32)


class LeaderAndIsrRequest(Request, api_key=4, flexible="4+"):
    """The partitions that a broker has to lead and to follow.

    v1 new replicas are marked · v2 broker epoch, by topic (KIP-380) · v3 replicas of a reassignment
    (KIP-455) · v4 flexible · v5 topic ids and whether it is all (KIP-516) · v6 recovery of a leader
    (KIP-704) · v7 controllers of KRaft (KIP-866).
    """

    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Boolean, versions="7+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=NO_EPOCH, ignorable=True)
    type: int = field(Int8, versions="5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), versions="0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = field(Array(LeaderAndIsrTopicState), versions="2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field(Array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    """The outcome for one partition."""

    topic_name: str = field(String, versions="0-4", ignorable=True)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class LeaderAndIsrTopicError(Struct):
    """The partitions of one topic (v5+)."""

    topic_id: UUID = field(Uuid)
    partition_errors: list[LeaderAndIsrPartitionError] = field(Array(LeaderAndIsrPartitionError))


class LeaderAndIsrResponse(Response, api_key=4, flexible="4+"):
    """One result for each partition. v1 KAFKA_STORAGE_ERROR possible · v4 flexible · v5 by id."""

    error_code: int = field(Int16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrPartitionError), versions="0-4"
    )
    topics: list[LeaderAndIsrTopicError] = field(Array(LeaderAndIsrTopicError), versions="5+")


class StopReplicaPartitionV0(Struct):
    """One partition (v0)."""

    topic_name: str = field(String)
    partition_index: int = field(Int32)


class StopReplicaTopicV1(Struct):
    """The partitions of one topic (v1-2)."""

    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class StopReplicaPartitionState(Struct):
    """One partition, with the epoch of the decision, and whether its log is deleted (v3+)."""

    partition_index: int = field(Int32)
    leader_epoch: int = field(Int32, default=NO_EPOCH)
    delete_partition: bool = field(Boolean)


class StopReplicaTopicState(Struct):
    """The partitions of one topic (v3+)."""

    topic_name: str = field(String)
    partition_states: list[StopReplicaPartitionState] = field(Array(StopReplicaPartitionState))


class StopReplicaRequest(Request, api_key=5, flexible="2+"):
    """Replicas that a broker has to give up.

    v1 broker epoch, by topic (KIP-380) · v2 flexible · v3 leader epoch and deletion for each
    partition (KIP-570) · v4 controllers of KRaft (KIP-866).
    """

    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Boolean, versions="4+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="1+", default=NO_EPOCH, ignorable=True)
    delete_partitions: bool = field(Boolean, versions="0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(
        Array(StopReplicaPartitionV0), versions="0"
    )
    topics: list[StopReplicaTopicV1] = field(Array(StopReplicaTopicV1), versions="1-2")
    topic_states: list[StopReplicaTopicState] = field(Array(StopReplicaTopicState), versions="3+")


class StopReplicaPartitionError(Struct):
    """The outcome for one partition."""

    topic_name: str = field(String)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class StopReplicaResponse(Response, api_key=5, flexible="2+"):
    """One result for each partition. v2 flexible · v3 FENCED_LEADER_EPOCH possible."""

    error_code: int = field(Int16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))
