"""The assignment in a group of the 0.7 design, computed by each consumer for itself.

All consumers of a group get the same result, as they read the same registrations and topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.legacy.topic_filter import FILTERS
from ottla.structs import NO_LEADER, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ottla.registry.znodes import ConsumerRegistration


class ConsumerThreadId(NamedTuple):
    """One stream of a consumer as the owner of partitions, written `consumer-0`."""

    consumer: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer}-{self.number}"


def sort_partitions(replicas: Mapping[int, Sequence[int]]) -> list[int]:
    """A topic's partitions in the order in which they are assigned.

    Those with the same preferred leader are adjacent, so that a consumer needs few brokers. The
    preferred leader is used since it stays the same while the actual leader changes.
    """

    def place(partition: int) -> tuple[int, int]:
        return (replicas[partition] or (NO_LEADER,))[0], partition

    return sorted(replicas, key=place)


def assign(partitions: Sequence[int], threads: Sequence[str]) -> dict[int, str]:
    """Equal runs of partitions for the threads; the first threads take the remainder.

    Both must be sorted. With more threads than partitions the last threads get nothing.
    """
    if not threads:
        return {}
    share, left_over = divmod(len(partitions), len(threads))
    owners = {}
    start = 0
    for number, thread in enumerate(threads):
        end = start + share + (number < left_over)
        owners.update(dict.fromkeys(partitions[start:end], thread))
        start = end
    return owners


def subscribed_topics(
    registration: ConsumerRegistration, topics: Collection[str], *, exclude_internal: bool = True
) -> dict[str, int]:
    """The topics that a consumer reads, with their stream counts; `topics` are all that exist."""
    if registration.pattern not in FILTERS:
        return dict(registration.subscription)
    found = {}
    for regex, count in registration.subscription.items():
        for topic in FILTERS[registration.pattern](regex).matching(topics, exclude_internal):
            found[topic] = count
    return found


def decide(
    registrations: Mapping[str, ConsumerRegistration],
    replicas: Mapping[str, Mapping[int, Sequence[int]]],
    topics: Collection[str],
    *,
    exclude_internal: bool = True,
) -> dict[TopicPartition, ConsumerThreadId]:
    """The owner of every partition of the topics in `replicas` that some consumer reads.

    The threads are sorted by their names as strings, as in Kafka's consumers.
    """
    threads: dict[str, dict[str, ConsumerThreadId]] = {}
    for consumer, registration in registrations.items():
        counts = subscribed_topics(registration, topics, exclude_internal=exclude_internal)
        for topic, count in counts.items():
            ids = [ConsumerThreadId(consumer, number) for number in range(count)]
            threads.setdefault(topic, {}).update((str(id), id) for id in ids)
    return {
        TopicPartition(topic, partition): by_name[name]
        for topic, by_name in threads.items()
        if topic in replicas
        for partition, name in assign(sort_partitions(replicas[topic]), sorted(by_name)).items()
    }
