"""The counts of all that was written to partitions and read of them, which metrics read."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ottla.errors import ErrorCode
from ottla.log.log_results import LogAppendInfo

NOT_COUNTED_AS_FAILED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Kafka's own list: with these a broker has done what it should."""


class ReplicaStats:
    """The same of all topics of a broker, and of its replicas' changes and copies."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self._partition_counts: Counter[str] = Counter()
        self.gone = TopicStats()
        """The counts of topics that had partitions here and have none now."""
        self.isr_shrinks = self.isr_expands = self.failed_isr_updates = 0
        self.replication_bytes_out = 0

    def join(self, topic: str) -> TopicStats:
        """A partition of a topic is here now: it shares the numbers of the others."""
        self._partition_counts[topic] += 1
        return self.topics.setdefault(topic, TopicStats())

    def leave(self, topic: str) -> None:
        """A partition has gone; the numbers of a topic go with the last one."""
        self._partition_counts[topic] -= 1
        if not self._partition_counts[topic]:
            del self._partition_counts[topic]
            self.gone.add(self.topics.pop(topic))

    def total(self) -> TopicStats:
        """The sums over all topics, also over those that are gone."""
        total = TopicStats()
        for each in (self.gone, *self.topics.values()):
            total.add(each)
        return total


class TopicStats:
    """The counts of the partitions of one topic on this broker, since it has some."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.bytes_rejected = self.messages_in = 0
        self.produces = self.fetches = self.failed_produces = self.failed_fetches = 0

    bytes_in: int
    """The bytes of batches that clients and coordinators have produced."""
    bytes_out: int
    """Sent to consumers, not to followers."""
    bytes_rejected: int
    """The bytes of batches that were too large."""
    messages_in: int
    produces: int
    """Partitions that were produced to, once in each request."""
    fetches: int
    failed_produces: int
    failed_fetches: int

    def note_append(self, info: LogAppendInfo) -> None:
        """A batch was appended; one that came again was appended before."""
        self.produces += 1
        if not info.is_duplicate:
            self.messages_in += info.record_count
            self.bytes_in += info.size_in_bytes

    def note_refusal(self, error: ErrorCode, size: int) -> None:
        """A batch was not appended."""
        self.produces += 1
        if error is ErrorCode.MESSAGE_TOO_LARGE:
            self.bytes_rejected += size
        if error not in NOT_COUNTED_AS_FAILED:
            self.failed_produces += 1

    def add(self, other: TopicStats) -> None:
        """Add the counts of another topic."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.bytes_rejected += other.bytes_rejected
        self.messages_in += other.messages_in
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches
