"""Encodes and decodes the data that members of a group exchange through the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.clients.consumer.assignors.assignor import MemberSubscription
from ottla.clients.topic_offsets import by_topic
from ottla.protocol.message import decode_versioned, encode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)
from ottla.runtime import Buffer
from ottla.structs import TopicPartition

SUBSCRIPTION_VERSION = 2
ASSIGNMENT_VERSION = 1


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode the topics that a member wants and the partitions that it owns."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=to_topics(subscription.owned),
            generation_id=subscription.generation,
        ),
        SUBSCRIPTION_VERSION,
    )


def decode_subscription(data: Buffer, instance_id: str | None) -> MemberSubscription:
    subscription = decode_versioned(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        subscription.topics,
        from_topics(subscription.owned_partitions),
        subscription.generation_id,
        instance_id,
        subscription.user_data,
    )


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Encode the partitions that the leader of the group assigns to a member."""
    assignment = ConsumerProtocolAssignment(assigned_partitions=to_topics(partitions))
    return encode_versioned(assignment, ASSIGNMENT_VERSION)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    return from_topics(decode_versioned(ConsumerProtocolAssignment, data).assigned_partitions)


def to_topics(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolTopicPartition]:
    topics: Mapping[str, list[int]] = by_topic(partitions)
    return [ConsumerProtocolTopicPartition(topic=t, partitions=p) for t, p in topics.items()]


def from_topics(topics: Iterable[ConsumerProtocolTopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, p) for topic in topics for p in topic.partitions]
