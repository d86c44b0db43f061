"""UpdateMetadata (6): the controller sends a broker the metadata that its clients will request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid, field
from ottla.structs import NO_EPOCH, NO_UUID

if TYPE_CHECKING:
    from uuid import UUID

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
