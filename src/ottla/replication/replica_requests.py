"""What is asked of the replica manager and what it answers, partition by partition.

These values pass between the request handlers and the logs; they know no protocol version.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.config.config_type import LONG_MAX
from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.log.log_results import LogAppendInfo
from ottla.log.log_validator import AppendOrigin
from ottla.log.transaction_index import AbortedTxn
from ottla.runtime import Clock, FileRegion
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    INTERNAL_TOPICS,
    NO_EPOCH,
    NO_OFFSET,
    NO_REPLICA,
    NO_TIMESTAMP,
    IsolationLevel,
    TopicPartition,
    Value,
    field,
)

logger = logging.getLogger(__name__)

NOTE_AS_CAUGHT_UP_MS: Final = 500
"""How often a follower that has everything is noted as caught up, rather than at each fetch."""

PartitionKey = tuple[int | str, int]
"""A partition as its reader names it: by the topic's id, as a number, or else by its name."""

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


def partition_key(topic_partition: TopicPartition, topic_id: UUID) -> PartitionKey:
    """The key of a partition: with a topic id the name plays no part, as in Kafka's sessions."""
    return (topic_id.int, topic_partition.partition) if topic_id.int else topic_partition


class PartitionAppendResult(Value):
    """Where a batch was appended, or why it was not."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    awaits_flush: bool = False
    record_errors: dict[int, str] | None = None


class FetchParams(Value):
    """The limits of one fetch: who reads, how long it may wait, and for how many bytes.

    `may_read_from_follower`: a consumer that knows of other replicas than the leader (KIP-392).
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: IsolationLevel
    replica_epoch: int = NO_EPOCH
    may_read_from_follower: bool = False
    client_rack: str = ""

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id > CONSUMER_REPLICA_ID


class AwakePartitions:
    """The partitions of a follower's fetch session; iterating yields those that may have news.

    Every so often all are yielded: the leader then notes that the follower has caught up, and a
    wake-up that was missed is made good.
    """

    __slots__ = ("all", "all_awake_at_ms", "awake")

    def __init__(self, partitions: Mapping[PartitionKey, PartitionFetch]) -> None:
        self.all = partitions
        self.awake: dict[PartitionKey, PartitionFetch] = {}
        self.all_awake_at_ms = 0

    def __iter__(self) -> Iterator[PartitionFetch]:
        return iter(list(self.awake.values()))

    def __len__(self) -> int:
        return len(self.all)

    def __contains__(self, request: object) -> bool:
        return request in self.awake.values()

    def wake(self, request: PartitionFetch) -> None:
        """Look at a partition again, if the session still asks for it in this way."""
        if self.all.get(request.key) is request:
            self.awake[request.key] = request

    def wake_all(self, now_ms: int) -> None:
        """Look at all partitions again, if the last time was long enough ago."""
        if now_ms - self.all_awake_at_ms >= NOTE_AS_CAUGHT_UP_MS:
            for request in self.all.values():
                request.noted_by = None
            self.awake = dict(self.all)
            self.all_awake_at_ms = now_ms


