"""Subscriptions and assignments of classic members, as a consumer group understands them.

Clients of the classic protocol pack them into bytes that a coordinator passes on unread. For a
group that also has members of the consumer protocol it has to read them, and to write its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions, in_order
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.coordinator.group.consumer.consumer_group_records import collected
from ottla.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    assignment_version,
)
from ottla.protocol.message import decode_versioned_in_slices, encode_versioned_in_slices
from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple

KAFKA_ASSIGNORS: Final = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
"""Their members need nothing but the partitions, so user data beside them are ignored: librdkafka
repeats there what the member has said about itself, its generation under cooperative-sticky."""


class Subscription(NamedTuple):
    """The subscription of a classic member, and the partitions that it says it still has."""

    topic_names: tuple[str, ...]
    owned: AssignedPartitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: ClusterTopics) -> Work[Subscription]:
    """The subscription; INCONSISTENT_GROUP_PROTOCOL if the bytes are of another kind."""
    with _of_consumers():
        stored = yield from decode_versioned_in_slices(ConsumerProtocolSubscription, metadata)
    owned = yield from with_ids(stored.owned_partitions, topics)
    return Subscription(tuple(sorted(set(stored.topics))), owned, stored.rack_id)


def read_assignment(
    protocol: str | None, assignment: bytes, topics: ClusterTopics
) -> Work[AssignedPartitions]:
    """The partitions; user data of a client's own assignor is refused: it would be lost."""
    with _of_consumers():
        stored = yield from decode_versioned_in_slices(ConsumerProtocolAssignment, assignment)
    if stored.user_data and protocol not in KAFKA_ASSIGNORS:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "the assignment has user data, which only the clients' own assignor understands",
        )
    return (yield from with_ids(stored.assigned_partitions, topics))


def write_assignment(
    assigned: AssignedPartitions, metadata: bytes, topics: ClusterTopics
) -> Work[bytes]:
    """The partitions in the version of a subscription; deleted topics are left out."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    stored = yield from collected(
        ConsumerProtocolTopicPartition(topic=name, partitions=numbers)
        for topic_id, numbers in in_order(assigned.topics)
        if (name := topics.topic_name(topic_id)) is not None
    )
    assignment = ConsumerProtocolAssignment(assigned_partitions=stored)
    return (yield from encode_versioned_in_slices(assignment, assignment_version(version)))


def with_ids(
    stored: Iterable[ConsumerProtocolTopicPartition], topics: ClusterTopics
) -> Work[AssignedPartitions]:
    """Partitions of topics that exist, by the ids of the topics."""
    named = yield from collected(
        (topic.topic_id, frozenset(each.partitions))
        for each in stored
        if (topic := topics.topic(each.topic)) is not None
    )
    return AssignedPartitions.of(named)


@contextmanager
def _of_consumers() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the embedded protocol is malformed: {error}"
        ) from error
