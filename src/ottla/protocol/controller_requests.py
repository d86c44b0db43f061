"""ControlledShutdown (7) and AlterPartition (56): requests of brokers to their controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Int8, Int16, Int32, Int64, String, Uuid, field
from ottla.structs import NO_EPOCH, NO_UUID

if TYPE_CHECKING:
    from uuid import UUID


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
