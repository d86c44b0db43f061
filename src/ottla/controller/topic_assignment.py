"""Which brokers get the replicas of a new topic's partitions.

Leaders go round the brokers from a random one; the other replicas of a partition follow its
leader at a distance that grows by one each round, so that the partitions of a lost broker fall to
all the others. With brokers 0-4, three replicas, starting at 0 with shift 0:

    partition   0      1      2      3      4      5      6      ...
    replicas    0 1 2  1 2 3  2 3 4  3 4 0  4 0 1  0 2 3  1 3 4

Where every broker says in which rack it is, replicas are spread over racks first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_files import validate_topic_name
from ottla.structs import (
    BROKER_DEFAULT,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Value,
    field,
)

# Replicas on different racks, as long as there are racks: a lost rack takes one replica at most.
#
# Brokers go round in an order in which neighbours are of different racks, so that leaders are
# spread over racks as well as over brokers.


Assignment = dict[int, tuple[int, ...]]


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers: the first of each rack, then the second of each, and so on."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, rows))
    return [row[place] for place in range(longest) for row in rows if place < len(row)]


def assign_over_racks(
    racks: Mapping[int, str],
    partitions: range,
    replication_factor: int,
    start_index: int,
    shift: int,
) -> Assignment:
    """Replicas for the partitions, the preferred leader first."""
    brokers = alternate_racks(racks)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start_index) % len(brokers)
        assignment[partition] = _replicas(brokers, racks, first, shift, replication_factor)
    return assignment


def _replicas(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int
) -> tuple[int, ...]:
    """The broker at `first`, then others: of new racks before those of racks that have one."""
    rack_count = len(set(racks.values()))
    others = len(brokers) - 1
    distances = [1 + (shift * rack_count + step) % others for step in range(others)]
    candidates = [brokers[(first + distance) % len(brokers)] for distance in distances]
    chosen = [brokers[first]]
    while len(chosen) < count:
        used = {racks[broker_id] for broker_id in chosen}
        free = [broker_id for broker_id in candidates if broker_id not in chosen]
        fresh = [broker_id for broker_id in free if racks[broker_id] not in used]
        chosen.append((fresh or free)[0])
    return tuple(chosen)


# Which names a topic may have.


def refuse_internal(name: str, verb: str) -> None:
    """INVALID_TOPIC_EXCEPTION for what a client may not do to an internal topic."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal and cannot be {verb} by clients"
        )


def refuse_collision(name: str, existing: Iterable[str]) -> None:
    """'.' and '_' are the same in names of metrics, so two topics may not differ in them alone."""
    if "." not in name and "_" not in name:
        return
    metric_name, length = name.replace(".", "_"), len(name)
    for other in existing:  # of thousands nearly all differ in their length, or at once
        if len(other) == length and other != name and other.replace(".", "_") == metric_name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} differs from the topic {other!r} only in '.' and '_', "
                "which names of metrics cannot tell apart",
            )


