"""Subscriptions and assignments of classic members, as a consumer group understands them.

Clients of the classic protocol pack them into bytes that a coordinator passes on unread. For a
group that also has members of the consumer protocol it has to read them, and to write its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions, in_order
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from ottla.structs import TopicPartition

KAFKA_ASSIGNORS: Final = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
"""Their members need nothing but the partitions, so user data beside them are ignored: librdkafka
repeats there what the member has said about itself, its generation under cooperative-sticky."""


class Subscription(NamedTuple):
    """The subscription of a classic member, and the partitions that it says it still has."""

    topic_names: tuple[str, ...]
    owned: AssignedPartitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: ClusterTopics) -> Subscription:
    """The subscription; INCONSISTENT_GROUP_PROTOCOL if the bytes are of another kind."""
    with _of_consumers():
        stored = decode_subscription(metadata)
    names = tuple(sorted(set(stored.topics)))
    return Subscription(names, with_ids(stored.owned_partitions, topics), stored.rack_id)


def read_assignment(
    protocol: str | None, assignment: bytes, topics: ClusterTopics
) -> AssignedPartitions:
    """The partitions; user data of a client's own assignor is refused: it would be lost."""
    with _of_consumers():
        stored = decode_assignment(assignment)
    if stored.user_data and protocol not in KAFKA_ASSIGNORS:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the assignment has user data, which only the clients' own assignor understands",
        )
    return with_ids(stored.assigned_partitions, topics)


def write_assignment(assigned: AssignedPartitions, metadata: bytes, topics: ClusterTopics) -> bytes:
    """The partitions in the version of a subscription; deleted topics are left out."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    partitions = [
        TopicPartition(name, number)
        for topic_id, numbers in in_order(assigned.topics)
        if (name := topics.topic_name(topic_id)) is not None
        for number in numbers
    ]
    return encode_assignment(partitions, version)


def with_ids(
    stored: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics
) -> AssignedPartitions:
    """Partitions of topics that exist, by the ids of the topics."""
    return AssignedPartitions.of(
        (topic.topic_id, each.partitions)
        for each in stored
        if (topic := topics.topic(each.topic)) is not None
    )


@contextmanager
def _of_consumers() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the embedded protocol is malformed: {error}"
        ) from error
