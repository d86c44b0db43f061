"""The offsets up to which a flow has copied each partition, in a topic at the target.

Records are those of a Connect worker: key ["MirrorSourceConnector",{...}], value {"offset":n} with
the source's offset of the last record that was copied. Ottla adds the ids of both topics: a topic
that was made again under its name has another id, and offsets of the former do not count for it.
Kafka's mirror reads the offset and passes over the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from ottla.clients.consumer.consumer import Consumer
from ottla.errors import KafkaTimeoutError
from ottla.mirror.flow import MirrorCluster
from ottla.mirror.offset_sync import CONNECTOR
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.clock import Clock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

READ_MS: Final = 500
READ_LIMIT_MS: Final = 60_000


class CopiedTo(NamedTuple):
    """The last offset of a source's partition that was copied, and the ids of both topics.

    An id is "" where it is not known: then it is not compared.
    """

    offset: int
    source_id: str = ""
    target_id: str = ""

    def value(self) -> bytes:
        found: dict[str, Any] = {"offset": self.offset}
        if self.source_id:
            found["source.id"] = self.source_id
        if self.target_id:
            found["target.id"] = self.target_id
        return to_json(found)

    @classmethod
    def of(cls, value: bytes | None) -> Self | None:
        """What a value says; None for a tombstone or one without an offset."""
        found = json.loads(value) if value is not None else None
        if not isinstance(found, dict) or not isinstance(found.get("offset"), int):
            return None
        return cls(
            found["offset"], str(found.get("source.id", "")), str(found.get("target.id", ""))
        )


def to_json(value: Any) -> bytes:
    """JSON without spaces, as a Connect worker writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def key_of(source: str, partition: TopicPartition) -> bytes:
    """The key of a partition of the cluster with this alias."""
    place = {"cluster": source, "partition": partition.partition, "topic": partition.topic}
    return to_json([CONNECTOR, place])


def partition_of(key: bytes | None, source: str) -> TopicPartition | None:
    """The partition that a key is about; None if it is of another connector or cluster."""
    try:
        connector, place = json.loads(key or b"")
        if connector != CONNECTOR or place["cluster"] != source:
            return None
        topic, number = place["topic"], place["partition"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_place = isinstance(topic, str) and isinstance(number, int)
    return TopicPartition(topic, number) if is_place else None


class LatestRecordsReader:
    """Reads a topic of records that replace each other: to its end, and later what follows."""

    def __init__(self, cluster: MirrorCluster, topic: str, clock: Clock, **own: Any) -> None:
        self.topic = topic
        self._clock = clock
        settings = cluster.settings(
            "consumer",
            auto_offset_reset="earliest",
            enable_auto_commit="false",
            allow_auto_create_topics="false",
            **own,
        )
        settings.pop("group.id", None)
        self._consumer = Consumer(settings)
        try:
            partitions = self._consumer.partitions_for(topic)
            self.partitions = [TopicPartition(topic, each.partition) for each in partitions]
            if not self.partitions:
                raise KafkaTimeoutError(f"{topic} has no partitions yet")
            self._consumer.assign(self.partitions)
        except BaseException:
            self._consumer.close()
            raise

    def read_to_end(self) -> Iterator[ConsumerRecord]:
        """The records up to the ends as they are now; KafkaTimeoutError after a minute of none."""
        ends = self._consumer.end_offsets(self.partitions)
        behind = [p for p in self.partitions if self._consumer.position(p) < ends[p]]
        until_ms = self._clock.monotonic_ms() + READ_LIMIT_MS
        while behind:
            found = self._consumer.poll(READ_MS)
            now_ms = self._clock.monotonic_ms()
            if found:
                until_ms = now_ms + READ_LIMIT_MS
            elif now_ms > until_ms:
                raise KafkaTimeoutError(f"{self.topic} could not be read to its end")
            yield from found
            behind = [p for p in behind if self._consumer.position(p) < ends[p]]

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """What has come since; waits up to `timeout_ms` for the first record."""
        return self._consumer.poll(timeout_ms)

    def close(self) -> None:
        self._consumer.close()


def read_offsets(
    cluster: MirrorCluster, topic: str, source: str, clock: Clock
) -> dict[TopicPartition, CopiedTo]:
    """How far all partitions of the cluster `source` were copied.

    What is no such offset is passed over: others may write to the topic.
    """
    reader = LatestRecordsReader(cluster, topic, clock, isolation_level="read_committed")
    try:
        found: dict[TopicPartition, CopiedTo] = {}
        for record in reader.read_to_end():
            partition = partition_of(record.key, source)
            if partition is None:
                continue
            try:
                copied = CopiedTo.of(record.value)
            except (ValueError, RecursionError) as error:
                place = record.topic, record.partition, record.offset
                logger.warning("%s-%d, record %d: is no offset: %s", *place, error)
                continue
            if copied is not None:
                found[partition] = copied
            else:
                found.pop(partition, None)
        return found
    finally:
        reader.close()


def records_of(
    source: str, offsets: Mapping[TopicPartition, CopiedTo]
) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each."""
    for partition, copied in offsets.items():
        yield key_of(source, partition), copied.value()