Racks = Mapping[int, str | None]
"""The rack of each broker that replicas may be put on; None if it has no rack."""

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Each partition costs a directory and open files: a request for more is refused at once."""


def assign_replicas(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    start_index: int,
    shift: int,
) -> Assignment:
    """Replicas for the partitions, the preferred leader first; `brokers` are sorted ids."""
    count = len(brokers)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start_index) % count
        followers = [
            brokers[(first + 1 + (shift + place) % (count - 1)) % count]
            for place in range(replication_factor - 1)
        ]
        assignment[partition] = (brokers[first], *followers)
    return assignment


RandRange = Callable[[int], int]
"""A random number from 0 on, below the one that is given: `Random.randrange`."""


def assign_new_topic(
    brokers: Racks, num_partitions: int, replication_factor: int, randrange: RandRange
) -> Assignment:
    """Replicas for all partitions of a topic, starting at a random broker."""
    check_partition_count(num_partitions)
    check_replication_factor(replication_factor, brokers)
    start_index, shift = randrange(len(brokers)), randrange(len(brokers))
    return _assign(brokers, range(num_partitions), replication_factor, start_index, shift)


def assign_more_partitions(
    brokers: Racks, existing: Mapping[int, tuple[int, ...]], total: int
) -> Assignment:
    """Replicas for the partitions that a topic gets beside the `existing` ones.

    The round continues from the preferred leader of partition 0, where it once began.
    """
    first, replication_factor = existing[0][0], len(existing[0])
    check_replication_factor(replication_factor, brokers)
    racks = known_racks(brokers)
    order = sorted(brokers) if racks is None else alternate_racks(racks)
    start_index = order.index(first) if first in order else 0
    partitions = range(len(existing), total)
    return _assign(brokers, partitions, replication_factor, start_index, start_index)


def known_racks(brokers: Racks) -> dict[int, str] | None:
    """The rack of each broker; all None unless every broker has one: then racks do not matter."""
    racks = {broker_id: rack for broker_id, rack in brokers.items() if rack is not None}
    return racks if racks and len(racks) == len(brokers) else None


def _assign(
    brokers: Racks, partitions: range, replication_factor: int, start_index: int, shift: int
) -> Assignment:
    racks = known_racks(brokers)
    if racks is not None:
        return assign_over_racks(racks, partitions, replication_factor, start_index, shift)
    return assign_replicas(sorted(brokers), partitions, replication_factor, start_index, shift)


def check_partition_count(count: int, limit: int = MAX_PARTITIONS_PER_REQUEST) -> None:
    """INVALID_PARTITIONS for none, or for more than one request may still ask for."""
    if not 0 < count <= limit:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions: must be at least 1, and at most {MAX_PARTITIONS_PER_REQUEST} "
            "for all topics of a request together",
        )


def check_replication_factor(replication_factor: int, brokers: Collection[int]) -> None:
    if not 0 < replication_factor <= len(brokers):
        rule = f"must be from 1 to {len(brokers)}, the number of live brokers"
        if len(brokers) == 1:
            rule = "must be 1: one broker lives"
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {replication_factor}: {rule}"
        )


def check_assignment(
    assignment: Mapping[int, tuple[int, ...]],
    partitions: range,
    brokers: Collection[int],
    replication_factor: int | None = None,
) -> None:
    """INVALID_REPLICA_ASSIGNMENT where a user's assignment has a hole or names a wrong broker.

    All partitions need the same number of replicas: `replication_factor`, or that of the first.
    """
    check_partition_count(len(assignment))
    if set(assignment) != set(partitions):
        raise _bad_assignment(
            f"partitions {_shown(sorted(assignment))} are given; they must be "
            f"{partitions.start} to {partitions.stop - 1}"
        )
    expected = replication_factor or len(assignment[partitions.start])
    for partition, replicas in assignment.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise _bad_assignment(
                f"partition {partition} has replicas {_shown(replicas)}; it must have some, "
                "each on a broker of its own"
            )
        unknown = set(replicas) - set(brokers)
        if unknown:
            raise _bad_assignment(
                f"partition {partition} names brokers that do not live: {_shown(sorted(unknown))}"
            )
        if len(replicas) != expected:
            raise _bad_assignment(
                f"partition {partition} has {len(replicas)} replicas; it must have {expected} "
                "as the others"
            )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _shown(ids: Sequence[int]) -> str:
    """The first few of a list that a client may have made very long."""
    more = ", ..." if len(ids) > 10 else ""
    return ", ".join(map(str, ids[:10])) + more


# A topic that a client wants created: the request, and the result.


class RequestedTopic(Value, frozen=True):
    """A requested topic: counts, or replicas by partition, and overrides of its settings."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
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


INTERNAL_TOPIC_PLANS: Final = {
    OFFSETS_TOPIC: offsets_topic,
    TRANSACTIONS_TOPIC: transactions_topic,
}
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
