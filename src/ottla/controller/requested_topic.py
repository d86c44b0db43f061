"""A topic that a client wants created: the request, the brokers' own topics, and the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.controller.racks import Assignment
from ottla.controller.topic_assignment import Racks, RandRange, assign_new_topic, check_assignment
from ottla.controller.topic_names import refuse_collision
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.structs import (
    BROKER_DEFAULT,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    NamedTuple,
    Value,
    field,
)

Replicas = Mapping[int, tuple[int, ...]]
"""The brokers of each partition of a new topic; the first one leads it."""
UNASSIGNED: Final[Replicas] = MappingProxyType({})
"""The controller chooses."""


class RequestedTopic(Value, frozen=True):
    """A requested topic: counts, or replicas by partition, and overrides of its settings."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Replicas = UNASSIGNED
    config: Mapping[str, str | None] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """A topic as it was created, or would be."""

    topic_id: UUID
    num_partitions: int
    replication_factor: int
    config: dict[str, str]


class MorePartitions(NamedTuple):
    """A request for more partitions: the new total, and the replicas of the new ones."""

    name: str
    total: int
    assignment: Sequence[tuple[int, ...]] | None = None


def internal_replication_factor(
    config: BrokerConfig, key: str, wanted: int, live_brokers: Collection[int]
) -> int:
    """The wanted replicas, but at most as many as there are live brokers.

    In a cluster a number that is configured is never lowered: the first brokers must not create a
    topic that is lost with one of them (KIP-115).
    """
    if config.zookeeper_connect is not None and config.is_given(key):
        return wanted
    return min(wanted, len(live_brokers))


def offsets_topic(config: BrokerConfig, live_brokers: Collection[int]) -> RequestedTopic:
    """`__consumer_offsets` as the broker makes it; a small cluster gets fewer replicas."""
    return RequestedTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        internal_replication_factor(
            config,
            "offsets.topic.replication.factor",
            config.offsets_topic_replication_factor,
            live_brokers,
        ),
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transactions_topic(config: BrokerConfig, live_brokers: Collection[int]) -> RequestedTopic:
    """`__transaction_state` as the broker makes it; a small cluster gets fewer replicas."""
    replication_factor = internal_replication_factor(
        config,
        "transaction.state.log.replication.factor",
        config.transaction_state_log_replication_factor,
        live_brokers,
    )
    return RequestedTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        replication_factor,
        config={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(
                min(config.transaction_state_log_min_isr, replication_factor)
            ),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


INTERNAL_TOPIC_PLANS: Final = {OFFSETS_TOPIC: offsets_topic, TRANSACTIONS_TOPIC: transactions_topic}
"""How each of the brokers' own topics is made."""


def check_new_topic(topic: RequestedTopic, existing: Collection[str]) -> None:
    """The rules that need no broker: name, settings, and one way of saying how many."""
    validate_topic_name(topic.name)
    if topic.name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} already exists")
    refuse_collision(topic.name, existing)
    counted = (topic.num_partitions, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT)
    if topic.assignment and counted:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r}: either replicas are assigned or numbers are given, not both",
        )
    TopicConfig.validate(topic.config)


def plan_assignment(
    topic: RequestedTopic, config: BrokerConfig, brokers: Racks, randrange: RandRange
) -> Assignment:
    """The replicas of each partition: those that were asked for, or a round of the brokers."""
    if topic.assignment:
        check_assignment(topic.assignment, range(len(topic.assignment)), brokers)
        return dict(sorted(topic.assignment.items()))
    num_partitions, replication_factor = topic.num_partitions, topic.replication_factor
    if num_partitions == BROKER_DEFAULT:
        num_partitions = config.num_partitions
    if replication_factor == BROKER_DEFAULT:
        replication_factor = config.default_replication_factor
    return assign_new_topic(brokers, num_partitions, replication_factor, randrange)
