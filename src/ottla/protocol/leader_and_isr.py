"""What the controller and the brokers of a cluster say to each other.

LeaderAndIsr (4) and StopReplica (5): the controller tells a broker what its replicas do.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid, field
from ottla.structs import NO_EPOCH, NO_UUID


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
    """What a broker has to lead and to follow.

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
    """What became of one partition."""

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
    """What became of one partition."""

    topic_name: str = field(String)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class StopReplicaResponse(Response, api_key=5, flexible="2+"):
    """One result for each partition. v2 flexible · v3 FENCED_LEADER_EPOCH possible."""

    error_code: int = field(Int16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))


# UpdateMetadata (6): the controller sends a broker the metadata that its clients will ask for.


SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The names of the security protocols, each at the place of its number."""


UNKNOWN_TYPE: Final = 0
FULL_TYPE: Final = 2
"""The request names all topics that exist: the broker must forget any other."""


class UpdateMetadataPartitionState(Struct):
    """One partition: its leader, in-sync replicas, all replicas, and the offline ones."""

    topic_name: str = field(String, versions="0-4", ignorable=True)
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    zk_version: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), versions="4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    """The partitions of one topic (v5+)."""

    topic_name: str = field(String)
    topic_id: UUID = field(Uuid, versions="7+", default=NO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState)
    )


class UpdateMetadataEndpoint(Struct):
    """A listener of a broker (v1+)."""

    port: int = field(Int32)
    host: str = field(String)
    listener: str = field(String, versions="3+", ignorable=True)
    security_protocol: int = field(Int16)


class UpdateMetadataBroker(Struct):
    """A live broker."""

    id: int = field(Int32)
    v0_host: str = field(String, versions="0", ignorable=True)
    v0_port: int = field(Int32, versions="0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(
        Array(UpdateMetadataEndpoint), versions="1+", ignorable=True
    )
    rack: str | None = field(String, versions="2+", nullable="2+", ignorable=True)


class UpdateMetadataRequest(Request, api_key=6, flexible="6+"):
    """Partitions that have changed, and all live brokers.

    v1 several listeners · v2 racks · v3 listener names · v4 offline replicas · v5 broker epoch, by
    topic (KIP-380) · v6 flexible · v7 topic ids (KIP-516) · v8 controllers of KRaft (KIP-866).
    """

    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Boolean, versions="8+")
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="5+", default=NO_EPOCH, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), versions="0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = field(
        Array(UpdateMetadataTopicState), versions="5+"
    )
    live_brokers: list[UpdateMetadataBroker] = field(Array(UpdateMetadataBroker))
    type: int = field(Int8, versions="8+", tag=0, default=UNKNOWN_TYPE, ignorable=True)


class UpdateMetadataResponse(Response, api_key=6, flexible="6+"):
    """Whether the broker has applied the update."""

    error_code: int = field(Int16)


# ControlledShutdown (7) and AlterPartition (56): what brokers ask of the controller.


class ControlledShutdownRequest(Request, api_key=7, flexible="3+"):
    """A broker is about to stop: other brokers must take over its partitions.

    v2 broker epoch (KIP-380) · v3 flexible. v0 has a header of its own, which nothing since Kafka
    0.9 sends.
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=NO_EPOCH, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = field(String)
    partition_index: int = field(Int32)


class ControlledShutdownResponse(Response, api_key=7, flexible="3+"):
    """The partitions that no other broker can lead. v3 flexible."""

    error_code: int = field(Int16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))


class BrokerState(Struct):
    """A proposed in-sync replica and the registration of its broker (v3+, KIP-903)."""

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=NO_EPOCH)


class AlterPartitionPartitionData(Struct):
    """The in-sync replicas that a leader proposes, and the state that they replace."""

    partition_index: int = field(Int32)
    leader_epoch: int = field(Int32)
    new_isr: list[int] = field(Array(Int32), versions="0-2")
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), versions="3+")
    leader_recovery_state: int = field(Int8, versions="1+")
    partition_epoch: int = field(Int32)


class AlterPartitionTopicData(Struct):
    """The partitions of one topic."""

    topic_name: str = field(String, versions="0-1", ignorable=True)
    topic_id: UUID = field(Uuid, versions="2+", default=NO_UUID, ignorable=True)
    partitions: list[AlterPartitionPartitionData] = field(Array(AlterPartitionPartitionData))


class AlterPartitionRequest(Request, api_key=56, flexible="0+"):
    """A leader asks for other in-sync replicas (KIP-497).

    v1 recovery of a leader (KIP-704) · v2 topic ids (KIP-841) · v3 broker epochs (KIP-903).
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=NO_EPOCH)
    topics: list[AlterPartitionTopicData] = field(Array(AlterPartitionTopicData))


class AlterPartitionPartitionResult(Struct):
    """The state of the partition that is now in force, or why it was not changed."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    leader_recovery_state: int = field(Int8, versions="1+")
    partition_epoch: int = field(Int32)


class AlterPartitionTopicResult(Struct):
    """The partitions of one topic."""

    topic_name: str = field(String, versions="0-1", ignorable=True)
    topic_id: UUID = field(Uuid, versions="2+", default=NO_UUID, ignorable=True)
    partitions: list[AlterPartitionPartitionResult] = field(Array(AlterPartitionPartitionResult))


class AlterPartitionResponse(Response, api_key=56, flexible="0+"):
    """One result for each partition. v2 topic ids."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    topics: list[AlterPartitionTopicResult] = field(Array(AlterPartitionTopicResult))
