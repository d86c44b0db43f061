"""Subscriptions and assignments of classic members, as a consumer group understands them.

Clients of the classic protocol pack them into bytes that a coordinator hands on unread. A group
that also has members of the consumer protocol has to read them, and to write them itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from ottla.coordinator.group.consumer.member import Assignment, TopicIdPartition, by_topic
from ottla.coordinator.group.consumer.topics import ClusterTopics
from ottla.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.message import decode_versioned, encode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)

MessageT = TypeVar("MessageT", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

KAFKA_ASSIGNORS: Final = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
"""Their members need nothing but the partitions, whatever user data stand beside them: librdkafka
repeats there what the member has said of itself, its generation under cooperative-sticky."""

MAX_VERSION: Final = ConsumerProtocolAssignment.max_version


class Subscription(NamedTuple):
    """What a classic member wants, and what it says that it still has."""

    topic_names: tuple[str, ...]
    owned: Assignment
    rack_id: str | None


def read_subscription(metadata: bytes, topics: ClusterTopics) -> Subscription:
    """The subscription; INCONSISTENT_GROUP_PROTOCOL if the bytes are of another kind."""
    stored = _decode(ConsumerProtocolSubscription, metadata)
    names = tuple(sorted(set(stored.topics)))
    return Subscription(names, with_ids(stored.owned_partitions, topics), stored.rack_id)


def read_assignment(protocol: str | None, assignment: bytes, topics: ClusterTopics) -> Assignment:
    """The partitions; what an assignor of the client's own has added would be lost."""
    stored = _decode(ConsumerProtocolAssignment, assignment)
    if stored.user_data and protocol not in KAFKA_ASSIGNORS:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the assignment has user data, which only the clients' own assignor understands",
        )
    return with_ids(stored.assigned_partitions, topics)


def write_assignment(assigned: Assignment, metadata: bytes, topics: ClusterTopics) -> bytes:
    """The partitions in the version of a subscription; topics that have gone are left out."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    named = ((topics.topic_name(topic_id), p) for topic_id, p in by_topic(assigned).items())
    stored = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolTopicPartition(topic=name, partitions=numbers)
            for name, numbers in named
            if name is not None
        ]
    )
    return encode_versioned(stored, max(0, min(version, MAX_VERSION)))


def with_ids(stored: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics) -> Assignment:
    """Partitions of topics that exist, by the ids of the topics."""
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for each in stored
        if (topic := topics.topic(each.topic)) is not None
        for partition in each.partitions
    )


def _decode(cls: type[MessageT], data: bytes) -> MessageT:
    try:
        return decode_versioned(cls, data)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the embedded protocol is malformed: {error}"
        ) from error
