"""Fetches, look-ups by time and deletions, and the answers of the replica manager, by partition.

These values pass between the request handlers and the logs; they know no protocol version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.log.transaction_index import AbortedTxn
from ottla.runtime import FileRegion
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    NO_OFFSET,
    NO_REPLICA,
    NO_TIMESTAMP,
    IsolationLevel,
    NamedTuple,
    TopicPartition,
    Value,
    field,
)

READ_AT_ONCE = 2_000
"""The partitions of a fetch that one turn of the loop may read: some 4 us for each."""
NOTE_AS_CAUGHT_UP_MS: Final = 500
"""How often a follower that has everything is noted as caught up, rather than at each fetch."""

PartitionKey = tuple[int | str, int]
"""A partition as its reader names it: by the topic's id, as a number, or else by its name."""


def partition_key(topic_partition: TopicPartition, topic_id: UUID) -> PartitionKey:
    """The key of a partition: with a topic id the name plays no part, as in Kafka's sessions."""
    return (topic_id.int, topic_partition.partition) if topic_id.int else topic_partition


class FetchParams(Value):
    """The limits of one fetch: its reader, how long it may wait, and for how many bytes.

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
    """The request for one partition; `max_bytes` is the partition's own limit.

    A fetch session keeps it, with its reader's last answer. `key` is the reader's name of the
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
    """The answer of one partition: whole batches as they lie in the segment file, or an error.

    A reader of committed records learns which aborted transactions' batches to skip. In place of
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


class DeleteRecordsResult(NamedTuple):
    """The log start offset after records were deleted, or why they were not."""

    low_watermark: int
    error: ErrorCode
