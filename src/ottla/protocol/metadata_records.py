"""Records of `__cluster_metadata`, the log in which a KRaft controller keeps the cluster's state.

Ottla keeps that state in its registry; it reads these records to take over the directory of a
Kafka broker, and only the types that matter for that are here. Before each record stand three
unsigned varints: the version of this frame (1), the key of the record's type, and the record's
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Message
from ottla.protocol.types import Int8, Int32, Int64, String, Uuid, field
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from uuid import UUID

FRAME_VERSION: Final = 1


class TopicRecord(Message, versions="0", flexible="0+"):
    """A topic came into being."""

    name: str = field(String)
    topic_id: UUID = field(Uuid, default=NO_UUID)


class ConfigRecord(Message, versions="0", flexible="0+"):
    """An override was set; a null value takes it away."""

    resource_type: int = field(Int8)
    resource_name: str = field(String)
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    """A topic went, and its overrides with it."""

    topic_id: UUID = field(Uuid, default=NO_UUID)


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    """A broker got a block of producer ids."""

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    next_producer_id: int = field(Int64)


METADATA_RECORDS: Final[dict[int, type[Message]]] = {
    2: TopicRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    15: ProducerIdsRecord,
}
"""The records that are read, by the key of their type."""