class PartitionFetch(Value):
    """What one partition is asked for; `max_bytes` is the partition's own limit.

    A fetch session keeps it, with what its reader was told last. `key` is what the reader calls the
    partition: it stays while the name of the topic comes and goes. `noted_by` is the leadership
    that noted the follower's offset not long ago. A follower's `session` skips it while there is no
    news, until the partition wakes it.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = NO_OFFSET
    told_high_watermark: int = field(default=NO_OFFSET, compare=False)
    told_log_start_offset: int = field(default=NO_OFFSET, compare=False)
    noted_by: object | None = field(default=None, compare=False, repr=False)
    session: AwakePartitions | None = field(default=None, compare=False, repr=False)
    key: PartitionKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.key = partition_key(self.topic_partition, self.topic_id)


class FetchPartitionResult(Value):
    """What one partition answers: whole batches as they lie in the segment file, or an error.

    A reader of committed records is told which aborted transactions' batches to skip. In place of
    records there may be the offset where the reader's log diverges from this one, or the id of a
    better replica to read from. `is_cut`: more can be read behind the records, which a limit of
    the fetch or the end of a segment left out.
    """

    error: ErrorCode
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: FileRegion | None = None
    is_cut: bool = False
    aborted_transactions: Sequence[AbortedTxn] | None = None
    diverging_epoch: EpochEntry | None = None
    preferred_read_replica: int = NO_REPLICA

    @property
    def is_urgent(self) -> bool:
        """Whether the answer must not wait for more records."""
        return (
            self.error is not ErrorCode.NONE
            or self.diverging_epoch is not None
            or self.preferred_read_replica != NO_REPLICA
        )

    @property
    def size_in_bytes(self) -> int:
        return 0 if self.records is None else self.records.size


class OffsetResult(Value):
    """The answer to a look-up by time: timestamp and offset of the record, and its epoch."""

    error: ErrorCode
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH


# What was written to partitions and read of them: plain numbers, which metrics read.


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


class TopicStats:
    """What has happened to the partitions of one topic on this broker, since it has some."""

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
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_in: int
    """Of batches that clients and coordinators have produced."""
    bytes_out: int
    """Sent to consumers, not to followers."""
    bytes_rejected: int
    """Of batches that were too large."""
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
        """Count what has happened to another topic as well."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ReplicaStats:
    """The same of all topics of a broker, and of its replicas' changes and copies."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self._partition_counts: Counter[str] = Counter()
        self.gone = TopicStats()
        """Of the topics that had partitions here and have none now."""
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


class DeleteRecordsResult(NamedTuple):
    """The log start offset after records were deleted, or why they were not."""

    low_watermark: int
    error: ErrorCode


# What a producer is answered.


def check_may_write(topic_partition: TopicPartition, origin: AppendOrigin) -> None:
    """Raise KafkaError where a client would write to an internal topic."""
    if topic_partition.topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic_partition.topic} is written by the broker only",
        )


def acceptance(info: LogAppendInfo) -> PartitionAppendResult:
    """The answer to a producer for a batch that was appended."""
    return PartitionAppendResult(
        ErrorCode.NONE,
        info.first_offset,
        info.last_offset,
        info.log_append_time_ms,
        info.log_start_offset,
        awaits_flush=info.awaits_flush,
    )


class Refusals:
    """The refused batches of one request, for one line of the log: it may have thousands."""

    __slots__ = ("_first", "count")

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def note(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """A batch is refused; the first one is named in the line."""
        if not self.count:
            self._first = f"{topic_partition}: {error}"
        self.count += 1

    def log(self) -> None:
        """Write the line, if there is anything to say."""
        if self.count:
            others = f" (and {self.count - 1} more batches)" if self.count > 1 else ""
            logger.info("refused a batch for %s%s", self._first, others)
            self.count = 0


def refusal(error: KafkaError) -> PartitionAppendResult:
    """The answer to a producer for a batch that was refused."""
    refused = error.record_errors if isinstance(error, RefusedRecordsError) else None
    return PartitionAppendResult(error.error, error_message=error.message, record_errors=refused)


# How many bytes a second of replication a broker allows itself, so that moves do no harm.
#
# Only the replicas count that `leader.replication.throttled.replicas` and its counterpart name, and
# only those that are behind are held up: a replica in sync must stay so.


ALL_REPLICAS: Final = "*"


class ReplicationQuota:
    """Bytes over a window of samples, against a limit. Without a limit nothing is counted."""

    def __init__(
        self, clock: Clock, broker_id: int, window_count: int, window_size_seconds: int
    ) -> None:
        self.bytes_per_second = LONG_MAX
        self._clock = clock
        self._broker_id = broker_id
        self._window_count = window_count
        self._window_size_ms = window_size_seconds * 1000
        self._samples: deque[tuple[int, int, int]] = deque()
        """Window, when it got its first bytes, and how many it got."""

    def applies(self, throttled_replicas: Sequence[str], partition: int) -> bool:
        """Whether this broker's replica of a partition is among those that a topic throttles."""
        if not throttled_replicas:
            return False
        return (
            throttled_replicas[0] == ALL_REPLICAS
            or f"{partition}:{self._broker_id}" in throttled_replicas
        )

    def record(self, size: int) -> None:
        """So many bytes of a throttled replica were sent or received."""
        if self.bytes_per_second >= LONG_MAX:
            return
        began_ms = self._clock.monotonic_ms()
        window = began_ms // self._window_size_ms
        if self._samples and self._samples[-1][0] == window:
            _, began_ms, before = self._samples.pop()
            size += before
        self._samples.append((window, began_ms, size))

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.bytes_per_second < LONG_MAX

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate over the last windows is above the limit."""
        samples = self._samples
        if not samples or self.bytes_per_second >= LONG_MAX:
            return False
        now_ms = self._clock.monotonic_ms()
        oldest = now_ms // self._window_size_ms - self._window_count + 1
        while samples and samples[0][0] < oldest:
            samples.popleft()
        if not samples:
            return False
        total = sum(size for _, _, size in samples)
        # Since the first sample, not over all windows: or a move would begin with a burst of all
        # that was not sent before it.
        elapsed_ms = max(now_ms - samples[0][1], self._window_size_ms)
        return total * 1000 / elapsed_ms > self.bytes_per_second
