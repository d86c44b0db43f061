"""A coordinator's internal topic as its log, over the replica manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.errors import ErrorCode
from ottla.log.log_validator import AppendOrigin
from ottla.record.record_batch import batches
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import ACKS_ALL
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import TopicPartition

LOAD_BUFFER_BYTES: Final = 5 * 1024 * 1024


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, in 32 bits; Kafka places groups and ids by it."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that has the records of a group or transactional id."""
    code = java_hash(key)
    signed = code - 2**32 if code >= 2**31 else code
    # Kafka's Utils.abs, which is 0 where Java's own would stay negative.
    return (0 if signed == -(2**31) else abs(signed)) % partition_count


class TopicLog:
    """Appends to and reads from the partitions of an internal topic that this broker leads."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        topic: str,
        default_partition_count: int,
        append_timeout_ms: int,
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.topic = topic
        self.default_partition_count = default_partition_count
        self.append_timeout_ms = append_timeout_ms

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is created."""
        topic = self.cache.topic(self.topic)
        return self.default_partition_count if topic is None else len(topic.partitions)

    def partition_for(self, key: str) -> int:
        """The partition whose leader coordinates the group or id."""
        return partition_of(key, self.partition_count)

    def is_leader(self, partition: int) -> bool:
        """Whether this broker leads the partition, and so coordinates its groups or ids."""
        known = self.replica_manager.partitions.get(TopicPartition(self.topic, partition))
        return known is not None and known.is_leader

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition."""
        return self.replica_manager.partition(TopicPartition(self.topic, partition)).leader_epoch

    def append(self, partition: int, batch: bytes, on_done: Callable[[ErrorCode], object]) -> None:
        """Append one batch; `on_done` is called once all in-sync replicas have it."""
        topic_partition = TopicPartition(self.topic, partition)
        self.replica_manager.append_records(
            self.append_timeout_ms,
            ACKS_ALL,
            {topic_partition: memoryview(bytearray(batch))},
            lambda results: on_done(results[topic_partition].error),
            origin=AppendOrigin.COORDINATOR,
        )

    def read(self, partition: int) -> Iterator[memoryview]:
        """All batches of the partition, a few megabytes of whole ones at a time."""
        log = self.replica_manager.partition(TopicPartition(self.topic, partition)).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(
                offset, LOAD_BUFFER_BYTES, max_offset=log.log_end_offset, min_one_message=True
            )
            if data.records is None or data.records.size == 0:
                return
            buffer = memoryview(data.records.read())
            yield buffer
            offset = next_offset(buffer)


def next_offset(buffer: memoryview) -> int:
    """The offset after the last whole batch of the buffer."""
    end = -1
    for batch in batches(buffer):
        end = batch.next_offset
    return end
