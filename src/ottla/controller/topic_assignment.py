"""The brokers that get the replicas of a new topic's partitions.

Leaders go round the brokers from a random one; the other replicas of a partition follow its
leader at a distance that grows by one each round, so that the partitions of a lost broker fall to
all the others. With brokers 0-4, three replicas, starting at 0 with shift 0:

    partition   0      1      2      3      4      5      6      ...
    replicas    0 1 2  1 2 3  2 3 4  3 4 0  4 0 1  0 2 3  1 3 4

Where every broker says in which rack it is, replicas are spread over racks first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from ottla.controller.racks import Assignment, alternate_racks, assign_over_racks
from ottla.errors import ErrorCode, KafkaError

Racks = Mapping[int, str | None]
"""The rack of each broker that replicas may be put on; None if it has no rack."""

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Each partition costs a directory and open files: a request for more is refused at once."""


def assign_replicas(
    brokers: Sequence[int], partitions: range, replication_factor: int, start_index: int, shift: int
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
