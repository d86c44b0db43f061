"""The partitions of a member of a consumer group, of which there may be a hundred thousand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from ottla.structs import NamedTuple, by_topic


class TopicIdPartition(NamedTuple):
    """A partition, with the id of its topic."""

    topic_id: UUID
    partition: int


NO_NUMBERS: Final[frozenset[int]] = frozenset()


class AssignedPartitions(Collection[TopicIdPartition]):
    """A set of partitions that does not change, with the operations of a frozenset.

    Its `topics` have the numbers of each topic's partitions, at least one. So the operations take
    a step of the interpreter for each topic, and not one for each partition.
    """

    __slots__ = ("topics",)

    def __init__(self, partitions: Iterable[TopicIdPartition] = ()) -> None:
        numbers = by_topic(partitions)
        self.topics: Mapping[UUID, frozenset[int]] = {
            topic_id: frozenset(numbers[topic_id]) for topic_id in numbers
        }

    @staticmethod
    def of(topics: Iterable[tuple[UUID, Iterable[int]]]) -> AssignedPartitions:
        """The partitions with these numbers of each topic, which may be named again."""
        named = [(topic_id, frozenset(numbers)) for topic_id, numbers in topics]
        found = dict(named)
        if len(found) < len(named):
            found = dict.fromkeys(found, NO_NUMBERS)
            for topic_id, numbers in named:
                found[topic_id] |= numbers
        return joined(found.items())

    def __len__(self) -> int:
        return sum(map(len, self.topics.values()))

    def __iter__(self) -> Iterator[TopicIdPartition]:
        for topic_id, numbers in self.topics.items():
            for number in numbers:
                yield TopicIdPartition(topic_id, number)

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, TopicIdPartition) and (
            partition.partition in self.of_topic(partition.topic_id)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AssignedPartitions) and self.topics == other.topics

    def __hash__(self) -> int:
        return hash(frozenset(self.topics.items()))

    def __le__(self, other: AssignedPartitions) -> bool:
        return all(numbers <= other.of_topic(each) for each, numbers in self.topics.items())

    def __and__(self, other: AssignedPartitions) -> AssignedPartitions:
        theirs = other.topics.get
        return _of(
            {
                each: both
                for each, numbers in self.topics.items()
                if (both := numbers & theirs(each, NO_NUMBERS))
            }
        )

    def __or__(self, other: AssignedPartitions) -> AssignedPartitions:
        if not self.topics or not other.topics:
            return self if self.topics else other
        topics = dict(self.topics)
        for topic_id, numbers in other.topics.items():
            mine = topics.get(topic_id)
            topics[topic_id] = numbers if mine is None else mine | numbers
        return _of(topics)

    def __sub__(self, other: AssignedPartitions) -> AssignedPartitions:
        if not self.topics or not other.topics:
            return self
        theirs = other.topics.get
        return _of(
            {
                each: left
                for each, numbers in self.topics.items()
                if (left := numbers - theirs(each, NO_NUMBERS))
            }
        )

    def __repr__(self) -> str:
        return f"AssignedPartitions({sorted(self)})"

    def of_topic(self, topic_id: UUID) -> frozenset[int]:
        """The numbers of the topic's partitions."""
        return self.topics.get(topic_id, NO_NUMBERS)


NO_PARTITIONS: Final = AssignedPartitions()


def joined(topics: Iterable[tuple[UUID, frozenset[int]]]) -> AssignedPartitions:
    """The partitions with these numbers of each topic; no topic is named twice."""
    return _of({topic_id: numbers for topic_id, numbers in topics if numbers})


def _of(topics: Mapping[UUID, frozenset[int]]) -> AssignedPartitions:
    assignment = AssignedPartitions()
    assignment.topics = topics
    return assignment


def in_order(topics: Mapping[UUID, Collection[int]]) -> Iterator[tuple[UUID, list[int]]]:
    """The topics with the numbers of their partitions, all in order."""
    ordered = sorted(topics.items(), key=_id_number_of)
    return ((topic_id, sorted(numbers)) for topic_id, numbers in ordered)


def _id_number_of(item: tuple[UUID, object]) -> int:
    return item[0].int


def id_number(topic_id: UUID) -> int:
    """The id as a number, which compares in the same order, and faster."""
    return topic_id.int
