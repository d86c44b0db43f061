"""The partitions of a transaction: a value, which is stored as a whole with each that is added."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, Final

from ottla.protocol.message import encode
from ottla.protocol.transaction_log import PartitionsSchema, TransactionLogValue
from ottla.runtime.scheduler import Work, at_once
from ottla.structs import TopicPartition, by_topic

TOPICS_IN_A_SLICE: Final = 800
SHOWN: Final = 10


class TransactionPartitions(Set[TopicPartition]):
    """Partitions by topic, each topic also as a record of the log has it.

    Invariant: nothing in it changes. The set that an addition makes shares all topics but those
    that were added to, so that a hundred thousand partitions are neither sorted nor encoded again.
    """

    __slots__ = ("_count", "_encoded", "topics")

    def __init__(
        self, topics: dict[str, tuple[int, ...]], encoded: tuple[dict[str, bytes], ...], count: int
    ) -> None:
        self.topics: Mapping[str, tuple[int, ...]] = topics
        """The numbers of each topic's partitions, ascending; topics as they were added."""
        self._encoded = encoded
        """For each version of TransactionLogValue the bytes of each topic in it."""
        self._count = count

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition]) -> TransactionPartitions:
        return NO_PARTITIONS.with_added(partitions)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return frozenset(it)

    def __contains__(self, topic_partition: object) -> bool:
        if not isinstance(topic_partition, TopicPartition):
            return False
        topic, index = topic_partition
        return _has(self.topics.get(topic, ()), index)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, indexes in self.topics.items():
            for index in indexes:
                yield TopicPartition(topic, index)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        few = ", ".join(map(str, islice(self, SHOWN)))
        more = f", and {self._count - SHOWN} more" if self._count > SHOWN else ""
        return f"{{{few}{more}}}"

    def with_added(self, partitions: Iterable[TopicPartition]) -> TransactionPartitions:
        """These and others; some of them may be here already."""
        return at_once(self.with_topics(by_topic(partitions).items()))

    def with_topics(
        self, added: Iterable[tuple[str, Collection[int]]]
    ) -> Work[TransactionPartitions]:
        """The same in slices, with topics that may be many."""
        topics, encoded = dict(self.topics), tuple(map(dict, self._encoded))
        count = self._count
        for number, (topic, indexes) in enumerate(added, 1):
            before = topics.get(topic, ())
            new: Collection[int] = set(indexes)
            if before:
                new = [index for index in new if not _has(before, index)]
            topics[topic] = known = tuple(sorted((*before, *new)))
            count += len(new)
            entry = PartitionsSchema(topic=topic, partition_ids=known)
            for version, entries in enumerate(encoded):
                entries[topic] = encode(entry, version)
            if not number % TOPICS_IN_A_SLICE:
                yield
        return TransactionPartitions(topics, encoded, count)

    def encoded(self, version: int) -> tuple[int, bytes]:
        """How many topics there are, and their bytes in that version of TransactionLogValue."""
        return len(self.topics), b"".join(self._encoded[version].values())


def _has(indexes: tuple[int, ...], index: int) -> bool:
    place = bisect_left(indexes, index)
    return place < len(indexes) and indexes[place] == index


NO_PARTITIONS: Final = TransactionPartitions(
    {}, tuple({} for _ in range(TransactionLogValue.max_version + 1)), 0
)
